"""A directory of safetensors, configuration and tokenizer to GGUF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from puna._native import ThreadPool
from puna.convert.job import Report
from puna.convert.models import config as model_config
from puna.convert.models.config import Config
from puna.convert.models.families import family_of
from puna.convert.models.hyperparameters import hyperparameters
from puna.convert.models.pooling import pooling_values
from puna.convert.output import write_model
from puna.convert.parts.prediction_heads import num_kept_heads, with_numbered_head
from puna.convert.plan import plan_model
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.quantization import ModelFacts, choose_types, quantization_named
from puna.convert.sources.files import Files
from puna.convert.sources.mxfp4 import TYPE as MXFP4
from puna.convert.sources.shards import read_tensors
from puna.convert.types import most_frequent, source_types
from puna.convert.vocabularies.choice import GENERATION, vocabulary_values
from puna.gguf.file_type import FILE_TYPES
from puna.gguf.writer import GgufValue, NewTensor, float32, int32, string, uint32

_EMBEDDING = "token_embd.weight"
_MAX_TOP_K = 1 << 30
_SAMPLING = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def convert_safetensors(
    files: Mapping[str, int],
    output: int,
    quantize: str,
    report: Report,
    pool: ThreadPool,
) -> None:
    """files: of the directory, by name. quantize: of QUANTIZATIONS, in any case; empty: weights stay what
    they are. Raises ConversionError, OSError.
    """
    given = Files(files)
    model = plan_safetensors(given, quantize)
    write_model(given, output, model.metadata, model.tensors, model.types, report, pool)


class PlannedModel(NamedTuple):
    """What a GGUF file of the model has."""

    metadata: dict[str, GgufValue]
    tensors: list[PlannedTensor]
    types: dict[str, str]
    """Of tensors, by name."""


def plan_safetensors(given: Files, quantize: str) -> PlannedModel:
    """As convert_safetensors() would write it. Raises ConversionError."""
    config = Config(given.object(model_config.NAME))
    family = family_of(config)
    config = config.with_defaults(family.defaults)
    sources = with_numbered_head(family, config, read_tensors(given))
    planned = [*plan_model(family, config, sources).values()]
    size = next((tensor.shape[0] for tensor in planned if tensor.name == _EMBEDDING), 0)
    metadata = {
        "general.architecture": string(family.architecture),
        "general.type": string("model"),
        "general.quantization_version": uint32(2),
        **_sampling(given),
        **hyperparameters(family, config, num_kept_heads(family, config, sources)),
        f"{family.architecture}.vocab_size": uint32(size),
        **(pooling_values(given, config, family) if family.is_encoder else {}),
        **vocabulary_values(given, config, family, size),
    }
    types, name = _types(planned, metadata, quantize)
    metadata["general.file_type"] = uint32(FILE_TYPES["MXFP4_MOE" if name == MXFP4 else name])
    return PlannedModel(metadata, planned, types)


def _types(
    planned: Sequence[PlannedTensor], metadata: Mapping[str, GgufValue], quantize: str
) -> tuple[dict[str, str], str]:
    """Of each tensor, by name, and of most weights. Raises ConversionError."""
    types = source_types(planned)
    if not quantize:
        return types, most_frequent(planned, types)
    quantization = quantization_named(quantize)
    tensors = [NewTensor(tensor.name, types[tensor.name], tensor.shape[::-1]) for tensor in planned]
    return choose_types(ModelFacts.of(metadata), tensors, quantization), quantization


def _sampling(files: Files) -> dict[str, GgufValue]:
    """What generation_config.json recommends."""
    config = Config(files.object(GENERATION))
    values = {name: config.number(name) for name in _SAMPLING if config.has(name)}
    return {
        f"general.sampling.{_SAMPLING[name]}": int32(max(-1, min(int(value), _MAX_TOP_K)))
        if name == "top_k"
        else float32(value)
        for name, value in values.items()
    }
