"""The text process: reads metadata and vocabularies, renders chat templates, tokenizes; caged and limited."""
