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
    architecture: Text = ""
    capabilities: Annotated[tuple[Text, ...], msgspec.Meta(max_length=16)] = ()
    """Only what puna can do with the model."""
    has_template: bool = False
    """The file has a chat template."""
    context_length: Count = 0
    embedding_length: Count = 0
    parameter_count: Count = 0
    parameter_size: Text = ""
    """The same for people: "134.52M"."""
    quantization: Text = ""
    weight_bytes: Count = 0
