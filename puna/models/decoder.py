"""Hyperparameters that decoder-only models share."""

from __future__ import annotations

import msgspec

from puna.models.hyperparameters import MAX_CONTEXT, HyperparameterError, Hyperparameters


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a stack of layers; the largest allowed are several times those of any real model.

    num_prediction_layers: heads behind them that only predict further tokens (MTP), of which one is used.
    """

    num_layers: int
    num_prediction_layers: int
    width: int
    norm_eps: float
    context_length: int

    @property
    def num_blocks(self) -> int:
        """Layers of both kinds, as arrays in metadata count them."""
        return self.num_layers + self.num_prediction_layers

    @classmethod
    def read(cls, p: Hyperparameters) -> Stack:
        num_blocks = p.integer("block_count", maximum=1024)
        num_more = p.integer("nextn_predict_layers", 0, minimum=0, maximum=num_blocks - 1)
        return Stack(
            num_layers=num_blocks - num_more,
            num_prediction_layers=num_more,
            width=p.integer("embedding_length", maximum=1 << 17),
            norm_eps=_norm_eps(p),
            context_length=p.integer("context_length", maximum=MAX_CONTEXT),
        )


def _norm_eps(p: Hyperparameters) -> float:
    """Of root mean squares, or of norms that take away the mean, whose name is another."""
    of_rms, of_layer = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
    return p.number(of_layer if p.has(of_layer) and not p.has(of_rms) else of_rms)


class Decoder(Stack, frozen=True, kw_only=True):
    """Sizes of a stack with attention in some or all of its layers."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    has_attention: tuple[bool, ...]
    """For each layer, whether the file gives it KV heads."""

    @property
    def width_per_head(self) -> int:
        """What head_dim would be if the heads shared out the width."""
        return self.width // self.num_heads

    @classmethod
    def read_layers(cls, p: Hyperparameters, *, has_own_values: bool = False) -> list[Decoder]:
        """Of each layer, where numbers of heads differ from layer to layer; some may have no heads at all.

        has_own_values: whether values may have another width than keys.
        """
        stack = Stack.read(p)
        heads, kv_heads = (
            p.integers(f"attention.{name}", stack.num_blocks, maximum=1024)[: stack.num_layers]
            for name in ("head_count", "head_count_kv")
        )
        for layer, (num_heads, num_kv_heads) in enumerate(zip(heads, kv_heads, strict=True)):
            if num_heads % max(num_kv_heads, 1) or num_kv_heads > num_heads:
                raise _cannot_share(p, f"layer {layer}: {num_heads}", num_kv_heads)
        head_dim = _head_dim(p, stack, max(heads), has_own_values=has_own_values)
        return [
            cls(
                **msgspec.structs.asdict(stack),
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                has_attention=tuple(count > 0 for count in kv_heads),
            )
            for num_heads, num_kv_heads in zip(heads, kv_heads, strict=True)
        ]

    @classmethod
    def read(cls, p: Hyperparameters) -> Decoder:
        stack = Stack.read(p)
        num_heads = p.integer("attention.head_count", maximum=1024)
        kv_heads = _kv_heads(p, stack, num_heads)
        num_kv_heads = max(kv_heads)
        if num_kv_heads == 0 or num_heads % num_kv_heads:
            raise _cannot_share(p, str(num_heads), num_kv_heads)
        head_dim = _head_dim(p, stack, num_heads)
        return cls(
            **msgspec.structs.asdict(stack),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            has_attention=tuple(count > 0 for count in kv_heads),
        )


def _cannot_share(p: Hyperparameters, num_heads: str, num_kv_heads: int) -> HyperparameterError:
    keys = f"metadata {p.key('attention.head_count')} and {p.key('attention.head_count_kv')}"
    return HyperparameterError(f"{keys}: {num_heads} heads cannot be shared out over {num_kv_heads} KV heads")


def _head_dim(p: Hyperparameters, stack: Stack, num_heads: int, *, has_own_values: bool = False) -> int:
    head_dim = p.integer("attention.key_length", max(1, stack.width // max(num_heads, 1)), maximum=1024)
    has_own_values |= p.has("attention.kv_lora_rank")
    if not has_own_values and p.integer("attention.value_length", head_dim) != head_dim:
        raise HyperparameterError(f"metadata {p.key('attention.value_length')} differs from the key length")
    return head_dim


def _kv_heads(p: Hyperparameters, stack: Stack, num_heads: int) -> list[int]:
    """Of each layer: as many in all that have attention; 0 where a layer has none."""
    name = "attention.head_count_kv"
    counts = p.integers(name, stack.num_blocks, num_heads, maximum=num_heads)[: stack.num_layers]
    if len(set(counts) - {0}) > 1:
        raise HyperparameterError(f"metadata {p.key(name)} differs from layer to layer")
    return counts
