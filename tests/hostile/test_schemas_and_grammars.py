"""Schemas and grammars that would take for ever, or never end: refused in the text process, each alone."""

from __future__ import annotations

import asyncio
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from puna.backends.base import ModelSource
from puna.chat.errors import PromptError
from puna.chat.grammars.answer import AnswerFormat, LarkAnswer, RegexAnswer, SchemaAnswer
from puna.chat.messages import Message
from puna.chat.prompt import PromptRequest
from puna.daemon.text.pool import TextPool
from puna.worker.text.limits import Limits
from tests.api.ggufs import write_gguf

pytestmark = pytest.mark.native


def chain(one: Any, length: int) -> dict[str, Any]:
    """References that double each time. one: from the next reference to what refers twice to it."""
    definitions = {f"a{number}": one({"$ref": f"#/$defs/a{number + 1}"}) for number in range(length)}
    return {
        "$ref": "#/$defs/a0",
        "$defs": {**definitions, f"a{length}": {"type": "object", "properties": {"x": {}}}},
    }


def nested(one: Any, depth: int) -> Any:
    return reduce(lambda inner, _: one(inner), range(depth), {"type": "string"})


def optional(names: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


SCHEMAS = {
    "merged alternatives": {
        "allOf": [{"anyOf": [optional([f"p{i}{j}"]) for j in range(2)]} for i in range(24)]
    },
    "deep": nested(lambda inner: {"type": "array", "items": inner}, 200),
    "deep alternatives": nested(lambda inner: {"anyOf": [inner]}, 60),
    "deep constant": {"const": nested(lambda inner: [inner], 500)},
    "long constant": {"const": "x" * 500_000},
    "huge enum": {"enum": list(range(40_000))},
    "patterns together": {
        "allOf": [{"type": "string", "pattern": f".*{char}.*"} for char in "abcdefghijklmnopqrst"]
    },
    "pattern and length": {"type": "string", "pattern": "(a|b)*a(a|b){25}", "minLength": 100},
    "pattern of repeats": {"type": "string", "pattern": "^(a{1000}){1000}$"},
    "patterns of names": {
        "type": "object",
        "patternProperties": {f"^(.*{char}.*){{5}}$": True for char in "abcdefgh"},
    },
    "loop": {"$ref": "#"},
    "long loop": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
    },
    "endless": {"type": "object", "properties": {"c": {"$ref": "#"}}, "required": ["c"]},
    "endless array": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "remote": {"$ref": "https://example.com/schema.json"},
    "file": {"$ref": "file:///etc/passwd"},
    "doubled alternatives": chain(lambda ref: {"oneOf": [ref, ref]}, 40),
    "doubled objects": chain(
        lambda ref: {
            "type": "object",
            "properties": {**{f"k{i}": ref for i in range(10)}, "z": {"oneOf": [ref, ref]}},
            "required": [*(f"k{i}" for i in range(10)), "z"],
        },
        20,
    ),
    "many properties": optional([f"p{number}" for number in range(5000)]),
    "many alternatives": {"anyOf": [optional([f"p{number}"]) for number in range(5000)]},
    "many definitions": chain(lambda ref: {"anyOf": [ref]}, 2000),
    "multiples": {"allOf": [{"type": "integer", "multipleOf": 9973 - i} for i in range(10)]},
    "multiple": {"type": "integer", "multipleOf": 1_000_003},
    "narrow range": {"type": "number", "minimum": 1e29, "maximum": 1.0000001e29},
}
GRAMMARS: dict[str, AnswerFormat] = {
    "terminal of repeats": LarkAnswer("start: A\nA: (/a/{1000}){1000}"),
    "rules of repeats": LarkAnswer('start: ("a"{1000000}){1000000}'),
    "doubled rules": LarkAnswer(
        "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)) + '\nr60: "a"'
    ),
    "long chain": LarkAnswer("start: a0\n" + "\n".join(f"a{i}:a{i + 1}" for i in range(8000))),
    "deep": LarkAnswer("start: " + "(" * 5000 + '"a"' + ")" * 5000),
    "endless": LarkAnswer('start: "a" start'),
    "repeats that come late": LarkAnswer('start: "x" ~ 40 /((a{9}){99}|b){99}/'),
    "terminal of repeats that comes late": LarkAnswer(
        "start: /[a-z]{40}/ A{3}\nA: (B | /c/){99}\nB: /a/~999"
    ),
    "schema of repeats": LarkAnswer(
        'start: /[a-z]{40}/ %json {"type": "string", "pattern": "^(a{1000}){1000}$"}'
    ),
    "doubled terminals": LarkAnswer(
        "start: /[a-z]{40}/ A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(20)) + '\nA20: "a"'
    ),
    "nested terminals": LarkAnswer(
        "start: A0\n" + "\n".join(f'A{i}: A{i + 1} | "x{i}"' for i in range(4000)) + '\nA4000: "a"'
    ),
    "terminal within itself": LarkAnswer('start: A\nA: "a" B\nB: A | "b"'),
    "long": LarkAnswer('start: "' + "a" * 100_000 + '"'),
    "control tokens": LarkAnswer("start: <[1]>"),
    "an attribute behind a text": LarkAnswer('start[capture="x", max_tokens=5]: "a"'),
    "brackets": LarkAnswer("[" * 90_000),
    "quotes": LarkAnswer('"a\\' * 30_000),
    "another grammar": LarkAnswer("start: @lark_grammar"),
    "options": LarkAnswer('%llguidance {"allow_invalid_utf8": true}\nstart: "a"'),
    "escape": LarkAnswer('start: "a" }\nother: "b"'),
    "repeats": RegexAnswer("(a{1000}){1000}"),
    "late repeats": RegexAnswer("[a-z]{40}(a{1000}){1000}"),
    "deep groups": RegexAnswer("(" * 3000 + ")" * 3000),
    "out of its slashes": RegexAnswer("a/ | TEXT | /b\\"),
}
HOSTILE = {
    **{f"schema: {name}": SchemaAnswer(schema) for name, schema in SCHEMAS.items()},
    **{f"grammar: {name}": grammar for name, grammar in GRAMMARS.items()},
}


def test_each_is_refused_alone(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "plain.gguf")
    asyncio.run(_ask_all(path))


async def _ask_all(path: Path) -> None:
    pool = TextPool(Limits(prompt_cpu_s=1))
    pool.start()
    try:
        with ModelSource.open(path) as source:
            model = await pool.open_model(source)

        async def ask(answer: AnswerFormat | None) -> str:
            request = PromptRequest(messages=[Message("user", "hi")], context_length=2048, answer=answer)
            try:
                (prompt,) = await asyncio.wait_for(pool.build_prompts(model, request), 60)
            except PromptError as error:
                return str(error)
            return "" if answer is None else f"a grammar of {len(prompt.grammar)} bytes"

        for name, answer in HOSTILE.items():
            told = await ask(answer)
            assert "a grammar of" not in told, f"{name}: {told}"
            assert 0 < len(told) < 500, name
            assert await ask(None) == ""
        pool.close_model(model)
    finally:
        await pool.close()
