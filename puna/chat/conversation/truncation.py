"""Makes conversations and prompts fit the context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache

from puna.chat.errors import TemplateError
from puna.chat.messages import Message


def fit_messages(
    messages: Sequence[Message], count_tokens: Callable[[list[Message]], int], limit: int
) -> list[Message]:
    """Drops as few messages as possible from the front until the rest takes at most `limit` tokens.

    System messages always stay, and so does the last message, whether it fits or not. `count_tokens` renders
    and tokenizes. It may raise TemplateError: many templates refuse a conversation that begins with an
    answer, so such a cut is passed over. It is called for few cuts, on the assumption that what is shorter
    costs less. What is left does not begin with the result of a call, unless that is the last message.
    Raises TemplateError if neither the whole nor what would be left can be rendered.
    """
    messages = list(messages)
    if not messages or count_tokens(messages) <= limit:
        return messages
    last = len(messages) - 1

    @cache
    def next_possible(start: int) -> tuple[int, int]:
        """(the first cut at or behind `start` that can be rendered, its tokens)"""
        while True:
            while start < last and messages[start].role == "tool":
                start += 1
            try:
                return start, count_tokens(_cut(messages, start))
            except TemplateError:
                if start >= last:
                    raise
                start += 1

    def fits(start: int) -> bool:
        return start == last or next_possible(start)[1] <= limit

    start = bisect_left(range(1, last + 1), True, key=fits) + 1
    return _cut(messages, next_possible(min(start, last))[0])


def _cut(messages: list[Message], start: int) -> list[Message]:
    return [message for message in messages[:start] if message.role == "system"] + messages[start:]


def kept_tokens(num_keep: int, num_prompt: int, limit: int, add_bos: bool) -> int:
    """How many tokens at the front always stay when a context of `limit` is full.

    num_keep: of a prompt of `num_prompt`; negative means all of it. One more if the tokenizer adds BOS.
    """
    wanted = (num_keep if num_keep >= 0 else num_prompt) + (1 if add_bos else 0)
    return min(wanted, limit - 1)


def fit_prompt(tokens: Sequence[int], limit: int, num_keep: int, add_bos: bool) -> list[int]:
    """Leaves out the middle of a prompt that does not leave room for one more token in a context of `limit`.

    The front stays as `kept_tokens` says.

    | kept    | left out             | tail                 |
    0        keep         len(tokens) - (length - keep)   len(tokens)
    """
    if len(tokens) <= limit - 1:
        return list(tokens)
    keep = kept_tokens(num_keep, len(tokens), limit, add_bos)
    length = limit - max((limit - keep) // 2, 1)
    return [*tokens[:keep], *tokens[keep + len(tokens) - length :]]
