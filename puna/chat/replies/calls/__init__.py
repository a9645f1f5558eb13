"""Ways in which calls of tools are written, which several families share."""
