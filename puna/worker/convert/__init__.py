"""The worker that converts model files: one process for one conversion, caged."""
