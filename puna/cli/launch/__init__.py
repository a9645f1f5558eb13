"""`puna launch`: other programs, with a model of this server."""
