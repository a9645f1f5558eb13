"""The files that are measured, and how they are made."""
