"""Families of encoders: models that make embeddings of texts, or rank them."""

from __future__ import annotations

from msgspec.structs import replace

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Family, Hyperparameters
from puna.convert.models.rope import rope_values
from puna.convert.models.sizes import num_experts
from puna.convert.parts.experts import flat_experts, flat_transposed_experts
from puna.gguf.writer import string, uint32

_BERT_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
_BERT_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_TRAINED_WITH_EXPERTS = 512
"""Positions, of the one model that says otherwise."""
_UNUSED = ("pooler.", "cls.", "lm_head.", "embeddings.position_ids")
"""What embeddings are not made of: BERT was trained with heads that guess words."""
_ROBERTA_CLASSIFIER = {"classifier.dense": "cls", "classifier.out_proj": "cls.output"}


_GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh")
"""Ways to compute one function."""


def _bert(config: Config, _: Hyperparameters) -> None:
    for name in ("hidden_act", "activation"):  # of BERT, and of DistilBERT
        if config.text(name, "gelu") not in _GELUS:
            raise ConversionError(f"config.json: {name} is not known")


def _has_experts(config: Config) -> bool:
    return config.integer("moe_every_n_layers", default=0) > 0


def _nomic(config: Config, values: Hyperparameters) -> None:
    mixes = _has_experts(config)
    for name, wanted in (("prenorm", False), ("rotary_emb_interleaved", False), ("qkv_proj_bias", mixes)):
        if config.flag(name, wanted) != wanted:
            raise ConversionError(f"config.json: {name} is not known")
    if config.number("rotary_emb_fraction", default=1.0) != 1:
        raise ConversionError("config.json: rotary_emb_fraction is not known")
    activation = "gelu" if mixes else "swiglu"
    if config.text("activation_function", activation) != activation:
        raise ConversionError("config.json: activation_function is not known")
    trained = config.integer("max_trained_positions", default=2048)
    trained = _TRAINED_WITH_EXPERTS if mixes and trained == config.integer("n_positions") else trained
    values["context_length"] = uint32(min(config.integer("n_positions"), trained))
    values |= rope_values(config)
    if mixes:
        values["moe_every_n_layers"] = uint32(config.integer("moe_every_n_layers"))
        values["expert_count"] = uint32(num_experts(config))
        values["expert_used_count"] = uint32(config.integer("moe_top_k"))


def _nomic_variant(config: Config) -> Family | None:
    return _NOMIC_MOE if _has_experts(config) else None


def _modern_bert(config: Config, values: Hyperparameters) -> None:
    values["attention.sliding_window"] = uint32(config.integer("local_attention"))
    if config.has("global_attn_every_n_layers"):
        every = config.integer("global_attn_every_n_layers")
        values["attention.sliding_window_pattern"] = uint32(every)
    values |= rope_values(config) | {"rope.scaling.type": string("none")}
    if config.has("hidden_activation"):
        values["hidden_activation"] = string(config.text("hidden_activation"))


_BERT = Family(
    architecture="bert",
    layers="encoder.layer.",
    layer_names=_BERT_LAYER,
    global_names=_BERT_NAMES,
    prefixes=("bert.", "roberta."),
    left_out=_UNUSED,
    is_encoder=True,
    has_token_types=True,
    hyperparameters=_bert,
)
_BERT_CLASSIFIER = replace(
    _BERT,
    global_names=_BERT_NAMES | {"pooler.dense": "cls", "classifier": "cls.output"},
    left_out=_UNUSED[1:],
)
_ROBERTA = replace(_BERT, skips_padding=True)
_ROBERTA_RANKER = replace(_BERT, skips_padding=True, global_names=_BERT_NAMES | _ROBERTA_CLASSIFIER)
_DISTIL_BERT = replace(
    _BERT,
    layers="transformer.layer.",
    layer_names={
        "attention.q_lin": "attn_q",
        "attention.k_lin": "attn_k",
        "attention.v_lin": "attn_v",
        "attention.out_lin": "attn_output",
        "sa_layer_norm": "attn_output_norm",
        "ffn.lin1": "ffn_up",
        "ffn.lin2": "ffn_down",
        "output_layer_norm": "layer_output_norm",
    },
    prefixes=("distilbert.",),
    left_out=("vocab_", "embeddings.position_ids"),
    defaults={"layer_norm_eps": 1e-12},
)
_NOMIC = replace(
    _BERT,
    architecture="nomic-bert",
    layers="encoder.layers.",
    global_names={
        "embeddings.word_embeddings": "token_embd",
        "embeddings.token_type_embeddings": "token_types",
        "emb_ln": "token_embd_norm",
    },
    layer_names={
        "attn.Wqkv": "attn_qkv",
        "attn.out_proj": "attn_output",
        "norm1": "attn_output_norm",
        "norm2": "layer_output_norm",
        "mlp.fc11": "ffn_up",
        "mlp.fc12": "ffn_gate",
        "mlp.fc2": "ffn_down",
    },
    hyperparameters=_nomic,
    variant=_nomic_variant,
)
_NOMIC_MOE: Family = replace(
    _NOMIC,
    architecture="nomic-bert-moe",
    layer_names={
        "attn.Wqkv": "attn_qkv",
        "attn.out_proj": "attn_output",
        "norm1": "attn_output_norm",
        "norm2": "layer_output_norm",
        "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down",
        "mlp.router.layer": "ffn_gate_inp",
        "mlp.experts.mlp.w1": "ffn_up_exps",
        "mlp.experts.mlp.w2": "ffn_down_exps",
    },
    left_out_endings=("mlp.experts.bias",),
    parts={"ffn_up_exps": flat_experts, "ffn_down_exps": flat_transposed_experts},
)
_MODERN_BERT = replace(
    _BERT,
    architecture="modern-bert",
    layers="layers.",
    global_names={
        "embeddings.tok_embeddings": "token_embd",
        "embeddings.norm": "token_embd_norm",
        "final_norm": "output_norm",
        "head.dense": "cls",
        "head.norm": "cls.norm",
        "classifier": "cls.output",
    },
    layer_names={
        "attn_norm": "attn_norm",
        "attn.Wqkv": "attn_qkv",
        "attn.Wo": "attn_output",
        "mlp_norm": "ffn_norm",
        "mlp.Wi": "ffn_up",
        "mlp.Wo": "ffn_down",
    },
    prefixes=("model.",),
    left_out=("decoder.",),
    has_token_types=False,
    hyperparameters=_modern_bert,
)

ENCODERS = {
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "BertForSequenceClassification": _BERT_CLASSIFIER,
    "DistilBertModel": _DISTIL_BERT,
    "DistilBertForMaskedLM": _DISTIL_BERT,
    "RobertaModel": _ROBERTA,
    "RobertaForSequenceClassification": _ROBERTA_RANKER,
    "XLMRobertaModel": _ROBERTA,
    "XLMRobertaForSequenceClassification": _ROBERTA_RANKER,
    "NomicBertModel": _NOMIC,
    "ModernBertModel": _MODERN_BERT,
    "ModernBertForMaskedLM": _MODERN_BERT,
    "ModernBertForSequenceClassification": _MODERN_BERT,
}
"""By the class that config.json names."""
