"""Small GGUF files: real metadata, vocabulary and chat template, and weights that nothing can be run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.tiny import byte_level_vocabulary

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' and '</think>' in message['content'] %}"
    "{{ message['content'].split('</think>')[-1] }}{% else %}{{ message['content'] }}{% endif %}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% if reasoning_effort is defined %}[{{ reasoning_effort }}]{% endif %}"
)

CALLING = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}\n"
    "Call them with <tool_call></tool_call><|im_end|>\n{% endif %}"
    + CHATML.replace(
        "{{ message['content'] }}",
        "{{ message['content'] }}{% for call in message['tool_calls'] or [] %}<tool_call>"
        "{{ call.function | tojson }}</tool_call>{% endfor %}",
    )
)


def write_gguf(
    path: Path,
    *,
    template: str | None = CHATML,
    context: int = 2048,
    fill_in: bool = False,
    **metadata: Any,
) -> Path:
    """fill_in: with tokens for prompts with a gap. metadata: further keys of the architecture, int or str."""
    tokens, types, merges = byte_level_vocabulary()
    if template is None:  # with these tokens it would be a ChatML model all the same
        tokens = [token.replace("<|im_", "<|") for token in tokens]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("secret name")
    writer.add_context_length(context)
    writer.add_embedding_length(32)
    for key, value in metadata.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_string
        add(f"llama.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 3)
    writer.add_add_bos_token(False)
    if fill_in:
        for role, text in (("fim_pre", "<"), ("fim_suf", "|"), ("fim_mid", ">")):
            writer.add_uint32(f"tokenizer.ggml.{role}_token_id", tokens.index(text))
    if template is not None:
        writer.add_chat_template(template)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
