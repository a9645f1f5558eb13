"""What is to be known of a model's file before it is loaded."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=1024)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounded, whatever is in the file."""

    error: Text = ""
    """Why the file cannot be used; then nothing else is known."""
    kind: Text = "model"
    """Or "adapter", "projector", ..."""
    num_parts: Count = 1
    """Of the split file that it is one of."""
    architecture: Text = ""
    capabilities: Annotated[tuple[Text, ...], msgspec.Meta(max_length=16)] = ()
    """What the model can do; puna may not."""
    has_projector: bool = False
    """In the same file, which can be taken out."""
    template_source: Text = "none"
    """Where the template comes from that renders prompts; see puna.chat.templates.choice."""
    think_levels: Annotated[tuple[Text, ...], msgspec.Meta(max_length=8)] = ()
    """How hard the model may be told to think, if there is a choice."""
    context_length: Count = 0
    embedding_length: Count = 0
    parameter_count: Count = 0
    parameter_size: Text = ""
    """The same for people: "134.52M"."""
    quantization: Text = ""
    weight_bytes: Count = 0
