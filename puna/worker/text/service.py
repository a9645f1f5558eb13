"""What a text worker does when it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from puna.chat.embedding_inputs import InputsRequest, encode_inputs
from puna.chat.messages import Message
from puna.chat.prompt import Prompt, PromptRequest, build_prompts
from puna.chat.template import MAX_SOURCE, ChatTemplate, template_source
from puna.gguf import read_metadata
from puna.tokenizer import Tokenizer, build_vocabulary
from puna.worker.cage import CageLevel
from puna.worker.text.description import write_description
from puna.worker.text.messages import (
    Attach,
    BuildPrompts,
    CheckTemplate,
    Describe,
    Detach,
    Detokenize,
    EncodeInputs,
    GetCage,
    Inspect,
    OpenModel,
    TextSide,
    Tokenize,
    ToTextWorker,
)
from puna.worker.text.reading import TEMPLATE_KEY, read_record
from puna.worker.text.stages import SharedStage, Stage

_MAX_TEMPLATES = 4
"""Of one model that are kept compiled: models with the same weights may have their own."""


class TextService:
    """Keeps the models that are attached."""

    def __init__(self, stage: SharedStage, cage: CageLevel) -> None:
        self._cage = cage
        self._stage = stage
        self._models: dict[int, _AttachedModel] = {}

    def handle(self, message: ToTextWorker, descriptors: Sequence[int]) -> object:
        """The answer to a message. Raises PromptError, TemplateError, TokenizerError, GgufError."""
        match message:
            case BuildPrompts(model, request):
                return self._models[model].build_prompts(request)
            case EncodeInputs(model, request):
                return self._models[model].encode_inputs(request)
            case Tokenize(model, text, add_special, parse_special):
                with self._stage.during(Stage.TOKENIZING):
                    tokenizer = self._models[model].tokenizer
                    return tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
            case Detokenize(model, tokens):
                with self._stage.during(Stage.TOKENIZING):
                    return self._models[model].tokenizer.decode(tokens)
            case Attach(model, template):
                tokenizer = Tokenizer.from_descriptor(descriptors[0])
                self._models[model] = _AttachedModel(tokenizer, template, self._stage)
            case Detach(model):
                self._models.pop(model, None)
            case GetCage():
                return self._cage
            case Inspect(name):
                return read_record(read_metadata(descriptors[0], name))
            case CheckTemplate(name):
                source = read_metadata(descriptors[0], name).get(TEMPLATE_KEY)
                if source is not None:
                    with self._stage.during(Stage.TEMPLATE):
                        ChatTemplate(source, bos_token="", eos_token="")
            case Describe(name, verbose):
                with open(descriptors[1], "wb", closefd=False) as file:
                    write_description(read_metadata(descriptors[0], name), file, verbose=verbose)
            case OpenModel(name):
                metadata = read_metadata(descriptors[0], name)
                vocabulary = build_vocabulary(metadata)
                tokenizer = Tokenizer.from_blob(vocabulary)
                _write(descriptors[1], vocabulary)
                _write(descriptors[2], tokenizer.token_table())
                return _text_side(metadata, tokenizer)
        return None


class _AttachedModel:
    """What it takes to build a model's prompts."""

    def __init__(self, tokenizer: Tokenizer, template: str | None, stage: SharedStage) -> None:
        self.tokenizer = tokenizer
        self._source = template
        self._stage = stage
        self._compiled = lru_cache(maxsize=_MAX_TEMPLATES)(self._compile)

    def build_prompts(self, request: PromptRequest) -> list[Prompt]:
        """Raises PromptError, TemplateError."""
        with self._stage.during(Stage.TOKENIZING):
            source = None if request.raw else request.template or self._source
            template = None if source is None else self._compiled(source)
            return build_prompts(request, template, self.tokenizer)

    def encode_inputs(self, request: InputsRequest) -> list[list[int]]:
        """Raises PromptError."""
        with self._stage.during(Stage.TOKENIZING):
            return encode_inputs(request, self.tokenizer)

    def _compile(self, source: str) -> ChatTemplate:
        with self._stage.during(Stage.TEMPLATE):
            template = _StagedTemplate.with_tokens(source, self.tokenizer)
        template.stage = self._stage
        return template


class _StagedTemplate(ChatTemplate):
    """Says when it is at work."""

    stage: SharedStage

    def render(self, messages: Sequence[Message], **variables: Any) -> str:
        with self.stage.during(Stage.TEMPLATE):
            return super().render(messages, **variables)


def _write(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)


def _text_side(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> TextSide:
    source = template_source(metadata, tokenizer)
    is_usable = isinstance(source, str) and len(source) <= MAX_SOURCE
    return TextSide(
        vocab_size=tokenizer.vocab_size,
        end_of_generation=sorted(tokenizer.end_of_generation),
        template=source.encode(errors="replace").decode() if is_usable else None,
    )
