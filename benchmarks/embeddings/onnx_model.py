"""BERT as ONNX Runtime likes it best: its own fused attention, norms and GELU, from a GGUF file's weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puna.gguf import GgufFile

_CONTRIBUTED = "com.microsoft"


class _Writer:
    def __init__(self, file: GgufFile) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._of_array = helper, numpy_helper.from_array
        self._file = file
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def weight(self, name: str, *, transposed: bool = False) -> str:
        shape = tuple(reversed(self._file.tensors[name].shape))
        values = self._file.dequantize(name).reshape(shape)
        self.initializers.append(
            self._of_array(np.ascontiguousarray(values.T if transposed else values), name)
        )
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"{kind}_{len(self.nodes)}"
        self.nodes.append(
            self._helper.make_node(kind, list(inputs), [output], name=output, domain=domain, **attributes)
        )
        return output

    def product(self, x: str, name: str) -> str:
        return self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))

    def norm(self, x: str, skip: str, bias: str, name: str, eps: float) -> str:
        """Of x + bias + skip."""
        weights = [self.weight(f"{name}.{kind}") for kind in ("weight", "bias")]
        return self.op("SkipLayerNormalization", x, skip, *weights, bias, domain=_CONTRIBUTED, epsilon=eps)


def write_onnx(gguf: Path, path: Path) -> None:
    """Inputs: tokens and mask, int64 [texts, length]; output: hidden states."""
    import onnx
    from onnx import TensorProto, helper

    with GgufFile(gguf) as file:
        of = {key.removeprefix("bert."): value for key, value in file.metadata.items()}
        w, eps, heads = _Writer(file), of["attention.layer_norm_epsilon"], of["attention.head_count"]
        x = _embeddings(w, eps)
        mask = w.op("Cast", "mask", to=TensorProto.INT32)
        for layer in range(of["block_count"]):
            x = _layer(w, x, mask, f"blk.{layer}", heads, eps)
        w.nodes.append(helper.make_node("Identity", [x], ["hidden"]))
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "length"])
            for name in ("tokens", "mask")
        ]
        output = helper.make_tensor_value_info(
            "hidden", TensorProto.FLOAT, ["texts", "length", of["embedding_length"]]
        )
        graph = helper.make_graph(w.nodes, "bert", inputs, [output], w.initializers)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_CONTRIBUTED, 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))


def _embeddings(w: _Writer, eps: float) -> str:
    from onnx import numpy_helper

    for name, value in (("zero", [0]), ("one", [1]), ("two", [2])):
        w.initializers.append(numpy_helper.from_array(np.array(value, np.int64), name))
    length = w.op("Slice", w.op("Shape", "tokens"), "one", "two")
    embedded = w.op("Gather", w.weight("token_embd.weight"), "tokens")
    positions = w.op("Slice", w.weight("position_embd.weight"), "zero", length, "zero")
    kind = w.op("Gather", w.weight("token_types.weight"), "zero")
    x = w.op("Add", embedded, w.op("Add", positions, kind))
    weights = [w.weight(f"token_embd_norm.{kind}") for kind in ("weight", "bias")]
    return w.op("LayerNormalization", x, *weights, epsilon=eps)


def _layer(w: _Writer, x: str, mask: str, block: str, heads: int, eps: float) -> str:
    q, k, v = (
        w.op("Add", w.product(x, f"{block}.attn_{p}"), w.weight(f"{block}.attn_{p}.bias")) for p in "qkv"
    )
    y = w.op("MultiHeadAttention", q, k, v, "", mask, domain=_CONTRIBUTED, num_heads=heads)
    y = w.product(y, f"{block}.attn_output")
    x = w.norm(y, x, w.weight(f"{block}.attn_output.bias"), f"{block}.attn_output_norm", eps)
    up = w.product(x, f"{block}.ffn_up")
    y = w.product(
        w.op("FastGelu", up, w.weight(f"{block}.ffn_up.bias"), domain=_CONTRIBUTED), f"{block}.ffn_down"
    )
    return w.norm(y, x, w.weight(f"{block}.ffn_down.bias"), f"{block}.layer_output_norm", eps)


def quantize(source: Path, target: Path) -> None:
    """Matrices in int8, activations as they come."""
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source,
        target,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        extra_options={"DefaultTensorType": TensorProto.FLOAT},  # of what fused ops give
    )


class OnnxEncoder:
    """threads: of its own pool."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def embed(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """[texts, width], of length 1; texts are padded to the longest."""
        longest = max(map(len, tokens))
        ids, mask = (np.zeros((len(tokens), longest), np.int64) for _ in range(2))
        for row, text in enumerate(tokens):
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
        (hidden,) = self._session.run(None, {"tokens": ids, "mask": mask})
        pooled = (hidden * mask[:, :, None]).sum(axis=1)
        vectors: NDArray[np.float32] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors
