"""Writes grammars in llguidance's dialect of Lark, rule by rule.

https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from puna.chat.grammars.task import ReplyTask

FindControl = Callable[[str], int | None]
"""The control token that is written so, if there is one."""

_TAGS = re.compile(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{2,32}\]|<｜[^<>]{1,64}｜>")


class GrammarBuilder:
    """Terms are pieces of the bodies of rules, to be put one behind the other or joined with |."""

    def __init__(self, find_control: FindControl) -> None:
        self._find_control = find_control
        self._rules: list[str] = []
        self._names: set[str] = set()

    def literal(self, text: str) -> str:
        """A term: exactly this text; what are control tokens in it, as such tokens."""
        terms, begin = [], 0
        for match in _TAGS.finditer(text):
            if (token := self._find_control(match.group())) is not None:
                terms += [_quoted(text[begin : match.start()]), f"<[{token}]>"]
                begin = match.end()
        terms.append(_quoted(text[begin:]))
        return " ".join(filter(None, terms))

    def rule(self, name: str, body: str, *, attributes: str = "") -> str:
        """A term: a rule of its own; with a number behind its name if that is taken. Names in capitals are of
        terminals.
        """
        number = 1
        unique = name
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        self._rules.append(f"{unique}{attributes}: {body}")
        return unique

    def regex(self, pattern: str) -> str:
        """A term: what matches, in the syntax of Rust's regex crate."""
        return self.rule("REGEX", f"/{_escaped_slashes(pattern)}/")

    def schema(self, schema: Mapping[str, Any]) -> str:
        """A term: JSON that fits a schema. Raises SchemaError."""
        return self.rule("json", f"%json {json.dumps(schema)}")

    def text(self) -> str:
        """A term: any text, without control tokens."""
        return self.rule("TEXT", "/(?s:.*)/")

    def text_up_to(self, tag: str) -> str:
        """A term: any text and, for the first time, the tag behind it."""
        literal = self.literal(tag)
        if literal.startswith("<["):
            return f"{self.text()} {literal}"
        return self.rule("up_to", f"/(?s:.*)/ {literal}", attributes="[lazy]")

    def tagged_reply(self, task: ReplyTask, begin: str, rest: str, *, repeats: bool) -> str:
        """The body of the start rule for replies whose calls stand behind a tag: thoughts, then text up to
        the tag and what follows it, or the answer.

        rest: a term for what stands behind the tag. repeats: whether such sections may follow each other.
        """
        calls = self._calls(task, begin, rest, repeats=repeats)
        return f"{self.thoughts(task)} ({calls})"

    def thoughts(self, task: ReplyTask) -> str:
        """A term: what the model thinks first; empty if it does not."""
        if task.thinking is None:
            return ""
        behind = self.text_up_to(task.thinking.close) + " " + self.rule("SPACE", r"/\s*/")
        if task.starts_thinking:
            return behind
        return f"({self.literal(task.thinking.open)} {behind})?"

    def grammar(self, start: str) -> str:
        """The whole."""
        return "\n".join(["%llguidance {}", f"start: {start}", *self._rules])

    def _calls(self, task: ReplyTask, begin: str, rest: str, *, repeats: bool) -> str:
        answer = self.text() if task.answer is None else task.answer
        if not task.tools:
            return answer
        section = f"{self.literal(begin)} {rest}"
        space = self.rule("SPACE", r"/\s*/")
        more = f"({space} {section})*" if repeats and task.parallel else ""
        if task.must_call:
            return f"{section} {more} {space}"
        if task.answer is not None:
            return f"{answer} | {section} {more} {space}"
        return f"{answer} | {self.text_up_to(begin)} {rest} {more} {space}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _escaped_slashes(pattern: str) -> str:
    return re.sub(r"(?<!\\)/", r"\\/", pattern)


def one_of(terms: Sequence[str]) -> str:
    """A term: one of these."""
    return "(" + " | ".join(terms) + ")"
