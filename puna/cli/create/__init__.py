"""`puna create`: the client reads the Modelfile and hands its files to the server."""
