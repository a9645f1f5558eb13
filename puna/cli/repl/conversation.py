"""A conversation: what was said so far, and how it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from puna.cli.client import Json
from puna.cli.repl.line_input import LineHistory
from puna.cli.run.options import RunOptions


@dataclass(slots=True, kw_only=True)
class Conversation:
    """With one model at a time."""

    model: str
    options: RunOptions
    history: LineHistory
    capabilities: list[str] = field(default_factory=list)
    """Of the model."""
    embedded: list[Json] = field(default_factory=list)
    """Messages that the model brings along: the server puts them before those of requests."""
    messages: list[Json] = field(default_factory=list)
    system: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    def begin(self, model: str, information: Json) -> None:
        """Anew, with a model of which the server says `information`; system message and parameters stay."""
        self.model = model
        self.capabilities = information.get("capabilities") or []
        self.embedded = information.get("messages") or []
        self.messages.clear()

    def request(self) -> Json:
        """The body of `/api/chat` for the messages so far."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.options.request(
            model=self.model, messages=system + self.messages, options=self.parameters
        )

    def create_request(self, name: str) -> Json:
        """The body of `/api/create` for a model that goes on from here.

        It has what the present one has, and what was set and said since: messages replace the model's own, so
        those are among them.
        """
        given = {
            "system": self.system,
            "parameters": self.parameters,
            "messages": [*self.embedded, *self.messages] if self.messages else [],
        }
        return {"model": name, "from": self.model} | {key: value for key, value in given.items() if value}
