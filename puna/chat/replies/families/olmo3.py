"""`<function_calls>` around calls in Python's syntax, one on each line: OLMo 3.

https://huggingface.co/allenai/Olmo-3-7B-Instruct
"""

from __future__ import annotations

import re

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.python_calls import calls_term, give_calls
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import PYTHON, Steps
from puna.chat.replies.tagged import CallReader, tagged

_NAME = re.compile(r"[^(<\n]*")
_OPEN, _CLOSE = "<function_calls>", "</function_calls>"


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    while True:
        yield from reader.space()
        if (yield from reader.skip(_CLOSE)):
            return
        name = yield from reader.word(_NAME)
        give_calls(reader, name + (yield from reader.balanced(PYTHON)))


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = calls_term(g, task.tools, parallel=task.parallel, separator=r"\n") if task.tools else ""
    return g.tagged_reply(task, _OPEN, f'"\\n"? {calls} "\\n"? {g.literal(_CLOSE)}', repeats=False)


OLMO3 = Family(
    name="olmo3",
    recognizes=lambda source: _OPEN in source,
    new_parser=tagged(_read_calls, [_OPEN]),
    grammar=_grammar,
    tags=(_OPEN, _CLOSE),
)
