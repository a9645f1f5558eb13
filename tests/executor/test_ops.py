"""Each op, on rows that are no multiple of any vector, gives what its formula says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import ProgramBuilder
from tests.executor import reference
from tests.executor.toy import Chunk, Runner, build, decoded, embedded, encoded, rows_of, write_gguf

pytestmark = pytest.mark.native

TOKENS = 40
WIDTH = 37


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> NDArray[np.float32]:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)


@pytest.fixture
def evaluate(tmp_path: Path, isa: str) -> Callable[..., NDArray[np.float32]]:
    """Runs `define(builder, *inputs)` with buffers that hold the given arrays, one token per row."""

    def run(
        inputs: list[NDArray[np.float32]],
        define: Callable[..., tuple[int, int]],
        tensors: dict | None = None,
        position: int = 0,
    ) -> NDArray[np.float32]:
        tables = {f"input{i}": x for i, x in enumerate(inputs)}
        file = write_gguf(tmp_path / "op.gguf", {**tables, **(tensors or {})})

        def whole(builder: ProgramBuilder) -> int:
            buffers = [embedded(builder, name, x.shape[1]) for name, x in tables.items()]
            return rows_of(builder, *define(builder, *buffers))

        runner = Runner(build(file, isa, whole))
        return runner.run([Chunk(range(len(inputs[0])), position=position)])

    return run


@pytest.mark.parametrize("group", [WIDTH, 111, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rms_norm(evaluate, group: int, dtype: type) -> None:
    x, weight = random(TOKENS, 111, scale=3), random(group).astype(dtype)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(111)
        b.op("RmsNorm", [x], [out], ["norm"], eps=1e-5)
        return out, 111

    expected = reference.rms_norm(x.astype(float), weight.astype(float), 1e-5, group)
    np.testing.assert_allclose(evaluate([x], define, {"norm": weight}), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("width", [WIDTH, 111, 5])
def test_layer_norm(evaluate, width: int, has_bias: bool) -> None:
    x, weight, bias = random(TOKENS, width, scale=3) + 7, random(width), random(width)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(width)
        b.op("LayerNorm", [x], [out], ["norm", "bias" if has_bias else None], eps=1e-5)
        return out, width

    exact = reference.layer_norm(x.astype(float), weight, bias if has_bias else 0 * bias, 1e-5)
    actual = evaluate([x], define, {"norm": weight, "bias": bias})
    np.testing.assert_allclose(actual, exact, rtol=1e-4, atol=1e-5)


def test_rms_norm_with_a_weight_for_each_group(evaluate) -> None:
    x, weight = random(TOKENS, 96), random(3, 16)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op("RmsNorm", [x], [x], ["norm"], eps=1e-6)
        return x, 96

    expected = reference.rms_norm(x.astype(float), np.ones(16), 1e-6, 16) * np.tile(weight.ravel(), 2)
    np.testing.assert_allclose(evaluate([x], define, {"norm": weight}), expected, rtol=1e-5, atol=1e-6)


def test_rms_norm_in_place(evaluate) -> None:
    x, weight = random(TOKENS, 64), random(16)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op("RmsNorm", [x], [x], ["norm"], eps=1e-6)
        return x, 64

    expected = reference.rms_norm(x.astype(float), weight.astype(float), 1e-6, 16)
    np.testing.assert_allclose(evaluate([x], define, {"norm": weight}), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu", "swiglu_oai", "silu_limited", "limited_silu"])
def test_glu(evaluate, activation: str) -> None:
    gate, up = random(TOKENS, WIDTH, scale=8), random(TOKENS, WIDTH, seed=1)

    def define(b: ProgramBuilder, gate: int, up: int) -> tuple[int, int]:
        out = b.buffer(WIDTH)
        b.op("Glu", [gate, up], [out], activation=activation, limit=0.5)
        return out, WIDTH

    expected = reference.gated(activation, gate.astype(float), up.astype(float), limit=0.5)
    np.testing.assert_allclose(evaluate([gate, up], define), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("function", ["silu", "gelu", "relu", "relu_squared", "sigmoid", "softplus"])
def test_activation(evaluate, function: str) -> None:
    x = random(TOKENS, WIDTH, scale=12)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op("Activation", [x], [x], function=function)
        return x, WIDTH

    expected = reference.activation(function, x.astype(float))
    np.testing.assert_allclose(evaluate([x], define), expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("size", [1, 37, 111])
def test_l2_norm(evaluate, size: int) -> None:
    x = random(TOKENS, 111, scale=3)
    x[0] = 0

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(111)
        b.op("L2Norm", [x], [out], size=size, eps=0.5)
        return out, 111

    expected = reference.l2_norm(x.astype(float), 0.5, size)
    np.testing.assert_allclose(evaluate([x], define), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tokens", [1, TOKENS])
@pytest.mark.parametrize(("begin", "size", "period"), [(64, 96, 256), (3, 5, 8), (0, 1, 256)])
def test_columns(evaluate, begin: int, size: int, period: int, tokens: int) -> None:
    """Of what another stage wrote, and of what an op of the same stage did."""
    x, width = random(tokens, 256), 256 // period * size

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        y, scaled, taken, both = b.buffer(256), b.buffer(256), b.buffer(width), b.buffer(width)
        b.op("Linear", [x], [y], ["one", None])
        b.op("Columns", [y], [taken], begin=begin, size=size, period=period)
        b.op("Scale", [y], [scaled], factor=2.0)
        b.op("Columns", [scaled], [both], begin=begin, size=size, period=period)
        b.op("Add", [both, taken], [both])
        return both, width

    expected = 3 * x.reshape(tokens, -1, period)[..., begin : begin + size].reshape(tokens, -1)
    actual = evaluate([x], define, {"one": np.eye(256, dtype=np.float32)})
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_binary(evaluate, op: str) -> None:
    a, b = random(TOKENS, WIDTH), random(TOKENS, WIDTH, seed=1)

    def define(builder: ProgramBuilder, x: int, y: int) -> tuple[int, int]:
        out = builder.buffer(WIDTH)
        builder.op(op, [x, y], [out])
        return out, WIDTH

    np.testing.assert_array_equal(evaluate([a, b], define), a + b if op == "Add" else a * b)


def test_what_exceeds_the_mean_by_some_deviations(evaluate) -> None:
    x = random(TOKENS, 111, scale=3) + 2

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(111)
        b.op("GaussianTopK", [x], [out], [], deviations=0.7)
        return out, 111

    exact = x.astype(float)
    least = exact.mean(1, keepdims=True) + 0.7 * exact.std(1, ddof=1, keepdims=True)
    np.testing.assert_allclose(evaluate([x], define), np.maximum(exact - least, 0), rtol=1e-5, atol=1e-5)


def test_groups_are_brought_to_a_magnitude(evaluate) -> None:
    x, like = random(TOKENS, 3 * WIDTH), random(TOKENS, WIDTH, scale=5)
    x[0, :WIDTH] = 0

    def define(b: ProgramBuilder, x: int, like: int) -> tuple[int, int]:
        out = b.buffer(3 * WIDTH)
        b.op("MatchMagnitude", [x, like], [out], [])
        return out, 3 * WIDTH

    groups = x.reshape(TOKENS, 3, WIDTH).astype(float)
    wanted = np.linalg.norm(like.astype(float), axis=1)[:, None, None]
    size = np.maximum(np.linalg.norm(groups, axis=2, keepdims=True), 1e-30)
    expected = (groups * (wanted / size)).reshape(TOKENS, -1)
    np.testing.assert_allclose(evaluate([x, like], define), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["AltUpPredict", "AltUpCorrect", "AltUpAddToOthers"])
def test_streams(evaluate, op: str) -> None:
    num_streams = 3
    x, y = random(TOKENS, num_streams * WIDTH), random(TOKENS, WIDTH, seed=1)
    weights = random(TOKENS, num_streams ** (2 if op == "AltUpPredict" else 1), seed=2)
    inputs = {"AltUpPredict": [x, weights], "AltUpCorrect": [x, y, weights], "AltUpAddToOthers": [x, y]}[op]

    def define(b: ProgramBuilder, *buffers: int) -> tuple[int, int]:
        out = b.buffer(num_streams * WIDTH)
        attributes = {"num_streams": num_streams} if op == "AltUpPredict" else {}
        b.op(op, list(buffers), [out], [], **attributes)
        return out, num_streams * WIDTH

    streams, one = x.reshape(TOKENS, num_streams, WIDTH).astype(float), y[:, None].astype(float)
    if op == "AltUpPredict":
        mixed = weights.reshape(TOKENS, num_streams, num_streams).astype(float) @ streams
        expected = streams + mixed
    elif op == "AltUpCorrect":
        expected = streams + (1 + weights.astype(float))[:, :, None] * (one - streams[:, :1])
    else:
        expected = streams + one * np.array([0, 1, 1])[None, :, None]
    np.testing.assert_allclose(evaluate(inputs, define), expected.reshape(TOKENS, -1), rtol=1e-5, atol=1e-5)


def test_a_tensor_of_one_value_multiplies_all(evaluate) -> None:
    x, factor = random(TOKENS, 111), random(1)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(111)
        b.op("MulVector", [x], [out], ["factor"])
        return out, 111

    np.testing.assert_array_equal(evaluate([x], define, {"factor": factor}), x * factor)


def test_one_column_multiplies_all(evaluate) -> None:
    x, factors = random(TOKENS, WIDTH), random(TOKENS, 1)

    def define(b: ProgramBuilder, x: int, factors: int) -> tuple[int, int]:
        out = b.buffer(WIDTH)
        b.op("Mul", [x, factors], [out])
        return out, WIDTH

    np.testing.assert_array_equal(evaluate([x, factors], define), x * factors)


@pytest.mark.parametrize("op", ["AddVector", "MulVector"])
@pytest.mark.parametrize("width", [WIDTH, 512])
def test_with_a_vector(evaluate, op: str, width: int) -> None:
    x, vector = random(TOKENS, width), random(width)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(width)
        b.op(op, [x], [out], ["vector"])
        return out, width

    expected = x + vector if op == "AddVector" else x * vector
    np.testing.assert_array_equal(evaluate([x], define, {"vector": vector}), expected)


def test_scale(evaluate) -> None:
    x = random(TOKENS, WIDTH)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op("Scale", [x], [x], factor=2.5)
        return x, WIDTH

    np.testing.assert_array_equal(evaluate([x], define), x * np.float32(2.5))


@pytest.mark.parametrize("cap", [0.5, 30.0])
def test_softcap(evaluate, cap: float) -> None:
    x = random(TOKENS, WIDTH, scale=10)
    x[0, :5] = [0, 1e-6, -1e-6, 500, -500]

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(WIDTH)
        b.op("Softcap", [x], [out], cap=cap)
        return out, WIDTH

    expected = cap * np.tanh(x.astype(float) / cap)
    np.testing.assert_allclose(evaluate([x], define), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("num_factors", [3, 37])
def test_mul_of_runs(evaluate, num_factors: int) -> None:
    x, factors = random(TOKENS, 111), random(TOKENS, num_factors)

    def define(b: ProgramBuilder, x: int, factors: int) -> tuple[int, int]:
        out = b.buffer(111)
        b.op("Mul", [x, factors], [out])
        return out, 111

    expected = x.reshape(TOKENS, num_factors, -1) * factors[:, :, None]
    np.testing.assert_array_equal(evaluate([x, factors], define), expected.reshape(TOKENS, 111))


@pytest.mark.parametrize("scaled_first", [False, True])
def test_repeat(evaluate, scaled_first: bool) -> None:
    """Of what another stage wrote, and of what an op of the same stage did."""
    x = random(TOKENS, 37)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(5 * 37)
        if scaled_first:
            b.op("Scale", [x], [x], factor=2.0)
        b.op("Repeat", [x], [out], times=5)
        return out, 5 * 37

    np.testing.assert_array_equal(evaluate([x], define), np.tile(x * (2 if scaled_first else 1), (1, 5)))


def test_clamp(evaluate) -> None:
    x = random(TOKENS, WIDTH)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op("Clamp", [x], [x], limit=0.75)
        return x, WIDTH

    np.testing.assert_array_equal(evaluate([x], define), np.clip(x, -0.75, 0.75))


def test_xielu(evaluate) -> None:
    x = random(TOKENS, WIDTH, scale=3)
    x[0, :5] = [0, 1e-6, -1e-6, 50, -50]

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op("Xielu", [x], [x], positive=0.8, negative=1.3, beta=0.5, eps=-1e-6)
        return x, WIDTH

    y = x.astype(float)
    bent = np.where(y > 0, 0.8 * y**2, 1.3 * (np.expm1(np.minimum(y, -1e-6)) - y))
    np.testing.assert_allclose(evaluate([x], define), 0.5 * y + bent, rtol=1e-5, atol=1e-6)


def test_standardize(evaluate) -> None:
    x = random(TOKENS, WIDTH) + np.float32(3)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(WIDTH)
        b.op("Standardize", [x], [out], eps=1e-5)
        return out, WIDTH

    expected = reference.layer_norm(x.astype(float), np.ones(WIDTH), np.zeros(WIDTH), 1e-5)
    np.testing.assert_allclose(evaluate([x], define), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("style", ["normal", "neox"])
@pytest.mark.parametrize(("head_dim", "half"), [(64, 32), (80, 40), (80, 16), (26, 11), (2, 1)])
def test_rope(evaluate, style: str, head_dim: int, half: int) -> None:
    x = random(TOKENS, 3 * head_dim)
    inv_freq = (10000.0 ** -(np.arange(half) / half)).astype(np.float32)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op(
            "Rope", [x], [x], head_dim=head_dim, style=style, inv_freq=inv_freq, scale=1.25, begin=0, offset=0
        )
        return x, 3 * head_dim

    positions = 30000.0 + np.arange(TOKENS)
    expected = reference.rope(x.astype(float), positions, head_dim, style, inv_freq.astype(float), 1.25)
    np.testing.assert_allclose(evaluate([x], define, position=30000), expected, rtol=1e-5, atol=1e-5)


def test_only_the_end_of_each_head_is_rotated(evaluate) -> None:
    x, inv_freq = random(TOKENS, 3 * 88), (100.0 ** -np.linspace(0, 1, 12)).astype(np.float32)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        b.op("Rope", [x], [x], head_dim=88, style="normal", inv_freq=inv_freq, scale=1.0, begin=64, offset=0)
        return x, 3 * 88

    positions = np.arange(TOKENS).astype(float)
    expected = reference.rope(x.astype(float), positions, 88, "normal", inv_freq.astype(float), 1.0, begin=64)
    np.testing.assert_allclose(evaluate([x], define), expected, rtol=1e-5, atol=1e-5)


def test_a_temperature_grows_with_the_position(evaluate) -> None:
    x = random(TOKENS, WIDTH)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(WIDTH)
        b.op("Temperature", [x], [out], scale=0.3, length=2, offset=1)
        return out, WIDTH

    factors = 1.0 + 0.3 * np.log(1.0 + (8 + np.arange(TOKENS)) // 2)
    np.testing.assert_allclose(evaluate([x], define, position=7), x * factors[:, None], rtol=1e-6)


def test_columns_are_taken_out_and_put_together(evaluate) -> None:
    x, y = random(TOKENS, 5 * 7), random(TOKENS, 5 * 4, seed=1)

    def define(b: ProgramBuilder, x: int, y: int) -> tuple[int, int]:
        some, out = b.buffer(5 * 3), b.buffer(5 * 7)
        b.op("Columns", [x], [some], begin=2, size=3, period=7)
        b.op("Concat", [some, y], [out], num_runs=5)
        return out, 5 * 7

    runs = x.reshape(TOKENS, 5, 7)[..., 2:5], y.reshape(TOKENS, 5, 4)
    expected = np.concatenate(runs, axis=-1).reshape(TOKENS, -1)
    np.testing.assert_array_equal(evaluate([x, y], define), expected)


@pytest.mark.parametrize("type_name", ["F32", "F16", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("tokens", [1, 7, TOKENS])
def test_each_head_has_a_matrix_of_its_own(evaluate, type_name: str, tokens: int) -> None:
    heads, rows, columns = 3, 50, 96
    x = random(tokens, heads * columns)
    weight = encoded(random(heads, rows, columns, scale=0.1), type_name)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        out = b.buffer(heads * rows)
        b.op("HeadLinear", [x], [out], ["weight"], num_heads=heads)
        return out, heads * rows

    matrices = decoded(weight).astype(float)
    expected = np.einsum("thc,hrc->thr", x.reshape(tokens, heads, columns), matrices).reshape(tokens, -1)
    tolerance = 1e-5 if type_name in ("F32", "F16") else 0.02
    actual = evaluate([x], define, {"weight": weight})
    np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("type_name", ["F32", "F16", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("tokens", [1, 3, TOKENS])
def test_linear_with_several_weights_and_biases(evaluate, type_name: str, tokens: int) -> None:
    x = random(tokens, 96)
    weights = {"a": encoded(random(50, 96, scale=0.1), type_name), "b": encoded(random(7, 96), type_name)}
    bias = random(7)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        first, second, product = b.buffer(50), b.buffer(7), b.buffer(7)
        b.op("Linear", [x], [first, second], ["a", None, "b", "bias"])
        b.op("Linear", [first, second], [product], ["c", None])
        return product, 7

    c = random(7, 50, scale=0.1)
    actual = evaluate([x], define, {**weights, "bias": bias, "c": c})
    a, b = (decoded(weights[name]).astype(float) for name in "ab")
    expected = (x @ a.T) @ c.T.astype(float) + x @ b.T + bias
    # 8-bit activations of a quantized weight's input cost about half a percent.
    tolerance = 1e-5 if type_name in ("F32", "F16") else 0.02
    np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())


def test_linear_adds_the_residual_in_place(evaluate) -> None:
    x, weight = random(TOKENS, 64), random(64, 64)

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        y = b.buffer(64)
        b.op("Scale", [x], [y], factor=3.0)
        b.op("Linear", [x, y], [y], ["weight", None])
        return y, 64

    expected = 3 * x.astype(float) + x @ weight.T.astype(float)
    np.testing.assert_allclose(evaluate([x], define, {"weight": weight}), expected, rtol=1e-4, atol=1e-4)


def test_quantized_input_is_renewed_when_its_source_changes(evaluate) -> None:
    """The 8-bit copy of a buffer belongs to the buffer's value, not to the buffer."""
    x, weight = random(TOKENS, 64), encoded(random(64, 64), "Q8_0")

    def define(b: ProgramBuilder, x: int) -> tuple[int, int]:
        first, second = b.buffer(64), b.buffer(64)
        b.op("Linear", [x], [first], ["weight", None])
        b.op("Scale", [x], [x], factor=-1.0)
        b.op("Linear", [x, first], [second], ["weight", None])
        return second, 64

    np.testing.assert_allclose(evaluate([x], define, {"weight": weight}), 0, atol=1e-4)


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16", "Q8_0", "Q5_1"])
def test_embed_and_rows(tmp_path: Path, isa: str, type_name: str) -> None:
    table = encoded(random(9, 64), type_name)
    file = write_gguf(tmp_path / "embed.gguf", {"table": table})
    runner = Runner(build(file, isa, lambda b: rows_of(b, embedded(b, "table", 64), 64)))
    actual = runner.run([Chunk([8, 0, 3, 3]), Chunk([5])], rows=[4, 0, 2])
    np.testing.assert_array_equal(actual, decoded(table)[[5, 8, 3]])
