"""What generate and chat are asked for; the OpenAI face translates its requests into these."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

from puna.api.errors import ApiError
from puna.chat.messages import Message
from puna.chat.tools import Tool
from puna.config.quantities import keep_alive_seconds

MOST_MESSAGES = 16_384
MOST_TOOLS = 1024
_MOST_OPTIONS = 128
_MOST_IMAGES = 64
_LEVELS = ("high", "medium", "low", "max")
_LEVELS_TEXT = ", ".join(f'"{level}"' for level in _LEVELS) + ", true, or false"


class Think(NamedTuple):
    """The `think` field: whether, and how hard if the client said so."""

    enabled: bool
    level: str | None = None


class Extensions(msgspec.Struct, kw_only=True):
    """What both faces take beyond what their protocols know; meanings as in the engine's Request."""

    cache_prompt: bool = True
    cache_salt: str = ""
    cache_to_disk: bool = True
    priority: int = 0
    session: str | None = None


def extensions_of(request: Extensions) -> dict[str, Any]:
    """Those fields, to be passed on."""
    return {name: getattr(request, name) for name in Extensions.__struct_fields__}


class ModelRequest(Extensions, kw_only=True):
    """What asks something of a model."""

    model: str = ""
    options: Annotated[dict[str, Any], msgspec.Meta(max_length=_MOST_OPTIONS)] = {}
    keep_alive: Any = None

    def keep_alive_s(self) -> float | None:
        """Seconds; math.inf: for ever; None: not asked for. ApiError (400) for anything else."""
        value = self.keep_alive
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ApiError(400, f"Unsupported type: '{_TYPE_NAMES[type(value)]}'")
        try:
            return keep_alive_seconds(value)
        except (ValueError, OverflowError) as error:
            raise ApiError(400, str(error)) from error


class InferenceRequest(ModelRequest, kw_only=True):
    """Fields that generate and chat share."""

    stream: bool = True
    format: Any = None
    """As Ollama's clients write it, or an AnswerFormat; see puna.api.checks.answer_format."""
    think: Any = None
    truncate: bool = True
    shift: bool = True
    logprobs: bool = False
    top_logprobs: int = 0
    debug_render_only: bool = msgspec.field(default=False, name="_debug_render_only")

    def think_mode(self) -> Think | None:
        """None: not asked for. ApiError (400) for what is neither a boolean nor a level."""
        if self.think is None:
            return None
        if isinstance(self.think, bool):
            return Think(self.think)
        if not isinstance(self.think, str):
            raise ApiError(400, f"think must be a boolean or string ({_LEVELS_TEXT})")
        if self.think not in _LEVELS:
            raise ApiError(400, f'invalid think value: "{self.think[:40]}" (must be {_LEVELS_TEXT})')
        return Think(True, self.think)


_TYPE_NAMES = {bool: "bool", list: "array", dict: "object"}


class GenerateRequest(InferenceRequest, kw_only=True):
    """POST /api/generate."""

    prompt: str = ""
    suffix: str = ""
    images: Annotated[list[bytes], msgspec.Meta(max_length=_MOST_IMAGES)] = []
    system: str = ""
    template: str = ""
    context: list[int] = []
    raw: bool = False


class ChatRequest(InferenceRequest, kw_only=True):
    """POST /api/chat."""

    messages: Annotated[list[Message], msgspec.Meta(max_length=MOST_MESSAGES)] = []
    tools: Annotated[list[Tool], msgspec.Meta(max_length=MOST_TOOLS)] = []
    tool_choice: Any = None
    """As OpenAI's clients write it, or a ToolChoice; see puna.api.tool_choices."""

    def __post_init__(self) -> None:
        if sum(len(message.images) for message in self.messages) > _MOST_IMAGES:
            raise ApiError(400, f"messages may have {_MOST_IMAGES} images at most")
