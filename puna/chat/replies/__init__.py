"""From a reply's text to thoughts, content and tool calls: pure functions, fed as the text comes."""
