"""The store of models on disk: blobs, manifests, and what a stored model consists of."""
