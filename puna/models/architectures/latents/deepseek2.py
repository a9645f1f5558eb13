"""DeepSeek V2, V3 and R1, GLM-4.7-Flash, Kimi K2: latents instead of keys and values, and experts."""

from __future__ import annotations

from puna.graph import GraphError, Tracer, Value
from puna.models.architectures.latents.absorbed import Latents, latent_attention
from puna.models.blocks import Part, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.prediction import prediction_head
from puna.models.rope import FreqFactors

_GLM_FLASH_LAYERS, _GLM_FLASH_TOKENS = (47, 48), 154880


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    if "blk.0.attn_kv_b.weight" in g.shapes:
        raise GraphError(
            "tensor blk.0.attn_kv_b.weight: files with the products of keys and of values in one tensor are "
            "not supported; newer ones have attn_k_b and attn_v_b"
        )
    d = Decoder.read(p)
    return pre_norm_decoder(g, d, *_parts(g, p, d))


def trace_prediction(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return prediction_head(g, d, *_parts(g, p, d))


def _parts(g: Tracer, p: Hyperparameters, d: Decoder) -> tuple[Part, Part]:
    latents = Latents.read(p)

    def attention(layer: int, x: Value) -> Value:
        return latent_attention(g, d, latents, layer, x)

    return attention, mixture(g, p, scores=_scores(g, d), normalized=False)


def _scores(g: Tracer, d: Decoder) -> str:
    """Of files from before there was a number for them: DeepSeek V2's, or GLM-4.7-Flash's."""
    num_tokens = g.shapes.matrix("token_embd.weight")[1]
    is_glm = d.num_layers in _GLM_FLASH_LAYERS and num_tokens == _GLM_FLASH_TOKENS
    return "sigmoid" if is_glm else "softmax"
