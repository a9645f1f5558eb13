"""How fast do replies come that are held to a grammar, beside free ones? `python -m benchmarks.constrained`

Both run in turn, in one engine, with the same prompts and as many tokens, without guesses from text: what is
faster is faster by forced tokens alone. Figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.constrained.masks import mask_rows
from benchmarks.figures import Report, Row, Target, rate
from benchmarks.weights.files import FILES, bench_file
from puna._native import TokenTable
from puna.backends import open_device
from puna.backends.base import ModelSource
from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.json_calls import json_call
from puna.chat.replies.thinking import THINK
from puna.chat.tools import Tool, ToolFunction
from puna.engine import EngineCore, Request, SamplingParams, StepOutput
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer

_MODEL = "model"
_PROMPT = "What is the weather like in Paris, in London and in Rome this week? Answer with calls of tools.\n"
_WEATHER = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "maxLength": 24},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "number_of_days": {"type": "integer", "minimum": 1, "maximum": 14},
        "include_humidity": {"type": "boolean"},
    },
    "required": ["location", "unit", "number_of_days", "include_humidity"],
    "additionalProperties": False,
}
_CALL_RULES = f"""calls: call ("\\n" call){{2}}
call: "<tool_call>\\n{{\\"name\\": \\"get_current_weather\\", \\"arguments\\": " arguments "}}\\n</tool_call>"
arguments: %json {json.dumps(_WEATHER)}
"""
_CALLS = f"start: calls\n{_CALL_RULES}"
_THOUGHT_CALLS = rf"""start: /[^<]{{120,160}}/ "</think>\n" calls
{_CALL_RULES}"""
_STRINGS = f"""start: %json {json.dumps({"type": "string", "minLength": 400})}
"""


def _free() -> str:
    """Of a reply with tools, whose tags are text: the model thinks for as long as it likes."""
    builder = GrammarBuilder(lambda _: None)
    tools = [Tool(ToolFunction("get_current_weather", parameters=_WEATHER))]
    task = ReplyTask(tools=tools, thinking=THINK, starts_thinking=True)
    return builder.grammar(builder.tagged_reply(task, "<tool_call>", json_call(builder, tools), repeats=True))


@dataclass(frozen=True)
class _Case:
    title: str
    grammar: str
    num_streams: int
    target: Target


_CASES = (
    _Case("tool calls", _CALLS, 1, Target(1.1)),
    _Case("thoughts, then tool calls", _THOUGHT_CALLS, 1, Target(1.1)),
    _Case("free strings", _STRINGS, 1, Target(0.98)),
    _Case("thoughts up to a tag or a call", _free(), 1, Target(0.98)),
    _Case("16 streams of tool calls", _CALLS, 16, Target(0.95)),
    _Case("16 streams of free strings", _STRINGS, 16, Target(0.95)),
    _Case("16 streams of thoughts", _free(), 16, Target(0.95)),
)


class _Bench:
    def __init__(self, path: Path, threads: int | None) -> None:
        with GgufFile(path) as file:
            self.tokenizer = load_tokenizer(file.metadata)
        self._engine = EngineCore(open_device("cpu", threads, "f16"))
        with ModelSource.open(path) as source:
            self._engine.load_model(_MODEL, source)
        table = TokenTable(self.tokenizer.token_table())
        self._engine.set_token_table(_MODEL, table, self.tokenizer)
        self._number = 0

    def rate(self, grammar: str, num_streams: int, num_tokens: Sequence[int]) -> tuple[float, list[int]]:
        """Tokens of a second of decoding, all streams together, and how many each got. num_tokens: of each
        stream at most.
        """
        stop_tokens = sorted(self.tokenizer.end_of_generation) if grammar else []
        self._number += 1
        for index, limit in zip(range(num_streams), num_tokens, strict=True):
            self._engine.submit(
                Request(
                    id=f"{self._number}.{index}",
                    model_id=_MODEL,
                    prompt=self.tokenizer.encode(f"{index}. {_PROMPT}"),
                    max_tokens=limit,
                    stop_tokens=stop_tokens,
                    grammar=grammar,
                    num_draft=0,
                    sampling=SamplingParams(temperature=0.8, seed=self._number * 100 + index),
                )
            )
        return self._decode()

    def _decode(self) -> tuple[float, list[int]]:
        last: list[StepOutput] = []
        while self._engine.has_work:
            last += [output for output in self._engine.step() if output.finish_reason]
        if failed := [output.error for output in last if output.error]:
            raise RuntimeError(failed[0])
        stats = [output.stats for output in last if output.stats]
        rates = sum(s.generated_tokens / (s.generation_ns * 1e-9) for s in stats)
        return rates, [s.generated_tokens for s in stats]

    def row(self, case: _Case, rounds: int) -> Row:
        limits = [160] * case.num_streams
        self.rate(case.grammar, case.num_streams, limits)  # compiles it, and learns what steps cost
        held: list[float] = []
        free: list[float] = []
        for number in range(rounds):
            rate_held, counts = self.rate(case.grammar, case.num_streams, limits)
            rate_free, _ = self.rate("", case.num_streams, sorted(counts) if number % 2 else counts)
            held.append(rate_held)
            free.append(rate_free)
        ratio = median(a / b for a, b in zip(held, free, strict=True))
        shown = f"{rate(median(held))}, free {rate(median(free))}"
        return Row(case.title, shown, ratio=ratio, target=case.target)

    def close(self) -> None:
        self._engine.close()
        self._engine.backend.close()  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", choices=FILES, default="Gemma3")
    parser.add_argument("--gguf", type=Path, help="in place of --file")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    path = arguments.gguf or bench_file(arguments.file).path
    bench = _Bench(path, arguments.threads)
    rows = [bench.row(case, arguments.rounds) for case in _CASES]
    title = f"Held to a grammar / free, {arguments.gguf or FILES[arguments.file]}"
    bench.close()
    masks = mask_rows(bench_file("Gemma3").path)
    print(Report(str(__doc__), {title: rows, "Masks of one thread": masks}).tables())


if __name__ == "__main__":
    main()
