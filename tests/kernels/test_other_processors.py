"""Kernels of aarch64, cross-compiled and run under an emulator, give what exact arithmetic gives."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as QuantizationType
from numpy.typing import NDArray

from tests.executor import reference
from tests.executor.toy import Encoded, write_gguf
from tests.kernels.test_linear import rounded_activations
from tests.kernels.weights import FLOAT_TYPES, TYPES, columns, random_weight, values

REPOSITORY = Path(__file__).parents[2]
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
TOKENS, ROWS = 9, 37
KNOWN_TYPES = [name for name in TYPES if name in QuantizationType.__members__]  # others cannot be written
ISAS = ("neon", "neon_dotprod", "neon_i8mm", "portable")

pytestmark = [
    pytest.mark.native,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not all(map(shutil.which, (COMPILER, EMULATOR, "cmake"))),
        reason=f"needs {COMPILER}, {EMULATOR} and cmake",
    ),
]


@dataclass
class Script:
    """Programs for native/tests/kernel_driver.cpp. Results are collected in the order of the runs."""

    lines: list[str] = field(default_factory=list)
    shapes: list[tuple[int, int]] = field(default_factory=list)

    def add(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        tensors: Sequence[str] = (),
        **attributes: object,
    ) -> None:
        """tensors: "" for none."""
        lists = ("".join(f"{item}," for item in items) or "-" for items in (inputs, outputs, tensors))
        self.add("op", name, *lists, *(f"{key}={value}" for key, value in attributes.items()))

    def attention(
        self, heads: int, kv_heads: int, dim: int, *, softcap: float = 0.0, window: int = 0
    ) -> None:
        """Of q, k and v in the buffers 0, 1 and 2, by way of 3; the result is 4."""
        sizes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim, "alibi": 0.0, "chunk": 0}
        self.op("Attention", [0, 1, 2], [3], layer=0, scale=0.2, softcap=softcap, window=window, **sizes)
        self.op("Rows", [3], [4])
        self.add("build 4")

    def rope(self, x: int, dim: int, style: str, inv_freq: NDArray, scale: float = 1.0) -> None:
        frequencies = "".join(f"{frequency}," for frequency in inv_freq)
        self.op(
            "Rope", [x], [x], head_dim=dim, style=style, inv_freq=frequencies, scale=scale, begin=0, offset=0
        )

    def run(self, width: int, tokens: range, position: int = 0) -> None:
        self.add("run", position, *tokens)
        self.shapes.append((len(tokens), width))


@pytest.fixture(scope="session")
def driver() -> Path:
    """Built once per checkout; only what changed is built again."""
    build = REPOSITORY / "build" / "aarch64"
    options = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": COMPILER,
        "CMAKE_EXE_LINKER_FLAGS": "-static",
        "PUNA_KERNEL_DRIVER": "ON",
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    for command in (["-S", REPOSITORY, "-B", build, *defined], ["--build", build, "--parallel", "2"]):
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return build / "kernel_driver"


def execute(driver: Path, path: Path, script: Script, cpu: str = "max") -> tuple[list[str], list[NDArray]]:
    """The instruction sets that were used, and each run's rows."""
    (path / "script").write_text("\n".join(script.lines) + "\n")
    done = subprocess.run(
        [EMULATOR, "-cpu", cpu, driver, path / "script", path / "results"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    flat = np.fromfile(path / "results", np.float32)
    ends = np.cumsum([rows * width for rows, width in script.shapes])
    assert flat.size == (ends[-1] if len(ends) else 0)
    parts = np.split(flat, ends[:-1])
    return done.stdout.split(), [p.reshape(s) for p, s in zip(parts, script.shapes, strict=True)]


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return request.param


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("cpu", "expected"), [("cortex-a72", "neon"), ("cortex-a76", "neon_dotprod"), ("max", "neon_i8mm")]
)
def test_the_best_instruction_set_is_chosen(driver: Path, tmp_path: Path, cpu: str, expected: str) -> None:
    write_gguf(tmp_path / "x.gguf", {"x": random(2, 16)})
    script = Script()
    script.add("file", tmp_path / "x.gguf")
    script.add("program auto f16\nbuffer 16\nbuffer 16")
    script.op("Embed", [], [0], ["x"])
    script.op("Rows", [0], [1])
    script.add("build 1")
    script.run(16, range(2))
    names, (rows,) = execute(driver, tmp_path, script, cpu)
    assert names == [expected]
    np.testing.assert_array_equal(rows, random(2, 16))


def test_linear(driver: Path, tmp_path: Path, isa: str) -> None:
    """For random weights, and for such of extreme bytes; a token alone gives the same bits as with others."""
    tensors: dict[str, NDArray | Encoded] = {}
    script = Script()
    script.add("file", tmp_path / "linear.gguf")
    inputs, weights = {}, {}
    for name in KNOWN_TYPES:
        cols = columns(name)[0] if name in FLOAT_TYPES else columns(name)[1]
        x = inputs[name] = random(TOKENS, cols)
        x[-1] = 1
        x[-2, ::2], x[-2, 1::2] = 1, -1
        tensors[f"{name}.x"] = x
        for fill in (None, 0x80, 0xFF) if name not in FLOAT_TYPES else (None,):
            weight = f"{name}.{fill}"
            packed = random_weight(name, ROWS, cols, fill=fill)
            weights[name, fill] = values(name, packed)
            tensors[weight] = Encoded(packed, QuantizationType[name])
            script.add(f"program {isa} f16\nbuffer {cols}\nbuffer {ROWS}\nbuffer {ROWS}")
            script.op("Embed", [], [0], [f"{name}.x"])
            script.op("Linear", [0], [1], [weight, ""])
            script.op("Rows", [1], [2])
            script.add("build 2")
            script.run(ROWS, range(TOKENS))
            script.run(ROWS, range(1, 2))
            script.run(ROWS, range(3, TOKENS))
    write_gguf(tmp_path / "linear.gguf", tensors)
    names, results = execute(driver, tmp_path, script)
    assert set(names) == {isa}
    for i, ((name, fill), weight) in enumerate(weights.items()):
        together, alone, few = results[3 * i : 3 * i + 3]
        x = inputs[name]
        exact = x.astype(np.float64) if name in FLOAT_TYPES else rounded_activations(x)
        scale = np.linalg.norm(exact, axis=1)[:, None] * np.linalg.norm(weight, axis=1) + 1e-30
        assert (np.abs(together - exact @ weight.T) / scale).max() < 1e-6, (name, fill)
        np.testing.assert_array_equal(alone, together[1:2], err_msg=name)
        np.testing.assert_array_equal(few, together[3:], err_msg=name)


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_attention(driver: Path, tmp_path: Path, isa: str, kv_type: str) -> None:
    script, cases, tensors = Script(), [], {}
    script.add("file", tmp_path / "attention.gguf")
    for heads, kv_heads, dim, softcap, window in [(6, 2, 20, 0.0, 0), (9, 3, 64, 4.0, 40)]:
        widths = {"q": heads * dim, "k": kv_heads * dim, "v": kv_heads * dim}
        tables = {name: random(100, width, seed=ord(name)) for name, width in widths.items()}
        tensors |= {f"{name}{dim}": table for name, table in tables.items()}
        script.add("program", isa, kv_type)
        for width in (*widths.values(), heads * dim, heads * dim):
            script.add("buffer", width)
        for i, name in enumerate(widths):
            script.op("Embed", [], [i], [f"{name}{dim}"])
        script.attention(heads, kv_heads, dim, softcap=softcap, window=window)
        script.run(heads * dim, range(100))
        script.run(heads * dim, range(99, 100), position=99)
        script.run(heads * dim, range(61, 100), position=61)
        cases.append((tables, dim, softcap, window))
    write_gguf(tmp_path / "attention.gguf", tensors)
    _, results = execute(driver, tmp_path, script)
    for i, (tables, dim, softcap, window) in enumerate(cases):
        together, alone, chunk = results[3 * i : 3 * i + 3]
        stored = np.float16 if kv_type == "f16" else np.float32
        k, v = (tables[name].astype(stored).astype(float) for name in "kv")
        expected = reference.attention(tables["q"].astype(float), k, v, dim, 0.2, softcap, window)
        np.testing.assert_allclose(together, expected, atol=1e-5)
        np.testing.assert_array_equal(alone, together[99:])
        np.testing.assert_array_equal(chunk, together[61:])


@pytest.mark.parametrize(("kv_type", "tolerance"), [("f32", 1e-5), ("f16", 2e-3), ("q8_0", 0.1), ("q4_0", 1)])
def test_moved_tokens(driver: Path, tmp_path: Path, isa: str, kv_type: str, tolerance: float) -> None:
    """A middle range is removed: the next token sees the others where they are now."""
    heads, kv_heads, dim = 6, 2, 40
    inv_freq = 100.0 ** -(np.arange(12) / 12)
    widths = {"q": heads * dim, "k": kv_heads * dim, "v": kv_heads * dim}
    tables = {name: random(100, width, seed=ord(name)) for name, width in widths.items()}
    write_gguf(tmp_path / "moved.gguf", tables)
    script = Script()
    script.add("file", tmp_path / "moved.gguf")
    for style in ("normal", "neox"):
        script.add("program", isa, kv_type)
        for width in (*widths.values(), heads * dim, heads * dim):
            script.add("buffer", width)
        for i, name in enumerate(widths):
            script.op("Embed", [], [i], [name])
        for i in range(2):
            script.rope(i, dim, style, inv_freq)
        script.attention(heads, kv_heads, dim)
        script.run(heads * dim, range(99))
        script.add("move", 40, 13, 59)
        script.run(heads * dim, range(99, 100), position=72)
    _, results = execute(driver, tmp_path, script)
    left = [*range(13), *range(40, 100)]
    for style, actual in zip(("normal", "neox"), results[1::2], strict=True):
        q, k = (
            reference.rope(tables[name][left].astype(float), np.arange(73.0), dim, style, inv_freq, 1.0)
            for name in "qk"
        )
        expected = reference.attention(q[-1:], k, tables["v"][left].astype(float), dim, 0.2)
        np.testing.assert_allclose(actual, expected, atol=tolerance, err_msg=style)


def test_elementwise(driver: Path, tmp_path: Path, isa: str) -> None:
    a, b, weight = random(5, 70, seed=1), random(5, 70, seed=2), random(1, 70)[0]
    inv_freq = 10000.0 ** -(np.arange(5) / 5)
    exact_a, exact_b = a.astype(float), b.astype(float)
    cases: dict[str, tuple[Callable[[Script], None], NDArray]] = {
        "add": (lambda s: s.op("Add", [0, 1], [2]), exact_a + exact_b),
        "mul": (lambda s: s.op("Mul", [0, 1], [2]), exact_a * exact_b),
        "scale": (lambda s: s.op("Scale", [0], [2], factor=0.5), exact_a * 0.5),
        "softcap": (lambda s: s.op("Softcap", [0], [2], cap=2.0), np.tanh(exact_a / 2) * 2),
        "norm": (
            lambda s: s.op("RmsNorm", [0], [2], ["weight"], eps=1e-5),
            reference.rms_norm(exact_a, weight.astype(float), 1e-5, 70),
        ),
    }
    for name in ("silu", "gelu", "relu"):
        expected = reference.activation(name, exact_a) * exact_b
        cases[name] = (lambda s, name=name: s.op("Glu", [0, 1], [2], activation=name), expected)
    for style in ("normal", "neox"):

        def rotate(s: Script, style: str = style) -> None:
            s.op("Scale", [0], [2], factor=1.0)
            s.rope(2, 14, style, inv_freq, 1.5)

        cases[style] = (rotate, reference.rope(exact_a, np.arange(5) + 3, 14, style, inv_freq, 1.5))
    write_gguf(tmp_path / "x.gguf", {"a": a, "b": b, "weight": weight})
    script = Script()
    script.add("file", tmp_path / "x.gguf")
    for define, _ in cases.values():
        script.add(f"program {isa} f16\n" + "\n".join(["buffer 70"] * 4))
        script.op("Embed", [], [0], ["a"])
        script.op("Embed", [], [1], ["b"])
        define(script)
        script.op("Rows", [2], [3])
        script.add("build 3")
        script.run(70, range(5), position=3)
    _, results = execute(driver, tmp_path, script)
    for (case, (_, expected)), actual in zip(cases.items(), results, strict=True):
        np.testing.assert_allclose(actual, expected, atol=3e-6, rtol=1e-5, err_msg=case)
