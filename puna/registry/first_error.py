"""One error in place of a group of them."""

from __future__ import annotations


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first, of tasks of which each has its own."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
