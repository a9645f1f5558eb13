"""Drafts of what sequences say next, verified in one step."""
