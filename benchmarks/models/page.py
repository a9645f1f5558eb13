"""docs/models.md"""

from __future__ import annotations

from collections.abc import Mapping

from puna.config.sizes import binary_size
from puna.models.measured import Measured

_INTRO = """\
# Models

Architectures that puna runs with its own engine. What is not listed runs on the
[second engine](second-engine.md), if there is one. `puna models` says the same of the models in your store.
Written by `python -m benchmarks.models`. {machine}.

- **oracle**: tests that compare log-probabilities or embeddings along random prompts with llama.cpp's,
  on random weights: F32 (the likeliest token always agrees, log-probabilities within 0.001) and
  quantized (98%), of all variants under the architecture's name.
- **batches**: tests that an answer's bits are the same alone and among others, in chunks, continued
  from cached blocks, drafted, preempted.
- **prefill**, **decode**: tokens per second over llama.cpp's, of {prompt} tokens (of an encoder: of a text
  of as many) and of one stream, in one run on the same threads. The model has random weights in the type
  shown, some tens of millions of parameters, and nearly no vocabulary: it is the layers that are compared.
- **KV per token**: what every further token takes in that model; behind it what windows and states take
  at most, whatever the length. (Of a model of yours: `puna models`.)

| architecture | tokenizer | oracle | batches | weights | prefill | decode | KV per token |
|---|---|---|---|---|---|---|---|
"""


def page(found: Mapping[str, Measured], machine: str, prompt_tokens: int) -> str:
    rows = [_row(name, one) for name, one in sorted(found.items())]
    return _INTRO.format(machine=machine, prompt=prompt_tokens) + "\n".join(rows) + "\n"


def _row(name: str, one: Measured) -> str:
    kv = binary_size(one.kv_bytes_per_token) if one.kv_bytes_per_token else "0"
    if one.fixed_bytes:
        kv = f"{kv} + {binary_size(one.fixed_bytes)}"
    cells = [
        f"`{name}`",
        one.tokenizers,
        _passed(one.oracle),
        _passed(one.batches),
        one.weight_type,
        _ratio(one.prefill),
        _ratio(one.decode),
        kv if one.prefill is not None else "",
    ]
    return f"| {' | '.join(cells)} |"


def _passed(counts: tuple[int, int]) -> str:
    passed, of = counts
    if not of:
        return "none"
    return str(of) if passed == of else f"**{passed} of {of}**"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
