"""Structured answers of the real daemon with a real model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.launching import MODEL, TIMEOUT_S, address_of, launch
from tests.structured.schemas import all_cases
from tests.structured.verdicts import told, verdicts

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def url(models: Path) -> Iterator[str]:
    process = launch(models, PUNA_KV_DISK="0")
    try:
        yield f"http://{address_of(process)}"
    finally:
        process.kill()
        process.communicate()


def test_replies_at_high_temperature_fit_their_schemas(url: str) -> None:
    short = sorted((case for case in all_cases() if case.is_bounded), key=lambda case: len(str(case.schema)))
    cases = [*short[40:100:10], all_cases()[-1]]
    found = asyncio.run(verdicts(url, MODEL, cases, 400, 10))
    assert not [told(verdict) for verdict in found if verdict.fault]


def answer_to(url: str, wanted: object, **fields: object) -> httpx.Response:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": MODEL, "messages": messages, "format": wanted, "stream": False, **fields}
    return httpx.post(f"{url}/api/chat", json=body, timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        ({"syntax": "regex", "definition": "(ab){3}/?x"}, {"abababx", "ababab/x"}),
        (
            {"syntax": "lark", "definition": 'start: "yes" | "no" WHY\nWHY: "!"\n%ignore / {0,1}/'},
            {"yes", "no!", "no !"},
        ),
    ],
)
def test_grammars_of_a_client(url: str, grammar: dict[str, str], expected: set[str]) -> None:
    reply = answer_to(url, {"type": "grammar", **grammar}).json()
    assert reply["message"]["content"] in expected
    assert reply["done_reason"] == "stop"


@pytest.mark.parametrize(
    ("wanted", "told_text"),
    [
        ({"type": "array", "uniqueItems": True}, "'uniqueItems' at #"),
        ({"type": "string", "pattern": "(?=a)"}, "look-around"),
        ({"$ref": "https://example.com/s.json"}, "another document"),
        ({"type": "grammar", "syntax": "lark", "definition": "start: <|im_end|>"}, "control tokens"),
        ({"type": "grammar", "syntax": "regex", "definition": "("}, "unclosed group"),
        ({"type": "string", "maxLength": 3, "minLength": 5}, "minLength (5) is greater"),
    ],
)
def test_what_cannot_be_held_to_is_refused(url: str, wanted: object, told_text: str) -> None:
    response = answer_to(url, wanted)
    assert response.status_code == 400
    assert told_text in response.json()["error"]
