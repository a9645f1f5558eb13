"""A model that computes next to nothing: it answers any prompt with one fixed text, word by word.

It has the vocabulary of a real model, a template with tools, and attention and feed-forward weights of zero:
a token's vector goes through unchanged and meets, as the most alike of all, the row of the word that follows.
So it runs on any build, and what a request takes is what puna does around it.
"""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from benchmarks.weights.variants import copy_metadata, quantize

_WIDTH = 32
CONTEXT = 8192
_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\nYou may call functions. They are, within <tools></tools>:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\n\\nWrite a call as\\n<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>' }}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role != 'system' or not loop.first %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""As models have it that write their calls as Hermes does."""
_WORD = re.compile("\u0120[a-z]{2,}")  # a blank and letters, as a byte-level BPE writes it


def write_replay(source: Path, target: Path) -> None:
    """source: the model whose vocabulary it is to have, a byte-level BPE."""
    reader = gguf.GGUFReader(source)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    writer = GGUFWriter(target, "llama")
    copy_metadata(reader, writer, prefix="tokenizer.ggml.")
    writer.add_chat_template(_TEMPLATE)
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    embedding, output = _vectors([i for i, text in enumerate(tokens) if _WORD.fullmatch(text)], len(tokens))
    for name, values in (("token_embd", embedding), ("output", output)):
        packed = quantize(values, "Q8_0")
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=GGMLQuantizationType.Q8_0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((_WIDTH, _WIDTH), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vectors(words: list[int], vocab_size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embeddings and output rows, [vocab_size, _WIDTH] each.

    The words follow each other in a circle; whatever is no word is followed by the second one.
    """
    codes = np.random.default_rng(0).permutation(1 << 20)[: len(words)]
    bits = codes[:, None] >> np.arange(20) & 1
    signs = np.concatenate([bits, bits[:, : _WIDTH - 20]], axis=1).astype(np.float32) * 2 - 1
    embedding = np.repeat(signs[:1], vocab_size, axis=0)
    embedding[words] = signs
    output = np.zeros((vocab_size, _WIDTH), np.float32)
    output[words] = np.roll(signs, 1, axis=0)
    return embedding, output
