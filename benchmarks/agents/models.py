"""The two models that the agents use: small, with the proportions of large ones."""

from __future__ import annotations

from benchmarks.synthetic.qwen3 import Qwen3
from benchmarks.synthetic.qwen35 import Qwen35
from benchmarks.weights.files import BenchFile, synthetic_file

_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else -%}
<|im_start|>{{ message.role }}
{{ message.content.split('</think>')[-1] }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking -%}
<think>
{% endif -%}
{%- endif -%}"""
"""As Qwen3's: a thinking model is put inside its thoughts, of which later prompts have nothing."""

_CONTEXT, _VOCABULARY = 40960, 4096

_HYBRID = Qwen35(
    "a small hybrid",
    layers=4,
    width=1024,
    ffn=3072,
    heads=8,
    kv_heads=2,
    head_dim=128,
    delta_key_heads=4,
    delta_value_heads=8,
    delta_dim=128,
    vocabulary=_VOCABULARY,
    context=_CONTEXT,
    chat_template=_TEMPLATE,
)
"""1 KiB of KV for each token; a state of 1.6 MiB, worth 1,600 tokens, as with Qwen3.5-4B."""

_ATTENTION = Qwen3(
    "a small model with attention only",
    layers=4,
    width=768,
    ffn=2048,
    heads=6,
    kv_heads=1,
    vocabulary=_VOCABULARY,
    context=_CONTEXT,
    chat_template=_TEMPLATE,
)
"""2 KiB of KV for each token."""

KV_BYTES_PER_TOKEN = {"hybrid": 1024, "attention": 2048}


def agent_models() -> dict[str, BenchFile]:
    """By the name that the trace has for them."""
    return {
        "hybrid": synthetic_file("agents-hybrid:synthetic", _HYBRID.model()),
        "attention": synthetic_file("agents-attention:synthetic", _ATTENTION.model()),
    }
