"""Where later prompts are likely to part from a conversation's prompt.

What was computed of a prompt serves a later one up to where both part, and a model with recurrent layers can
go on only from a state that was kept. A chat mostly comes back with the latest reply written anew, so it
parts where that reply began. How far the rest stays as it was is known to the template alone; it is asked by
rendering what may come next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from puna.chat.errors import TemplateError
from puna.chat.messages import Message

if TYPE_CHECKING:
    from puna.tokenizer import Tokenizer

Render = Callable[[Sequence[Message], bool], str]
"""The text of messages; True: with what asks for a reply. Raises TemplateError."""

_SYSTEM = ("system", "developer")
_CLOSE = 16  # tokens: computed again in no time


def find_boundaries(
    messages: Sequence[Message], render: Render, text: str, tokens: Sequence[int], tokenizer: Tokenizer
) -> list[int]:
    """Positions in `tokens`, ascending, at which control tokens begin messages: behind the system's messages,
    which other conversations have, too; behind what stays when the user speaks again, since many templates
    then drop the thoughts of earlier replies, or the place for them; and, last, where a reply is asked for.

    text: the messages, rendered to be replied to; tokens: its tokens, without what the tokenizer adds. Of
    positions that are close to each other, the first.
    """
    if not messages:
        return []
    marks = _Marks(text, tokens, tokenizer)
    found = [marks.at_or_before(_shared(text, render, further, True)) for further in _further(messages)]
    found.append(_reply_begin(messages, render, text, tokens, tokenizer, marks))
    boundaries: list[int] = []
    for position in sorted(found):
        if position > (boundaries[-1] if boundaries else 0) + _CLOSE:
            boundaries.append(position)
    return boundaries


def _further(messages: Sequence[Message]) -> list[list[Message]]:
    """Conversations whose prompts have a beginning in common with that of `messages`."""
    num_system = next((i for i, message in enumerate(messages) if message.role not in _SYSTEM), 0)
    content = "b" if messages[num_system].content.startswith("a") else "a"
    return [
        [*messages, Message("assistant", "a"), Message("user", "a")],
        [
            *messages[:num_system],
            Message("user", content),
        ],  # some templates have a system message of their own
    ]


def _shared(text: str, render: Render, messages: Sequence[Message], asks: bool) -> int:
    """Characters at the start of `text` that the prompt of these messages has, too; 0 if it cannot be."""
    try:
        other = render(messages, asks)
    except TemplateError:  # many templates accept messages only in a certain order
        return 0
    longest = min(len(text), len(other))
    return bisect_left(range(1, longest + 1), True, key=lambda n: text[:n] != other[:n])


def _reply_begin(
    messages: Sequence[Message],
    render: Render,
    text: str,
    tokens: Sequence[int],
    tokenizer: Tokenizer,
    marks: _Marks,
) -> int:
    if not (num_chars := _shared(text, render, messages, False)):
        return 0
    asking = tokenizer.encode(text[num_chars:], add_special=False)
    begin = len(tokens) - len(asking)
    return begin if list(tokens[begin:]) == asking else marks.at_or_before(num_chars)


class _Marks:
    """Where control tokens stand: only there is it certain how a text's parts are cut into tokens."""

    def __init__(self, text: str, tokens: Sequence[int], tokenizer: Tokenizer) -> None:
        self._chars: list[int] = []
        self._positions = tokenizer.control_positions(tokens)
        texts = {token: tokenizer.token_text(token) for token in {tokens[i] for i in self._positions}}
        end = 0
        for position in self._positions:
            begin = text.find(texts[tokens[position]], end)
            if begin < 0:
                break
            self._chars.append(begin)
            end = begin + len(texts[tokens[position]])

    def at_or_before(self, num_chars: int) -> int:
        """The position of the last one that begins within the first `num_chars` characters, or right behind
        them; 0: there is none.
        """
        index = bisect_right(self._chars, num_chars)
        return self._positions[index - 1] if index else 0
