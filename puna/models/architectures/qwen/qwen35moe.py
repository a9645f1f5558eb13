"""Qwen3.5 with experts in every layer, one of which all tokens share."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.architectures.qwen.qwen35 import qwen35_mixer
from puna.models.blocks import pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.prediction import prediction_head
from puna.models.recurrent.gated_delta_net import with_shared_expert
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    mixer, feed_forward = qwen35_mixer(g, p, d), with_shared_expert(g, p)
    return pre_norm_decoder(g, d, mixer, feed_forward, ffn_norm="post_attention_norm")


def trace_prediction(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    mixer, feed_forward = qwen35_mixer(g, p, d), with_shared_expert(g, p)
    return prediction_head(g, d, mixer, feed_forward, ffn_norm="post_attention_norm")
