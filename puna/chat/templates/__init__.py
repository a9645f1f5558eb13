"""Chat templates in the languages of Jinja and Go: which one a model has, what it is given, and rendering."""
