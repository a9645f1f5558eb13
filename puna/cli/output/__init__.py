"""How results look: tables, sizes and times, progress, text that is fit for a terminal."""
