"""`puna run`: one answer."""
