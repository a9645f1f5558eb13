"""Which tensors a layer of a tiny model has."""
