"""A tag and a JSON list of calls, `[{"name": ..., "arguments": {...}}, ...]`: SmolLM2 and Granite 3.

https://huggingface.co/HuggingFaceTB/SmolLM2-1.7B-Instruct/blob/main/instructions_function_calling.md
https://www.ibm.com/granite/docs/models/granite
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.json_calls import json_call_list, read_json_calls
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Call
from puna.chat.replies.reader import Steps
from puna.chat.replies.tagged import CallReader, tagged


def _family(name: str, recognizes: Callable[[str], bool], begin: str, close: str = "") -> Family:
    """close: the tag behind the list, if there is one."""

    def read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
        return read_json_calls(reader, close)

    def grammar(g: GrammarBuilder, task: ReplyTask) -> str:
        section = f"{json_call_list(g, task)} {g.literal(close)}"
        return g.tagged_reply(task, begin, section, repeats=False)

    def written(calls: Sequence[Call]) -> str:
        objects = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return begin + json.dumps(objects, ensure_ascii=False) + close

    return Family(
        name=name,
        recognizes=recognizes,
        new_parser=tagged(read_calls, [begin]),
        grammar=grammar,
        tags=(begin, close) if close else (begin,),
        written=written,
    )


SMOLLM2 = _family("smollm2", lambda source: "<tool_call>[" in source, "<tool_call>", "</tool_call>")
GRANITE3 = _family(
    "granite3", lambda source: "<|tool_call|>" in source and "<|start_of_role|>" in source, "<|tool_call|>"
)
