"""What a vocabulary that cannot be used raises."""


class TokenizerError(ValueError):
    """The text names the metadata key and what is wrong with it, or the token id that does not exist."""
