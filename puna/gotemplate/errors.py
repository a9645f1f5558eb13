"""What can be wrong with a template."""

from __future__ import annotations


class GoTemplateError(ValueError):
    """line: of the template; 0: not known."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line
