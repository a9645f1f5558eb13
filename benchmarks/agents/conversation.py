"""A conversation as the client of an agent keeps it, and sends it whole with every request."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.agents.texts import Writer

Message = dict[str, Any]
"""As in OpenAI's protocol."""

_REPLY_TOKENS, _EVEN_REPLY = (30, 60, 120), 60
_SHARE_OF_THINKING = 2 / 3


@dataclass(frozen=True)
class Agent:
    """model: as the trace calls it. system_tokens: of its own system prompt, with its tools. result_tokens:
    what its tools give, one of these each time.
    """

    name: str
    model: str
    system_tokens: int
    result_tokens: tuple[int, ...]


@dataclass
class Conversation:
    """Grows by a reply and a tool's result in each turn. What the model says is random, so the client has its
    own idea of it: thoughts are dropped; what was said without thoughts stays, a call is written anew behind.
    """

    agent: Agent
    count: Callable[[str], int]
    messages: list[Message] = field(default_factory=list)
    thinks: bool = True
    """Whether the next reply is to begin with thoughts."""

    def __post_init__(self) -> None:
        self._writer = Writer(self.agent.name, self.count)
        self._random = random.Random(self.agent.name)
        self._num_turns = 0
        self.messages.append({"role": "system", "content": self._writer.text(self.agent.system_tokens)})
        self.ask(200)

    def ask(self, num_tokens: int) -> None:
        """The user, or the agent that gave the task, writes."""
        self.messages.append({"role": "user", "content": self._writer.text(num_tokens)})

    def add_turn(self, generated: str, result_tokens: int | None = None) -> None:
        """The reply as the client renders it, and what its call gave. result_tokens: None: by chance, and so
        is the length of the reply.
        """
        said = self._writer.text(self._random.choice(_REPLY_TOKENS) if result_tokens is None else _EVEN_REPLY)
        content = said if self.thinks else f"{generated}\n{said}"
        arguments = {"path": self._writer.path(), "from": self._random.randrange(500), "lines": 40}
        call = {"name": "read_file", "arguments": json.dumps(arguments, indent=1)}
        call_id = f"call_{self._num_turns}"
        calls = [{"id": call_id, "type": "function", "function": call}]
        result = self._writer.text(result_tokens or self._random.choice(self.agent.result_tokens))
        self.messages += [
            {"role": "assistant", "content": content, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]
        self._num_turns += 1
        self.thinks = self._random.random() < _SHARE_OF_THINKING
