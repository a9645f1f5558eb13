"""What is above the engine's own, for chats of several kinds: with and without tools and schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.overhead.agent_tools import ANSWER_SCHEMA, FUNCTIONS
from benchmarks.overhead.daemons import Daemon, daemon_of
from benchmarks.overhead.engine_alone import EngineAlone
from benchmarks.overhead.protocols import MESSAGES, NDJSON, RESPONSES, SSE, Chat, Json, Protocol, asking
from benchmarks.overhead.replay import CONTEXT
from benchmarks.overhead.streams import first_token_s, token_cost
from benchmarks.servers.prompts import Prompts
from benchmarks.weights.files import BenchFile
from puna.chat.grammars.answer import SchemaAnswer
from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.prompt import Prompt, PromptRequest
from puna.chat.tools import Tool, ToolFunction

PLAIN = "no tools"
KINDS: dict[str, Callable[[Chat], Chat]] = {
    PLAIN: lambda chat: chat,
    "12 tools": lambda chat: replace(chat, functions=FUNCTIONS),
    "JSON schema": lambda chat: replace(chat, schema=ANSWER_SCHEMA),
}
PROTOCOLS = (NDJSON, SSE, RESPONSES, MESSAGES)
_PROMPT_TOKENS = 1000
_RESULT_TOKENS = 400
_REPLY_TOKENS = {1: 1600, 16: 400}
"""By the number of streams: so many that all stream at the same time for a while."""
_FIRST_TOKENS_PER_ROUND = 4
_ADDED_BY_GRAMMAR = 1.1
"""So many times what a chat without tools may take, one with tools or a schema may."""


class Measure(NamedTuple):
    """most: what it may be above the engine's own, of a chat without tools."""

    title: str
    unit: str
    digits: int
    most: float | None = None


class Sample(NamedTuple):
    """Of the daemon, and of the engine alone right before."""

    whole: float
    engine: float


@dataclass
class KindResults:
    """Samples by measure and kind."""

    samples: dict[Measure, dict[str, list[Sample]]] = field(default_factory=dict)

    def add(self, measure: Measure, kind: str, sample: Sample) -> None:
        of_kinds = self.samples.setdefault(measure, {name: [] for name in KINDS})
        of_kinds[kind].append(sample)

    def markdown(self) -> str:
        """Medians of the daemon's, and of what of that is above the engine's; this also of minima."""
        head = ["median, above the engine's own (minima)", *KINDS, "floor"]
        rows = [self._row(measure, of_kinds) for measure, of_kinds in self.samples.items()]
        return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])

    def _row(self, measure: Measure, of_kinds: dict[str, list[Sample]]) -> list[str]:
        cells, met = [f"{measure.title}, {measure.unit}"], []
        for kind, samples in of_kinds.items():
            whole = median(sample.whole for sample in samples)
            above = median(sample.whole - sample.engine for sample in samples)
            least = min(sample.whole for sample in samples) - min(sample.engine for sample in samples)
            shown = (f"{value:+.{measure.digits}f}" for value in (above, least))
            cells.append(f"{whole:.{measure.digits}f}, {' ('.join(shown)})")
            if measure.most is not None:
                most = measure.most * (1 if kind == PLAIN else _ADDED_BY_GRAMMAR)
                met.append("met" if above <= most else "missed")
        floor = "" if measure.most is None else f"≤ {measure.most:g}: {', '.join(met)}"
        return [*cells, floor]


def measure_kinds(checkout: Path, file: BenchFile, rounds: int) -> KindResults:
    """Around the replayed model of `file`."""
    prompts = Prompts(file.path)
    text, result = prompts.take(_PROMPT_TOKENS), prompts.take(_RESULT_TOKENS)
    results = KindResults()
    with daemon_of(checkout, file.store) as daemon, EngineAlone(file.path) as engine:
        bench = _Bench(daemon, engine, file.model, results)
        for of_kind in KINDS.values():
            chat = of_kind(asking(text, 16))
            engine.first_token_s(engine.prompt(_prompt_request(chat)), chat.num_tokens)
            for protocol in PROTOCOLS:
                first_token_s(daemon, protocol.request(file.model, chat), protocol)
        daemon.settle()
        for i in range(rounds):
            for kind, of_kind in _rotated(KINDS.items(), i):
                daemon.settle()
                for j in range(_FIRST_TOKENS_PER_ROUND):
                    for protocol in PROTOCOLS:
                        # Only the end differs: KV of all before it is cached.
                        chat = asking(f"{text} {i} {j} {protocol.name}", 4)
                        bench.first_token(kind, of_kind(chat), protocol)
                    second = _second_turn(text, f"{result} {i} {j}")
                    bench.first_token(kind, of_kind(second), SSE, ", second turn")
                for protocol in PROTOCOLS:
                    for num_streams in _REPLY_TOKENS:
                        bench.tokens(kind, of_kind, protocol, num_streams)
    return results


class _Bench(NamedTuple):
    daemon: Daemon
    engine: EngineAlone
    model: str
    results: KindResults

    def first_token(self, kind: str, chat: Chat, protocol: Protocol, note: str = "") -> None:
        prompt = self.engine.prompt(_prompt_request(chat))
        alone_s = self.engine.first_token_s(prompt, chat.num_tokens)
        whole_s = first_token_s(self.daemon, protocol.request(self.model, chat), protocol)
        measure = Measure(f"first token, {protocol.name}{note}", "ms", 2, most=8)
        self.results.add(measure, kind, Sample(1e3 * whole_s, 1e3 * alone_s))

    def tokens(
        self, kind: str, of_kind: Callable[[Chat], Chat], protocol: Protocol, num_streams: int
    ) -> None:
        num_tokens = _REPLY_TOKENS[num_streams]
        chats = [of_kind(asking(f"Story {number}, please.", num_tokens)) for number in range(num_streams)]
        prompts: list[Prompt] = [self.engine.prompt(_prompt_request(chat)) for chat in chats]
        alone = self.engine.token_cost(prompts, num_tokens)
        whole = token_cost(self.daemon, [protocol.request(self.model, chat) for chat in chats], protocol)
        streams = f"{protocol.name}, {num_streams} stream{'s' if num_streams > 1 else ''}"
        is_one = num_streams == 1
        wall = Measure(f"time of a token, {streams}", "µs", 0, most=200 if is_one else None)
        cpu = Measure(f"processor time of a token, {streams}", "µs", 0, most=None if is_one else 150)
        self.results.add(wall, kind, Sample(whole.wall_us, alone.wall_us))
        self.results.add(cpu, kind, Sample(whole.cpu_us, alone.cpu_us))


def _second_turn(text: str, result: str) -> Chat:
    """The model has called a tool."""
    function = {"name": "read_file", "arguments": '{"path": "/srv/notes.txt"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    messages: list[Json] = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_call_id": "call_1"},
    ]
    return Chat(messages=messages, num_tokens=4)


def _prompt_request(chat: Chat) -> PromptRequest:
    return PromptRequest(
        messages=[_message(message) for message in chat.messages],
        tools=[Tool(ToolFunction(**function)) for function in chat.functions],
        answer=None if chat.schema is None else SchemaAnswer(dict(chat.schema)),
        context_length=CONTEXT,
    )


def _message(message: Json) -> Message:
    if "tool_calls" not in message:
        return Message(message["role"], message["content"], tool_call_id=message.get("tool_call_id"))
    called = CalledFunction("read_file", {"path": "/srv/notes.txt"})
    return Message("assistant", "", tool_calls=[ToolCall(called, "call_1")])


def _rotated(
    items: Iterable[tuple[str, Callable[[Chat], Chat]]], i: int
) -> list[tuple[str, Callable[[Chat], Chat]]]:
    """The order in which kinds are measured changes."""
    listed = list(items)
    i %= len(listed)
    return listed[i:] + listed[:i]
