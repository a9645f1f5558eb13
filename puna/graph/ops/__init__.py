"""The op set that architectures are written in. Every value is float32 [tokens, width].

What an op computes is in the first line of its description: (inputs) -> output. Its fields are its
attributes, which a device gets by their names.
"""

from puna.graph.ops.altup import AltUpAddToOthers, AltUpCorrect, AltUpPredict
from puna.graph.ops.attention import (
    Attention,
    EncoderAttention,
    LatentAttention,
    Rope,
    SharedAttention,
    Temperature,
)
from puna.graph.ops.elementwise import (
    Activation,
    Add,
    AddFirstRow,
    AddVector,
    Clamp,
    Columns,
    Concat,
    GaussianTopK,
    Glu,
    Mul,
    MulVector,
    Repeat,
    Scale,
    Softcap,
    Xielu,
)
from puna.graph.ops.experts import Moe
from puna.graph.ops.linear import (
    Embed,
    EmbedPosition,
    HeadLinear,
    HiddenBefore,
    Linear,
    PooledRows,
    Rows,
    SampledRows,
)
from puna.graph.ops.norms import L2Norm, LayerNorm, MatchMagnitude, RmsNorm, Softmax, Standardize
from puna.graph.ops.op import Op, Stateful
from puna.graph.ops.recurrence import ChannelScan, GatedDeltaNet, SelectiveScan, ShortConv

__all__ = [
    "Activation",
    "Add",
    "AddFirstRow",
    "AddVector",
    "AltUpAddToOthers",
    "AltUpCorrect",
    "AltUpPredict",
    "Attention",
    "ChannelScan",
    "Clamp",
    "Columns",
    "Concat",
    "Embed",
    "EmbedPosition",
    "EncoderAttention",
    "GatedDeltaNet",
    "GaussianTopK",
    "Glu",
    "HeadLinear",
    "HiddenBefore",
    "L2Norm",
    "LatentAttention",
    "LayerNorm",
    "Linear",
    "MatchMagnitude",
    "Moe",
    "Mul",
    "MulVector",
    "Op",
    "PooledRows",
    "Repeat",
    "RmsNorm",
    "Rope",
    "Rows",
    "SampledRows",
    "Scale",
    "SelectiveScan",
    "SharedAttention",
    "ShortConv",
    "Softcap",
    "Softmax",
    "Standardize",
    "Stateful",
    "Temperature",
    "Xielu",
]
