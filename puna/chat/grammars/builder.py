"""Writes grammars in llguidance's dialect of Lark, rule by rule.

https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas.checking import usable_schema
from puna.chat.grammars.schemas.keywords import MERGED, Rigour
from puna.chat.grammars.sizes import check_regex
from puna.chat.grammars.tagged_text import patterns_without
from puna.chat.grammars.task import ReplyTask
from puna.chat.tools import ToolFunction

FindControl = Callable[[str], int | None]
"""The control token that is written so, if there is one."""

_TAGS = re.compile(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{2,32}\]")
_ESCAPES_OR_ENDS = re.compile(r"(\\[^\n])|(/)|\\?\n")
_ANY_TEXT = "/(?s:.*)/"
_NOT_BEGUN = r"/[ \t\r\n]*[^ \t\r\n{}](?s:.*)/"

_MAX_REGEX_CHARS = 10_000
_JSON_OPTIONS = {"whitespace_pattern": r"[ ]{1,2}|\r?\n[ \t]{0,32}"}
"""White space in JSON is bounded: else a model that is not sure could go on with it for ever."""


MOST_CALLS = 32
"""Of one reply."""


class GrammarBuilder:
    """Terms are pieces of the bodies of rules, to be put one behind the other or joined with |.

    Text that grammars let through has no control tokens, but for those that they name. Tokens that end a
    reply cannot be named: it may end wherever the grammar can.
    """

    def __init__(self, find_control: FindControl) -> None:
        self._find_control = find_control
        self._rules: list[str] = []
        self._num_named: dict[str, int] = {}
        self._shared: dict[str, str] = {}
        self._grammars: dict[str, str] = {}

    def literal(self, text: str) -> str:
        """A term: exactly this text of a format; what are control tokens in it, as such tokens."""
        return " ".join(self._pieces(text))

    def is_control(self, tag: str) -> bool:
        """Whether there is a control token that is written so."""
        return self._find_control(tag) is not None

    def plain(self, text: str) -> str:
        """A term: exactly this text of a client, which may look like control tokens but is none."""
        return _quoted(text)

    def rule(self, name: str, body: str, *, attributes: str = "") -> str:
        """A term: a rule of its own; with a number behind its name if that is taken. Names in capitals are of
        terminals.
        """
        unique = self._unique(name)
        self._rules.append(f"{unique}{attributes}: {body}")
        return unique

    def recursive_rule(self, name: str, write: Callable[[str], str]) -> str:
        """A term: a rule whose body, which `write` makes of this term, may have itself within it."""
        unique = self._unique(name)
        self._rules.append(f"{unique}: {write(unique)}")
        return unique

    def regex(self, pattern: str) -> str:
        """A term: what matches as a whole, in the syntax of Rust's regex crate."""
        if not pattern:
            return '""'
        if len(pattern) > _MAX_REGEX_CHARS:
            raise PromptError(f"the regular expression has more than {_MAX_REGEX_CHARS} characters")
        check_regex(pattern)
        if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
            raise PromptError("the regular expression ends with a backslash that escapes nothing")
        return self.rule("REGEX", f"/{_escaped(pattern)}/")

    def schema(self, schema: Mapping[str, Any], rigour: Rigour = Rigour.NORMAL) -> str:
        """A term: JSON that fits a schema; tools have arguments() and argument(). Raises PromptError."""
        usable = usable_schema(schema, rigour)
        return self.rule("json", "%json " + _json({**usable, "x-guidance": _JSON_OPTIONS}))

    def arguments(self, function: ToolFunction) -> str:
        """A term: a JSON object of arguments with which a function may be called. What its schema asks for
        and cannot be enforced is refused only if it is strict. Who declares no properties of all that there
        might be means none. Raises PromptError.
        """
        schema = {**function.schema(), "type": "object"}
        if schema.get("properties") == {} and not any(key in schema for key in MERGED):
            schema.setdefault("additionalProperties", False)
        return self.schema(schema, _rigour_of(function))

    def argument(self, function: ToolFunction, schema: Mapping[str, Any]) -> str:
        """A term: JSON that fits a part of such a schema, for formats that don't write a JSON object. Raises
        PromptError.

        schema: has the definitions that it refers to.
        """
        return self.schema(schema, _rigour_of(function))

    def lark(self, grammar: str) -> str:
        """A term: what a grammar in llguidance's dialect of Lark accepts."""
        name = f"grammar-{len(self._grammars) + 1}"
        self._grammars[name] = grammar
        return f"@{name}"

    def text(self) -> str:
        """A term: any text, without control tokens."""
        return self._once("TEXT", _ANY_TEXT)

    def text_up_to(self, tag: str, text: str) -> str:
        """A term: text and, for the first time, the tag behind it. text: the body of a terminal."""
        before, *others = self._pieces(tag)
        if before.startswith("<["):
            return " ".join([self._once("TEXT", text), before, *others])
        if others:  # text that is followed by a control token needs no searching for its end
            return " ".join([self.rule("TEXT_AND", f"{text} {before}"), *others])
        return self._once("up_to", f"{text} {before}", attributes="[lazy]")

    def ended_text(self, *ends: tuple[str, str], may_go_on: bool = False) -> str:
        """A term: any text up to the first of several tags, that tag, and what follows it.

        ends: tags, each with a term for what follows. may_go_on: there may be no tag at all.
        """
        if any(self._is_mixed(tag) for tag, _ in ends):
            terms = [f"{self.text_up_to(tag, _ANY_TEXT)} {rest}" for tag, rest in ends]
            return one_of([*terms, self.text()] if may_go_on else terms)
        behind = one_of([f"{self.literal(tag)} {rest}" for tag, rest in ends])
        text = self._text_without([tag for tag, _ in ends if not self._pieces(tag)[0].startswith("<[")])
        return f"{text} {behind}?" if may_go_on else f"{text} {behind}"

    def space(self) -> str:
        """A term: white space, or nothing."""
        return self._once("SPACE", r"/[ \t\r\n]{0,8}/")

    def tagged_reply(self, task: ReplyTask, begin: str, rest: str, *, repeats: bool) -> str:
        """The body of the start rule for replies whose calls stand behind a tag: thoughts, then text up to
        the tag and what follows it, or the answer. Calls end thoughts, too, and thoughts may stand between
        calls.

        rest: a term for what stands behind the tag. repeats: whether such sections may follow each other.
        """
        if not task.tools:
            return f"{self.thoughts(task)} ({self.text() if task.answer is None else task.answer})"
        rest = self.rule("call", rest)
        calls = self.rule("calls", f"{rest} {self._more_calls(task, begin, rest, repeats)} {self.space()}")
        section = f"{self.literal(begin)} {calls}"
        if task.must_call:
            behind = section
        elif task.answer is not None:
            behind = one_of([task.answer, section])
        else:
            behind = self.ended_text((begin, calls), may_go_on=True)
        if task.thinking is None:
            return behind
        thoughts = self.ended_text(
            (task.thinking.close, f"{self._space_behind(task)} {behind}"), (begin, calls)
        )
        if task.starts_thinking:
            return thoughts
        return f"{behind} | {self.literal(task.thinking.open)} {thoughts}"

    def begun_reply(self, task: ReplyTask, calls: str, *, first: str) -> str:
        """The body of the start rule for replies that are calls, or else text: told by how they begin.

        calls: a term. first: characters with which no text begins.
        """
        text = self.text()
        if task.tools:
            text = f"({self.rule('TEXT', _NOT_BEGUN.format(re.escape(first)))})?"
        answer = text if task.answer is None else task.answer
        if not task.tools:
            return f"{self.thoughts(task)} ({answer})"
        section = f"{calls} {self.space()}"
        return f"{self.thoughts(task)} ({section if task.must_call else f'{section} | {answer}'})"

    def thoughts(self, task: ReplyTask) -> str:
        """A term: what the model thinks first; empty if it does not."""
        if task.thinking is None:
            return ""
        behind = self.ended_text((task.thinking.close, self._space_behind(task)))
        if task.starts_thinking:
            return behind
        return f"({self.literal(task.thinking.open)} {behind})?"

    def grammar(self, start: str) -> str:
        """The whole: Lark, or llguidance's list of grammars if there are more than one."""
        lark = "\n".join(["%llguidance {}", f"start: {start}", *self._rules])
        if not self._grammars:
            return lark
        others = [{"name": name, "lark_grammar": text} for name, text in self._grammars.items()]
        return json.dumps({"grammars": [{"lark_grammar": lark}, *others]}, ensure_ascii=False)

    def _unique(self, name: str) -> str:
        """With a number, but for the first one: names that rules are given have none."""
        number = self._num_named[name] = self._num_named.get(name, 0) + 1
        return f"{name}_{number}" if number > 1 else name

    def _once(self, name: str, body: str, *, attributes: str = "") -> str:
        """A rule that all who need it share."""
        if body not in self._shared:
            self._shared[body] = self.rule(name, body, attributes=attributes)
        return self._shared[body]

    def _pieces(self, text: str) -> list[str]:
        """Terms, of text and of control tokens."""
        pieces, begin = [], 0
        for match in _TAGS.finditer(text):
            if (token := self._find_control(match.group())) is not None:
                pieces += [_quoted(text[begin : match.start()]), f"<[{token}]>"]
                begin = match.end()
        pieces.append(_quoted(text[begin:]))
        return [piece for piece in pieces if piece != '""'] or ['""']

    def _more_calls(self, task: ReplyTask, begin: str, rest: str, repeats: bool) -> str:
        if not (repeats and task.parallel):
            return ""
        call = f"{self.literal(begin)} {rest}"
        if task.thinking is not None:
            behind = f"{self.space()} {call}"
            thoughts = self.ended_text((task.thinking.close, behind), (begin, rest))
            call = one_of([call, f"{self.literal(task.thinking.open)} {thoughts}"])
        return more_calls(f"{self.space()} {call}")

    def _space_behind(self, task: ReplyTask) -> str:
        """A term: what may stand between thoughts and what follows; any text has white space, too."""
        return "" if task.answer is None and not task.must_call else self.space()

    def _is_mixed(self, tag: str) -> bool:
        """Whether it begins with text, and has control tokens behind that."""
        before, *others = self._pieces(tag)
        return bool(others) and not before.startswith("<[")

    def _text_without(self, tags: Sequence[str]) -> str:
        """A term: any text that has none of these in it. tags: without control tokens."""
        if not tags:
            return self.text()
        terminals = [self._once("TEXT", f"/{_escaped(pattern)}/") for pattern in patterns_without(tags)]
        return self._once("text", f"({' | '.join(terminals)})*")


def more_calls(call: str) -> str:
    """A term: none to many of these. Bounded, since a small model may call and call."""
    return f"({call}){{0,{MOST_CALLS - 1}}}"


def one_of(terms: Sequence[str]) -> str:
    """A term: one of these."""
    return "(" + " | ".join(terms) + ")"


def _rigour_of(function: ToolFunction) -> Rigour:
    return Rigour.STRICT if function.strict else Rigour.LENIENT


def _escaped(pattern: str) -> str:
    """As it is written between slashes."""
    return _ESCAPES_OR_ENDS.sub(lambda match: match[1] or (r"\/" if match[2] else r"\n"), pattern)


def _quoted(text: str) -> str:
    return _json(text)


def _json(value: Any) -> str:
    """In the form in which Lark's strings are JSON, too: DEL escaped. Raises PromptError."""
    written = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if not written.isascii() and any("\ud800" <= char <= "\udfff" for char in written):
        raise PromptError("a schema or a name has half of a surrogate pair")
    return written
