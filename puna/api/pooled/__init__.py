"""What becomes a vector instead of a reply: texts to embed, and pairs of texts to rank."""
