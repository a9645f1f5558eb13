"""What tells one family of models from another when it is converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from puna.convert.models.config import Config
from puna.convert.parts.experts import GATE_AND_UP, gate_and_up
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.values import Rows
from puna.gguf.writer import GgufValue

Hyperparameters = dict[str, GgufValue]
"""By their keys, without the architecture before them."""
Split = Callable[[str, Rows, Config], list[PlannedTensor]]
"""Takes GGUF's name, or that which stands for several, a whole tensor's rows and the configuration."""

DECODER_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.embedding_norm": "token_embd_norm",
    "lm_head": "output",
}


class Family(msgspec.Struct, frozen=True, kw_only=True):
    architecture: str
    """As GGUF names it."""
    layer_names: Mapping[str, str]
    """GGUF's names of what lies in a layer, by the names behind `layers` and its number."""
    layers: str = "model.layers."
    global_names: Mapping[str, str] = msgspec.field(default_factory=lambda: DECODER_NAMES)
    """GGUF's names of what lies in no layer."""
    prefixes: tuple[str, ...] = ()
    """What some files put before all of these names."""
    left_out: tuple[str, ...] = ()
    """Beginnings of names of what nothing needs."""
    left_out_endings: tuple[str, ...] = ()
    hyperparameters: Callable[[Config, Hyperparameters], None] = lambda _config, _values: None
    """Adds what this family has besides what all have, or changes it."""
    norms_add_one: bool = False
    """GGUF's weights of norms are larger by one."""
    pairs_halves: bool = False
    """Rotation pairs a head's first half with its second in safetensors, neighbours in GGUF."""
    is_encoder: bool = False
    has_token_types: bool = False
    """The tokenizer's file says how many kinds of texts tokens can belong to."""
    skips_padding: bool = False
    """Positions are numbered from behind the padding token's number on, and GGUF's from 0."""
    has_more_layers: bool = False
    """Behind the last one that the configuration counts as such: they predict further tokens, if all that
    takes is there; others are left out.
    """
    has_head_apart: bool = False
    """What predicts further tokens lies below `mtp`; GGUF has it as a layer behind the last one."""
    special_tokens: Mapping[str, str] = {}
    """By their parts, where files do not say which of their tokens play them."""
    unused_tokens: str = ""
    """What the texts of tokens begin with that SentencePiece's file does not say are unused."""
    eos_key: str = ""
    """What config.json calls the token that ends texts; generation_config.json says what ends replies."""
    has_output: bool = True
    """Otherwise an output matrix is the embedding once more, and left out."""
    defaults: Mapping[str, float] = {}
    """What a configuration need not say."""
    parts: Mapping[str, Split] = {}
    """By GGUF's names, or such as stand for several, what is made of tensors that GGUF has otherwise."""
    variant: Callable[[Config], Family | None] = lambda _config: None
    """The family that a configuration is of in place of this one."""


PROJECTIONS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
NORMED_HEADS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
PRE_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
FEED_FORWARD = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.experts.gate_up_proj": GATE_AND_UP,
}
"""Experts' numbers are left out, as they are in GGUF."""
SOFTMAX, SIGMOID = 1, 2
"""What makes a router's values scores, in GGUF's numbers."""
FUSED_EXPERTS: dict[str, Split] = {GATE_AND_UP: gate_and_up}
PREDICTION_HEAD = {
    "embed_tokens": "nextn.embed_tokens",
    "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm",
    "eh_proj": "nextn.eh_proj",
    "shared_head.norm": "nextn.shared_head_norm",
    "shared_head.head": "nextn.shared_head_head",
}
"""What a layer that predicts further tokens has besides."""
SHARED_EXPERT = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
