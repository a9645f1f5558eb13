"""The tokens of a prompt, as the daemon makes them of a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.agents.conversation import Message
from puna.chat.messages import CalledFunction, ToolCall
from puna.chat.messages import Message as ChatMessage
from puna.chat.prompt import PromptRequest
from puna.chat.prompt_building import build_prompts
from puna.chat.templates.template import ChatTemplate
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer


class PromptTokens:
    """Of one model."""

    def __init__(self, gguf: Path) -> None:
        with GgufFile(gguf) as file:
            self._tokenizer = load_tokenizer(file.metadata)
            self._template = ChatTemplate.for_tokenizer(
                file.metadata.get("tokenizer.chat_template"), self._tokenizer
            )
            self._context = int(file.metadata[f"{file.metadata['general.architecture']}.context_length"])

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def of(self, messages: Sequence[Message], *, thinks: bool) -> list[int]:
        request = PromptRequest(
            messages=[_message(message) for message in messages], think=thinks, context_length=self._context
        )
        (prompt,) = build_prompts(request, self._template, self._tokenizer)
        return prompt.tokens


def _message(message: Message) -> ChatMessage:
    calls = [
        ToolCall(CalledFunction(call["function"]["name"], json.loads(call["function"]["arguments"])))
        for call in message.get("tool_calls", ())
    ]
    return ChatMessage(message["role"], message["content"], tool_calls=calls)
