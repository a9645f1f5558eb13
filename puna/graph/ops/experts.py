"""Feed-forward parts of which each token uses a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from puna.graph.ops.op import Op
from puna.graph.shapes import GraphError, Shapes


@dataclass(frozen=True, slots=True)
class Moe(Op):
    """(x, logits) -> sum over a token's chosen experts of weight * down(activation(gate(x), up(x))).

    logits: [tokens, experts], the router's. Scores are their softmax ("softmax"), their sigmoid ("sigmoid"),
    or the logits themselves, softmaxed over the chosen ("chosen_softmax"). The `num_used` highest are chosen,
    after `{name}.exp_probs_b.bias`, or `exp_probs_b`, is added where the file has it, ties by index; with
    num_groups > 1 only among the num_groups_used groups whose two highest sum up highest (DeepSeek-V3). Their
    weights are the scores without that bias, divided by their sum if `normalized`, times `scale`, and times
    their value of `{name}.ffn_down_exps.scale` where the file has it. They are applied to what the experts
    give, or to what they get if `weighs_input` (Llama 4). Sums go in the order of choice, the highest first.

    activation, limit: as of Glu; or without a gate, if not `gated`, as of Activation:
    down(activation(up(x))).

    Tensors: `{name}.ffn_{gate,up,down}_exps.weight` [columns, rows, experts], or gate and up in one
    `ffn_gate_up_exps`, gate first; and their biases [rows, experts] where the file has them.
    """

    name: str
    num_used: int
    scores: str
    normalized: bool
    scale: float
    activation: str
    num_groups: int = 1
    num_groups_used: int = 1
    gated: bool = True
    weighs_input: bool = False
    limit: float = 0.0

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width, num_experts), names = inputs, self.tensors(shapes)
        gate, up, down = (None if name is None else shapes.cube(name) for name in names[:3])
        assert gate is not None
        assert down is not None
        hidden = gate[1] // 2 if self.gated and up is None else gate[1]
        fits = gate == (width, gate[1], num_experts) and up in (None, gate)
        if not fits or down != (hidden, width, num_experts):
            raise GraphError(
                f"tensors {self.name}.ffn_*_exps do not fit {num_experts} experts for {width} columns"
            )
        if not 0 < self.num_used <= num_experts or num_experts % self.num_groups:
            raise GraphError(f"{self.name}: {self.num_used} of {num_experts} experts cannot be chosen")
        return width

    def tensors(self, shapes: Shapes) -> tuple[str | None, ...]:
        """(gate or both, up, down, their biases, the choice's bias, scales); without a gate, up is first"""
        is_fused = f"{self.name}.ffn_gate_up_exps.weight" in shapes
        parts: tuple[str | None, ...] = ("gate_up", None, "down") if is_fused else ("gate", "up", "down")
        if not self.gated:
            parts = ("up", None, "down")
        names = [None if part is None else f"{self.name}.ffn_{part}_exps" for part in parts]
        weights = [None if name is None else f"{name}.weight" for name in names]
        of_choice = f"{self.name}.exp_probs_b"
        more = [f"{name}.bias" for name in names]
        more.append(of_choice if of_choice in shapes else f"{of_choice}.bias")
        more.append(f"{self.name}.ffn_down_exps.scale")
        return (*weights, *(tensor if tensor in shapes else None for tensor in more))

    @staticmethod
    def matrices(tensors: Sequence[str | None]) -> list[str]:
        """Of what tensors() gives those of which a token needs only what its experts have."""
        return [name for name in tensors[:3] if name is not None]
