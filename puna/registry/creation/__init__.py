"""Making models of files, of other models, and of what a Modelfile says beside them."""
