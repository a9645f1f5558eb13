"""Plays a trace against servers, and counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.agents.chat import Answer, BrokenOff
from benchmarks.agents.conversation import Agent, Conversation, Message
from benchmarks.agents.prompts import PromptTokens
from benchmarks.agents.trace import Event, Restart, Unload, Wave
from benchmarks.agents.unique import Unique

_MAX_TRIES = 20
_PAUSE_S = 0.1


class Servers(Protocol):
    """Whoever serves the models of a trace."""

    def ask(self, model: str, messages: Sequence[Message], *, thinks: bool) -> Answer:
        """Raises BrokenOff if the server, or a part of it, dies meanwhile. Thread safe."""

    def unload(self, model: str) -> None: ...

    def restart(self) -> None: ...

    def computed_tokens(self) -> Counter[str]:
        """Prompt tokens that went through each model since the start, also for what broke off."""

    def begin(self, num_new: int) -> None:
        """Requests follow that have so many tokens which no earlier prompt had."""

    def end(self) -> bool:
        """They are answered. Returns whether they were disturbed."""


@dataclass(frozen=True)
class WaveRecord:
    """new: tokens of the prompts that no earlier one had; computed; both by model."""

    wave: Wave
    new: Counter[str]
    computed: Counter[str]
    answers: Sequence[Answer]
    is_disturbed: bool

    @property
    def num_excess(self) -> int:
        return self.computed.total() - self.new.total()


@dataclass
class Course:
    """What came of a trace."""

    waves: list[WaveRecord] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def num_unique(self) -> int:
        return sum(record.new.total() for record in self.waves)

    @property
    def num_computed(self) -> int:
        return sum(record.computed.total() for record in self.waves)

    @property
    def num_tokens(self) -> int:
        """Of all prompts together."""
        return sum(answer.prompt_tokens for record in self.waves for answer in record.answers)

    def computed_twice(self, model: str | None = None) -> float:
        """Computed per unique prompt token; of one model, or all."""
        if model is None:
            return self.num_computed / self.num_unique
        computed = sum(record.computed[model] for record in self.waves)
        return computed / sum(record.new[model] for record in self.waves)

    def first_token_s(self, timed: str) -> list[float]:
        """Of the waves that are timed as this."""
        return [record.answers[0].first_token_s for record in self.waves if record.wave.timed == timed]

    def losses(self) -> list[int]:
        """Of each disturbance: tokens computed beyond the new ones, until the next."""
        losses: list[int] = []
        for record in self.waves:
            if record.is_disturbed:
                losses.append(0)
            if losses:
                losses[-1] += record.num_excess
        return losses


class Player:
    """Keeps the clients' conversations."""

    def __init__(self, prompts: Mapping[str, PromptTokens]) -> None:
        self._prompts = prompts
        self._unique = {model: Unique() for model in prompts}
        self._conversations: dict[Agent, Conversation] = {}

    def play(self, trace: Iterable[Event], servers: Servers) -> Course:
        course, start = Course(), time.perf_counter()
        for event in trace:
            match event:
                case Unload(model):
                    servers.unload(model)
                case Restart():
                    servers.restart()
                case Wave():
                    course.waves.append(self._send(event, servers))
        course.seconds = time.perf_counter() - start
        return course

    def unique_tokens(self, trace: Iterable[Event]) -> dict[str, int]:
        """Of each model's prompts, as far as they are known without anybody who answers."""
        for event in trace:
            if isinstance(event, Wave):
                self._add_prompts(event)
                self._grow(event, [""] * len(event.agents))
        return {model: unique.total for model, unique in self._unique.items()}

    def _send(self, wave: Wave, servers: Servers) -> WaveRecord:
        before = servers.computed_tokens()
        lengths, new = self._add_prompts(wave)
        servers.begin(new.total())
        with ThreadPoolExecutor(len(wave.agents)) as pool:
            answers = list(pool.map(lambda agent: _ask(self._conversation(agent), servers), wave.agents))
        is_disturbed = servers.end()
        for answer, length in zip(answers, lengths, strict=True):
            if answer.prompt_tokens != length:
                raise RuntimeError(f"a prompt of {length} tokens has {answer.prompt_tokens} for the server")
        self._grow(wave, [answer.text for answer in answers])
        return WaveRecord(wave, new, servers.computed_tokens() - before, answers, is_disturbed)

    def _add_prompts(self, wave: Wave) -> tuple[list[int], Counter[str]]:
        """(lengths, tokens that are new by model)."""
        lengths, new = [], Counter[str]()
        for agent in wave.agents:
            conversation = self._conversation(agent)
            tokens = self._prompts[agent.model].of(conversation.messages, thinks=conversation.thinks)
            new[agent.model] += self._unique[agent.model].add(tokens)
            lengths.append(len(tokens))
        return lengths, new

    def _grow(self, wave: Wave, texts: Sequence[str]) -> None:
        for agent, text in zip(wave.agents, texts, strict=True):
            self._conversation(agent).add_turn(text, wave.result_tokens)

    def _conversation(self, agent: Agent) -> Conversation:
        if agent not in self._conversations:
            self._conversations[agent] = Conversation(agent, self._prompts[agent.model].count)
        return self._conversations[agent]


def _ask(conversation: Conversation, servers: Servers) -> Answer:
    """Asks again where an answer breaks off, as clients do."""
    tries = 0
    while True:
        try:
            return servers.ask(conversation.agent.model, conversation.messages, thinks=conversation.thinks)
        except BrokenOff as error:
            if (tries := tries + 1) == _MAX_TRIES:
                raise RuntimeError(f"no answer in {tries} tries: {error}") from error
            time.sleep(_PAUSE_S)
