"""Experts give what their formula says, whatever else is in the step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import NativeError, Program, ProgramBuilder
from tests.executor import reference
from tests.executor.toy import Chunk, Encoded, Runner, build, embedded, encoded, rows_of, write_gguf
from tests.kernels.weights import random_weight, values

pytestmark = pytest.mark.native

EXPERTS, TOKENS = 8, 40
BIASES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")

Tensors = dict[str, NDArray | Encoded]


@dataclass(frozen=True)
class Layer:
    """A Moe op and what its tensors are."""

    width: int = 35
    hidden: int = 70
    num_used: int = 3
    scores: str = "softmax"
    normalized: bool = True
    scale: float = 1.0
    activation: str = "silu"
    limit: float = 0.0
    groups: tuple[int, int] = (1, 1)
    fused: bool = False
    gated: bool = True
    biased: bool = False
    choice_biased: bool = False
    scaled: bool = False
    weighs_input: bool = False
    types: tuple[str, str] = ("F32", "F32")  # of gate and up, of down

    def tensors(self) -> Tensors:
        gate_up, down = self.types
        tensors: Tensors = {
            "ffn_gate_exps": weights(gate_up, EXPERTS, self.hidden, self.width, seed=1),
            "ffn_up_exps": weights(gate_up, EXPERTS, self.hidden, self.width, seed=2),
            "ffn_down_exps": weights(down, EXPERTS, self.width, self.hidden, seed=3),
        }
        if self.biased:
            for name in BIASES:
                rows = self.width if "down" in name else self.hidden
                tensors[f"{name}.bias"] = random(EXPERTS, rows, seed=len(name))
        if self.choice_biased:
            tensors["exp_probs_b.bias"] = random(EXPERTS, seed=9)
        if self.scaled:
            tensors["ffn_down_exps.scale"] = random(EXPERTS, seed=10)
        return _fused(tensors) if self.fused else tensors

    def define(self, b: ProgramBuilder, x: int, logits: int, known: Mapping[str, object]) -> int:
        weights = ["ffn_gate_up_exps", None] if self.fused else ["ffn_gate_exps", "ffn_up_exps"]
        if not self.gated:
            weights = ["ffn_up_exps", None]
        names = [*weights, "ffn_down_exps"]
        names += [*(f"{name}.bias" for name in (*names, "exp_probs_b")), "ffn_down_exps.scale"]
        tensors = [name if name in known else None for name in names]
        out = b.buffer(self.width)
        keys = ("num_used", "scores", "normalized", "scale", "weighs_input")
        attributes = {key: getattr(self, key) for key in keys}
        sizes = {"gated": int(self.gated), "num_groups": self.groups[0], "num_groups_used": self.groups[1]}
        b.op(
            "Moe",
            [x, logits],
            [out],
            tensors,
            activation=self.activation,
            limit=self.limit,
            **attributes,
            **sizes,
        )
        return out

    def expected(self, tensors: Tensors, x: NDArray[np.float32], logits: NDArray[np.float32]) -> NDArray:
        """In float64."""
        w = {name: decoded(tensor) for name, tensor in tensors.items()}
        experts, weights = reference.choose_experts(
            logits.astype(float),
            self.num_used,
            self.scores,
            normalized=self.normalized,
            scale=self.scale,
            groups=self.groups,
            choice_bias=w.get("exp_probs_b.bias"),
        )
        if self.scaled:
            weights = weights * w["ffn_down_exps.scale"][experts]
        out = np.zeros(x.shape)
        for t, e, weight in zip(
            np.repeat(np.arange(len(x)), self.num_used), experts.ravel(), weights.ravel(), strict=True
        ):

            def product(name: str, vector: NDArray, e: int = e) -> NDArray:
                return w[name][e] @ vector + (w[f"{name}.bias"][e] if self.biased else 0)

            before, behind = (weight, 1) if self.weighs_input else (1, weight)
            gate, up = (product(f"ffn_{part}_exps", before * x[t]) for part in ("gate", "up"))
            f = self.activation
            hidden = reference.gated(f, gate, up, self.limit) if self.gated else reference.activation(f, up)
            out[t] += behind * product("ffn_down_exps", hidden)
        return out


@dataclass
class Experts:
    """A layer over the rows of two tables, which tokens name."""

    layer: Layer
    path: Path
    isa: str
    num_tokens: int = TOKENS
    logits: NDArray[np.float32] | None = None
    x: NDArray[np.float32] = field(init=False)
    tensors: Tensors = field(init=False)

    def __post_init__(self) -> None:
        self.x = random(self.num_tokens, self.layer.width)
        if self.logits is None:
            self.logits = random(self.num_tokens, EXPERTS, seed=4) * 2
        self.tensors = self.layer.tensors()

    def program(self) -> Program:
        assert self.logits is not None
        file = write_gguf(self.path / "experts.gguf", {"x": self.x, "logits": self.logits, **self.tensors})

        def define(b: ProgramBuilder) -> int:
            x, logits = embedded(b, "x", self.layer.width), embedded(b, "logits", EXPERTS)
            return rows_of(b, self.layer.define(b, x, logits, self.tensors), self.layer.width)

        return build(file, self.isa, define)

    def run(self) -> NDArray[np.float32]:
        return Runner(self.program()).run([Chunk(range(self.num_tokens))])

    def expected(self) -> NDArray[np.float64]:
        assert self.logits is not None
        return self.layer.expected(replace(self.layer, fused=False).tensors(), self.x, self.logits)


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def weights(type_name: str, *shape: int, seed: int) -> NDArray | Encoded:
    if not type_name.endswith("_K"):
        matrices = random(*shape, seed=seed) / np.float32(np.sqrt(shape[-1]))
        return matrices if type_name == "F32" else encoded(matrices, type_name)
    packed = random_weight(type_name, shape[0] * shape[1], shape[2], seed=seed, largest=0.002)
    return Encoded(packed.reshape(*shape[:2], -1), gguf.GGMLQuantizationType[type_name])


def decoded(tensor: NDArray | Encoded) -> NDArray[np.float64]:
    if isinstance(tensor, Encoded):
        rows = values(tensor.type.name, tensor.data.reshape(-1, tensor.data.shape[-1]))
        return rows.reshape(*tensor.data.shape[:2], -1)
    return tensor.astype(float)


def _fused(tensors: Tensors) -> Tensors:
    """Gate and up in one tensor."""
    joined = dict(tensors)
    for suffix in ("", ".bias"):
        gate, up = (joined.pop(f"ffn_{part}_exps{suffix}", None) for part in ("gate", "up"))
        if isinstance(gate, Encoded) and isinstance(up, Encoded):
            joined["ffn_gate_up_exps"] = Encoded(np.concatenate([gate.data, up.data], 1), gate.type)
        elif gate is not None and up is not None:
            joined[f"ffn_gate_up_exps{suffix}"] = np.concatenate([gate, up], 1)
    return joined


LAYERS = {
    "plain": Layer(),
    "fused": Layer(fused=True, normalized=False),
    "one used": Layer(num_used=1),
    "all used": Layer(num_used=EXPERTS, activation="gelu"),
    "gpt-oss": Layer(scores="chosen_softmax", normalized=False, activation="swiglu_oai", biased=True),
    "deepseek": Layer(scores="sigmoid", scale=2.5, choice_biased=True, groups=(4, 2)),
    "limited": Layer(activation="silu_limited", limit=0.3),
    "gemma4": Layer(fused=True, activation="gelu", scaled=True),
    "llama4": Layer(scores="sigmoid", normalized=False, weighs_input=True),
    "fused biases": Layer(fused=True, biased=True),
    "without a gate": Layer(gated=False, biased=True, activation="relu_squared"),
}

QUANTIZED = {
    "F16": Layer(96, 64, types=("F16", "F16")),
    "Q8_0": Layer(96, 64, types=("Q8_0", "Q8_0"), fused=True),
    "MXFP4": Layer(96, 64, types=("MXFP4", "MXFP4"), biased=True, activation="swiglu_oai"),
    "K-quants": Layer(256, 256, types=("Q4_K", "Q6_K")),
    "Q5_0 without a gate": Layer(96, 64, types=("Q5_0", "Q5_0"), gated=False, activation="relu_squared"),
    "mixed": Layer(256, 256, types=("Q4_0", "F32"), biased=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_formula(tmp_path: Path, isa: str, name: str) -> None:
    experts = Experts(LAYERS[name], tmp_path, isa)
    np.testing.assert_allclose(experts.run(), experts.expected(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", QUANTIZED)
def test_any_quantization(tmp_path: Path, isa: str, name: str) -> None:
    experts = Experts(QUANTIZED[name], tmp_path, isa)
    expected = experts.expected()
    # 8-bit activations cost about half a percent, twice.
    np.testing.assert_allclose(experts.run(), expected, atol=0.02 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["plain", "K-quants", "MXFP4"])
def test_a_token_gives_the_same_whatever_else_is_in_the_step(tmp_path: Path, isa: str, name: str) -> None:
    """With more tokens than the experts' kernels take in one pass, on any number of threads."""
    tokens = 600
    layer = {**LAYERS, **QUANTIZED}[name]
    runner = Runner(Experts(layer, tmp_path, isa, num_tokens=tokens).program(), num_threads=3)
    together = runner.run([Chunk(range(tokens))])
    for threads in (1, 2):
        np.testing.assert_array_equal(runner.run([Chunk(range(tokens))], num_threads=threads), together)
    for token in range(0, tokens, 97):
        np.testing.assert_array_equal(runner.run([Chunk([token])])[0], together[token])
    for begin, end in ((0, 7), (7, 100), (100, tokens)):
        np.testing.assert_array_equal(runner.run([Chunk(range(begin, end))]), together[begin:end])


def test_experts_that_have_to_be_read_from_the_file_give_the_same(tmp_path: Path) -> None:
    experts = Experts(QUANTIZED["K-quants"], tmp_path, "auto")
    runner = Runner(experts.program())
    in_memory = runner.run([Chunk(range(TOKENS))])
    for _ in range(2):  # pages are missing; they are, and what is chosen is read ahead
        runner.program.release_memory()
        with (tmp_path / "experts.gguf").open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        np.testing.assert_array_equal(runner.run([Chunk(range(TOKENS))]), in_memory)


def test_ties_go_by_index(tmp_path: Path, isa: str) -> None:
    logits = np.zeros((TOKENS, EXPERTS), np.float32)
    logits[:, 5] = logits[:, 7] = 1
    experts = Experts(Layer(), tmp_path, isa, logits=logits)  # 5, 7, 0
    np.testing.assert_allclose(experts.run(), experts.expected(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["plain", "deepseek"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_stay_with_their_token(
    tmp_path: Path, isa: str, name: str, bad: float
) -> None:
    experts = Experts(LAYERS[name], tmp_path, isa)
    sound = experts.run()
    assert experts.logits is not None
    experts.logits[3] = bad
    experts.logits[9, 2:5] = bad
    others = np.delete(np.arange(TOKENS), [3, 9])
    np.testing.assert_array_equal(experts.run()[others], sound[others])


def test_weights_of_next_to_nothing_are_not_blown_up(tmp_path: Path, isa: str) -> None:
    logits = np.full((TOKENS, EXPERTS), -30, np.float32)
    experts = Experts(Layer(scores="sigmoid"), tmp_path, isa, logits=logits)
    assert np.abs(experts.run()).max() < 1e-6


IMPOSSIBLE = {
    "cannot be chosen from 1 groups": {"groups": (4, 1)},
    "groups of several": {"groups": (8, 8)},
    "Moe.num_used": {"num_used": EXPERTS + 1},
    "unknown scores": {"scores": "tanh"},
    "unknown activation": {"activation": "tanh"},
    "num_groups_used": {"groups": (2, 3)},
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_what_cannot_be_is_an_error(tmp_path: Path, message: str) -> None:
    with pytest.raises(NativeError, match=message):
        Experts(replace(Layer(), **IMPOSSIBLE[message]), tmp_path, "auto").program()


@pytest.mark.parametrize("name", ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_down_exps.bias"])
def test_tensors_of_other_shapes_are_errors(tmp_path: Path, name: str) -> None:
    experts = Experts(Layer(biased=True), tmp_path, "auto")
    tensor = experts.tensors[name]
    assert isinstance(tensor, np.ndarray)
    experts.tensors[name] = tensor[:-1]
    with pytest.raises(NativeError, match=name):
        experts.program()


def test_biases_lie_expert_by_expert(tmp_path: Path) -> None:
    experts = Experts(Layer(biased=True), tmp_path, "auto")
    bias = experts.tensors["ffn_up_exps.bias"]
    assert isinstance(bias, np.ndarray)
    experts.tensors["ffn_up_exps.bias"] = np.ascontiguousarray(bias.T)
    with pytest.raises(NativeError, match=r"ffn_up_exps\.bias"):
        experts.program()
