"""What text workers and the zygote that forks them are asked."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from puna.chat.embedding_inputs import InputsRequest
from puna.chat.errors import PromptError, TemplateError
from puna.chat.model_record import ModelRecord
from puna.chat.prompt import Prompt, PromptRequest
from puna.chat.ranking_inputs import PairsRequest
from puna.chat.templates.model_templates import ModelTemplates
from puna.gguf.errors import GgufError
from puna.tokenizer.errors import TokenizerError
from puna.worker.cage import CageLevel
from puna.worker.calls import Call, Crossing
from puna.worker.text.limits import Limits

CROSSING: Crossing = (PromptError, TemplateError, TokenizerError, GgufError)

MAX_TEMPLATE_CHARS = 1 << 20


class TextSide(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon needs of a model's vocabulary and template."""

    vocab_size: int
    end_of_generation: Annotated[list[int], msgspec.Meta(max_length=1024)]
    template: Annotated[str, msgspec.Meta(max_length=MAX_TEMPLATE_CHARS)] | None
    """That of the file; None: there is none that can be used."""
    unknown: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """What of its tokenizer is not known here; empty: nothing."""
    is_stand_in: bool = False
    """Its tokens are not those of the texts: only an engine with a tokenizer of its own can run it."""
    fill_in: Annotated[list[int], msgspec.Meta(max_length=3)] = []
    """Tokens for prompts with a gap, see puna.chat.prompt_building.Rendering; none: the file names none."""
    rank_template: Annotated[str, msgspec.Meta(max_length=MAX_TEMPLATE_CHARS)] | None = None
    """That for a query and a document."""


class GetCage(Call[CageLevel], frozen=True):
    """Answered by a worker as soon as it is caged."""


class Inspect(Call[ModelRecord], frozen=True):
    """With the model's file. Raises GgufError."""

    name: str
    """For error texts, here and below."""
    templates: ModelTemplates = ModelTemplates()


class CheckTemplate(Call[None], frozen=True):
    """With the model's file, or with none as if there was one with a template. Raises TemplateError if the
    template of choice cannot be used, GgufError.
    """

    name: str
    templates: ModelTemplates


class Describe(Call[None], frozen=True):
    """With the model's file, and one that gets members of a JSON object; see description.py."""

    name: str
    verbose: bool
    """With all arrays."""
    with_template: bool
    """With the file's."""
    basename: str = ""
    """In place of the file's, if it is not empty."""
    is_projector: bool = False
    """Of a model; then without tensors."""


class OpenModel(Call[TextSide], frozen=True):
    """With the model's file, and two that get its vocabulary and its token table. Raises GgufError,
    TokenizerError.
    """

    name: str


class Attach(Call[None], frozen=True):
    """With the vocabulary, sealed: prompts of the model can be built from now on. Raises TokenizerError."""

    model: int
    template: str | None
    fill_in: list[int]
    rank_template: str | None = None


class Detach(msgspec.Struct, frozen=True, tag=True):
    """The model is not asked for again. Not answered."""

    model: int


class BuildPrompts(Call[list[Prompt]], frozen=True):
    """Of a model that is attached. Raises PromptError, TemplateError."""

    model: int
    request: PromptRequest


class EncodeInputs(Call[list[list[int]]], frozen=True):
    """For embeddings, with a model that is attached. Raises PromptError."""

    model: int
    request: InputsRequest


class EncodePairs(Call[list[list[int]]], frozen=True):
    """To be ranked, with a model that is attached. Raises PromptError."""

    model: int
    request: PairsRequest


class Tokenize(Call[list[int]], frozen=True):
    """For a model that is attached."""

    model: int
    text: str
    add_special: bool
    parse_special: bool


class Detokenize(Call[str], frozen=True):
    """For a model that is attached. Raises TokenizerError."""

    model: int
    tokens: list[int]


class Leaving(msgspec.Struct, frozen=True, tag=True):
    """Told by a worker before its last answer: whatever is asked after that is lost."""


ToTextWorker = (
    GetCage
    | Inspect
    | CheckTemplate
    | Describe
    | OpenModel
    | Attach
    | Detach
    | BuildPrompts
    | EncodeInputs
    | EncodePairs
    | Tokenize
    | Detokenize
)


def cpu_seconds(message: Call[Any] | Detach, limits: Limits) -> float:
    """Processor time that it may take."""
    return limits.file_cpu_s if isinstance(message, Describe | OpenModel | Attach) else limits.prompt_cpu_s


class Ending(msgspec.Struct, frozen=True):
    """How a text worker has ended."""

    status: int
    """Negative is a signal's number."""
    stage: int
    """What it did at last; see puna.worker.text.stages."""


class Fork(Call[int], frozen=True):
    """With a channel's end for the new worker. Answered with its process id."""

    limits: Limits


class Reap(Call[Ending], frozen=True):
    """Ends a worker if it has not ended."""

    pid: int


ToZygote = Fork | Reap
