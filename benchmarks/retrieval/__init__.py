"""A question answered from passages, by four models: what one memory for all of them brings."""
