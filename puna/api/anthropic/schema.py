"""What Anthropic's clients send, as far as there is something here to honour it.

https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from puna.api.requests import MOST_MESSAGES, MOST_TOOLS, Extensions


class InputMessage(msgspec.Struct):
    """A turn; content is a text or a list of blocks."""

    role: str = ""
    content: Any = ""


class InputTool(msgspec.Struct):
    """A function that the client offers; of another type than "custom", one that Anthropic's models know."""

    name: str = ""
    description: str = ""
    input_schema: dict[str, Any] = {}
    type: str = "custom"
    strict: bool = False


class InputToolChoice(msgspec.Struct):
    """`tool_choice`."""

    type: str = "auto"
    name: str = ""
    disable_parallel_tool_use: bool = False


class Thinking(msgspec.Struct):
    """`thinking`. How many tokens it may take is up to the model."""

    type: str = ""


class OutputFormat(msgspec.Struct):
    """What the answer must be."""

    type: str = ""
    schema: dict[str, Any] = {}


class OutputConfig(msgspec.Struct):
    """`output_config`."""

    effort: str = ""
    format: OutputFormat | None = None


class PromptFields(Extensions, kw_only=True):
    """What the prompt is made of: POST /v1/messages/count_tokens."""

    model: str = ""
    messages: Annotated[list[InputMessage], msgspec.Meta(max_length=MOST_MESSAGES)] = msgspec.field(
        default_factory=list
    )
    system: Any = ""
    """A text, or a list of text blocks."""
    tools: Annotated[list[InputTool], msgspec.Meta(max_length=MOST_TOOLS)] = msgspec.field(
        default_factory=list
    )
    tool_choice: InputToolChoice = msgspec.field(default_factory=InputToolChoice)
    thinking: Thinking = msgspec.field(default_factory=Thinking)
    output_config: OutputConfig = msgspec.field(default_factory=OutputConfig)
    output_format: OutputFormat | None = None
    """As the clients sent it before there was `output_config`."""


class MessagesRequest(PromptFields, kw_only=True):
    """POST /v1/messages."""

    max_tokens: int = 0
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] = msgspec.field(default_factory=list)
