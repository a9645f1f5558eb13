"""A daemon's replies to questions with a schema, and what is wrong with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

import httpx

from puna.chat.grammars.builder import GrammarBuilder
from tests.structured.replies import completed, fits
from tests.structured.schemas import Case

_TIMEOUT_S = 280.0
_UNBOUNDED_TOKENS = 256
_QUESTION = "Invent something, and describe it in JSON."


class Verdict(NamedTuple):
    case: Case
    text: str
    reason: str
    """Why the reply ended."""
    num_tokens: int
    fault: str
    """Empty if it is as it should be."""


def grammar_of(case: Case) -> str:
    builder = GrammarBuilder(lambda _: None)
    return builder.grammar(builder.schema(case.schema))


def fault_of(case: Case, text: str, *, has_ended: bool) -> str:
    """Replies that ended fit their schema; those that were cut may be brought to an end that does."""
    try:
        if has_ended:
            return "" if fits(case.schema, text) else "does not fit"
        if case.is_bounded:
            return "does not end"
        return (
            ""
            if fits(case.schema, completed(grammar_of(case), text))
            else "is the beginning of what does not fit"
        )
    except (AssertionError, ValueError) as error:
        return f"is none: {error}"


async def verdicts(
    url: str, model: str, cases: Sequence[Case], num_predict: int, at_once: int
) -> list[Verdict]:
    """Of replies drawn at temperature 1.5 from all tokens that fit. num_predict: where the schema bounds
    them.
    """
    turns = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits) as client:

        async def ask(case: Case) -> Verdict:
            options = {
                "temperature": 1.5,
                "top_p": 1,
                "top_k": 0,
                "seed": case.number,
                "num_predict": num_predict if case.is_bounded else _UNBOUNDED_TOKENS,
            }
            messages = [{"role": "user", "content": _QUESTION}]
            body = {
                "model": model,
                "messages": messages,
                "format": case.schema,
                "options": options,
                "stream": False,
            }
            async with turns:
                reply = (await client.post("/api/chat", json=body)).json()
            if "error" in reply:
                return Verdict(case, "", "error", 0, reply["error"])
            text = reply["message"]["content"]
            fault = fault_of(case, text, has_ended=reply["done_reason"] == "stop")
            return Verdict(case, text, reply["done_reason"], reply["eval_count"], fault)

        return await asyncio.gather(*map(ask, cases))


def told(verdict: Verdict) -> str:
    schema = json.dumps(verdict.case.schema, ensure_ascii=False)
    return f"schema {verdict.case.number} ({schema}): {verdict.text!r}, {verdict.reason}: {verdict.fault}"
