"""What a text worker does when it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from puna.chat.embedding_inputs import InputsRequest, encode_inputs
from puna.chat.prompt import Prompt, PromptRequest
from puna.chat.prompt_building import Rendering, build_prompts
from puna.chat.ranking_inputs import PairsRequest, encode_pairs
from puna.chat.templates.choice import AnyTemplate, choose
from puna.chat.templates.go.template import GoChatTemplate
from puna.chat.templates.model_templates import ModelTemplates
from puna.chat.templates.template import MAX_SOURCE
from puna.gguf import read_metadata
from puna.tokenizer import Tokenizer, TokenizerError, build_stand_in, build_vocabulary, unknown_part
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
    EncodePairs,
    GetCage,
    Inspect,
    OpenModel,
    TextSide,
    Tokenize,
    ToTextWorker,
)
from puna.worker.text.reading import TEMPLATE_KEY, fill_in_tokens, read_record
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
            case EncodePairs(model, request):
                return self._models[model].encode_pairs(request)
            case Tokenize(model, text, add_special, parse_special):
                with self._stage.during(Stage.TOKENIZING):
                    tokenizer = self._models[model].tokenizer
                    return tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
            case Detokenize(model, tokens):
                with self._stage.during(Stage.TOKENIZING):
                    return self._models[model].tokenizer.decode(tokens)
            case Attach():
                tokenizer = Tokenizer.from_descriptor(descriptors[0])
                self._models[message.model] = _AttachedModel(tokenizer, message, self._stage)
            case Detach(model):
                self._models.pop(model, None)
            case GetCage():
                return self._cage
            case Inspect(name, templates):
                return read_record(read_metadata(descriptors[0], name), templates)
            case CheckTemplate(name, templates):
                source = read_metadata(descriptors[0], name).get(TEMPLATE_KEY) if descriptors else ""
                with self._stage.during(Stage.TEMPLATE):
                    choose(source, templates).check()
            case Describe(name, verbose, with_template, basename, is_projector):
                metadata = read_metadata(descriptors[0], name)
                with open(descriptors[1], "wb", closefd=False) as file:
                    write_description(
                        metadata,
                        file,
                        verbose=verbose,
                        with_template=with_template,
                        basename=basename,
                        is_projector=is_projector,
                    )
            case OpenModel(name):
                metadata = read_metadata(descriptors[0], name)
                vocabulary, is_stand_in = _vocabulary(metadata)
                tokenizer = Tokenizer.from_blob(vocabulary)
                _write(descriptors[1], vocabulary)
                _write(descriptors[2], tokenizer.token_table())
                return _text_side(metadata, tokenizer, is_stand_in=is_stand_in)
        return None


class _AttachedModel:
    """What it takes to build a model's prompts."""

    def __init__(self, tokenizer: Tokenizer, attached: Attach, stage: SharedStage) -> None:
        self.tokenizer = tokenizer
        self._attached = attached
        self._stage = stage
        self._compiled = lru_cache(maxsize=_MAX_TEMPLATES)(self._compile)
        self._given = lru_cache(maxsize=_MAX_TEMPLATES)(self._parse)

    def build_prompts(self, request: PromptRequest) -> list[Prompt]:
        """Raises PromptError, TemplateError."""
        with self._stage.during(Stage.TOKENIZING):
            template = None if request.raw else self._compiled(request.templates)
            override = self._given(request.template) if request.template else None
            filler = override or template
            rendering = Rendering(
                override=override,
                filler=filler if isinstance(filler, GoChatTemplate) and filler.fills_in else None,
                fill_in=self._attached.fill_in,
                at_work=partial(self._stage.during, Stage.TEMPLATE),
            )
            return build_prompts(request, template, self.tokenizer, rendering)

    def encode_inputs(self, request: InputsRequest) -> list[list[int]]:
        """Raises PromptError."""
        with self._stage.during(Stage.TOKENIZING):
            return encode_inputs(request, self.tokenizer)

    def encode_pairs(self, request: PairsRequest) -> list[list[int]]:
        """Raises PromptError."""
        with self._stage.during(Stage.TOKENIZING):
            return encode_pairs(request, self.tokenizer, self._attached.rank_template)

    def _compile(self, templates: ModelTemplates) -> AnyTemplate | None:
        with self._stage.during(Stage.TEMPLATE):
            return choose(self._attached.template, templates).compiled(self.tokenizer)

    def _parse(self, source: str) -> GoChatTemplate:
        with self._stage.during(Stage.TEMPLATE):
            return GoChatTemplate(source)


def _write(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)


def _vocabulary(metadata: Mapping[str, Any]) -> tuple[bytes, bool]:
    """And whether it is only a stand-in. Raises TokenizerError."""
    try:
        return build_vocabulary(metadata), False
    except TokenizerError:
        if not unknown_part(metadata):
            raise
        return build_stand_in(metadata), True


def _text_side(metadata: Mapping[str, Any], tokenizer: Tokenizer, *, is_stand_in: bool) -> TextSide:
    fill_in = fill_in_tokens(metadata)
    return TextSide(
        vocab_size=tokenizer.vocab_size,
        end_of_generation=sorted(tokenizer.end_of_generation),
        unknown=unknown_part(metadata),
        is_stand_in=is_stand_in,
        template=_usable(metadata.get(TEMPLATE_KEY)),
        fill_in=fill_in if max(fill_in, default=0) < tokenizer.vocab_size else [],
        rank_template=_usable(metadata.get(f"{TEMPLATE_KEY}.rerank")),
    )


def _usable(source: Any) -> str | None:
    if not isinstance(source, str) or len(source) > MAX_SOURCE:
        return None
    return source.encode(errors="replace").decode()
