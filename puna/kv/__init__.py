"""KV memory: who holds which blocks, what they contain, and how many of them may have memory."""

from typing import TYPE_CHECKING

from puna import lazy
from puna.kv.blocks import BLOCK_TOKENS

if TYPE_CHECKING:
    from puna._native import Cursor, PrefixNode, PrefixTree, SequenceTable, gather_tables
    from puna.kv.budget import Budget
    from puna.kv.model_kv import ModelKv

__all__ = [
    "BLOCK_TOKENS",
    "Budget",
    "Cursor",
    "ModelKv",
    "PrefixNode",
    "PrefixTree",
    "SequenceTable",
    "gather_tables",
]

_NATIVE = ("Cursor", "PrefixNode", "PrefixTree", "SequenceTable", "gather_tables")

__getattr__ = lazy.names(
    __name__,
    {
        "Budget": "puna.kv.budget",
        "ModelKv": "puna.kv.model_kv",
        **dict.fromkeys(_NATIVE, "puna._native"),
    },
)
