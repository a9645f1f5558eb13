"""What puna adds around its engine: to the first token, to each token, to a start, to memory."""
