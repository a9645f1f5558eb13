"""SmolLM2's own template, rendered here and by llama.cpp."""

from __future__ import annotations

import pytest

from puna.chat.messages import Message
from puna.chat.templates.template import ChatTemplate
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer
from tests.oracle.llamacpp import LlamaCpp

pytestmark = pytest.mark.oracle

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "You are brief.\n"), ("user", "  spaces  "), ("assistant", "é 日本 👩‍👩‍👧"), ("user", "")],
    [("user", "<|im_end|> {{ messages }} {% raw %}"), ("assistant", "a"), ("assistant", "b"), ("user", "c")],
]


def test_prompts_are_llamacpps(smollm2_path):
    with GgufFile(smollm2_path) as file:
        template = ChatTemplate.for_tokenizer(
            file.metadata.get("tokenizer.chat_template"), load_tokenizer(file.metadata)
        )
    assert template is not None
    with LlamaCpp(smollm2_path, context=256) as oracle:
        for turns in CONVERSATIONS:
            messages = [{"role": role, "content": content} for role, content in turns]
            expected = oracle.post("/apply-template", {"messages": messages})["prompt"]
            assert template.render([Message(*turn) for turn in turns]) == expected
