"""What a model needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from puna.backends.base import BLOCK_TOKENS, ModelInfo, ModelLoadError
from puna.cli.doctor.findings import Finding
from puna.cli.models.import_gguf import is_path
from puna.cli.models.inspection import growing_bytes, inspect_model, server_instead, settled_bytes
from puna.config.memory import available_bytes, default_kv_limit_bytes
from puna.config.settings import Settings
from puna.config.sizes import binary_size
from puna.gguf import GgufError, GgufFile
from puna.local import find_model
from puna.registry import RegistryError

_AREA = "Model"
_SHOWN_TOKENS = 1024


def model_findings(model: str, settings: Settings) -> Iterator[Finding]:
    """Of a name in the store or a GGUF file, which is opened here, in this process, as `bench` does it."""
    try:
        path, _, _ = find_model(Path(model).expanduser() if is_path(model) else model)
        with GgufFile(path) as file:
            types = sorted({tensor.type for tensor in file.tensors.values()})
        info = inspect_model(path, settings)
    except ModelLoadError as error:
        yield _not_native(model, error, settings)
        return
    except (RegistryError, GgufError) as error:
        yield Finding(area=_AREA, name=model, text=str(error), level="error")
        return
    yield Finding(area=_AREA, name="architecture", text=f"{info.architecture}, {info.num_layers} layers")
    yield Finding(area=_AREA, name="quantizations", text=", ".join(types))
    yield Finding(area=_AREA, name="context", text=f"{info.context_length:,} tokens")
    yield _weights(info, settings)
    yield from _kv(info, settings)


def _not_native(model: str, error: ModelLoadError, settings: Settings) -> Finding:
    if (server := server_instead(error, settings)) is None:
        return Finding(area=_AREA, name=model, text=str(error), level="error")
    advice = f"llama.cpp's server is asked to run it: {server.description}"
    return Finding(area=_AREA, name=model, text=str(error), level="warning", advice=advice)


def _weights(info: ModelInfo, settings: Settings) -> Finding:
    limit = settings.memory_limit_bytes or available_bytes()
    text = f"{binary_size(info.weight_bytes)}, and {binary_size(info.scratch_bytes)} to compute with"
    if info.fixed_bytes <= limit:
        return Finding(area=_AREA, name="weights", text=f"{text}: fit into {binary_size(limit)}")
    if info.least_fixed_bytes <= limit:
        advice = "experts that are not in memory are read from the file when they are chosen"
        text = f"{text}: more than the {binary_size(limit)} there are"
        return Finding(area=_AREA, name="weights", text=text, level="warning", advice=advice)
    text = f"{text}: do not fit into {binary_size(limit)}"
    return Finding(area=_AREA, name="weights", text=text, level="error", advice="a smaller quantization may")


def _kv(info: ModelInfo, settings: Settings) -> Iterator[Finding]:
    growing, fixed = growing_bytes(info), settled_bytes(info)
    if not growing and not fixed:
        yield Finding(area=_AREA, name="KV memory", text="none: texts are read whole")
        return
    per_shown = growing * _SHOWN_TOKENS // BLOCK_TOKENS
    text = f"{binary_size(per_shown)} per 1,024 tokens" + (
        f", and up to {binary_size(fixed)} of windows and states" if fixed else ""
    )
    yield Finding(area=_AREA, name="KV memory", text=f"{text} ({info.kv_type})")
    limit = settings.kv_limit_bytes or default_kv_limit_bytes()
    most = info.context_length if not growing else max(limit - fixed, 0) // growing * BLOCK_TOKENS
    if most >= info.context_length:
        whole = fixed + growing * -(-info.context_length // BLOCK_TOKENS)
        text = f"a whole context takes {binary_size(whole)} of {binary_size(limit)}"
        yield Finding(area=_AREA, name="KV budget", text=text)
        return
    text = f"{most:,} of its {info.context_length:,} tokens fit into {binary_size(limit)}"
    advice = "OLLAMA_KV_CACHE_TYPE=q8_0 halves what a token takes" if info.kv_type == "f16" else ""
    yield Finding(area=_AREA, name="KV budget", text=text, level="warning", advice=advice)
