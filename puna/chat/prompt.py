"""What is asked of a model, and what it is given."""

from __future__ import annotations

import msgspec

from puna.chat.errors import PromptError
from puna.chat.grammars.answer import AnswerFormat
from puna.chat.images import Cut
from puna.chat.messages import Message
from puna.chat.replies.reply_format import ReplyFormat
from puna.chat.templates.model_templates import ModelTemplates
from puna.chat.tools import Tool, ToolChoice


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is given."""

    text: str
    """As it was before it became tokens, `[img-N]` in the place of images; "" if it came as tokens."""
    tokens: list[int]
    """Of its text, without images."""
    cut: Cut | None = None
    """The text without BOS, if images stand in it: for who encodes both."""
    reply: ReplyFormat = ReplyFormat()
    """How the reply is to be read."""
    grammar: str = ""
    """Of llguidance: what the reply may be; empty: anything."""
    shown_tokens: list[int] = []
    """Control tokens whose text the reply's reader needs."""
    num_keep: int
    """How many tokens at the front stay when the context is full."""
    boundaries: list[int] = []
    """Positions in `tokens`, ascending, where later prompts are likely to part from this one, the last where
    the reply is asked for; none if it is no conversation, or they are not wanted."""


class PromptRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation (`messages`), or `prompts`: texts, or tokens as they are, each a prompt of its own.

    Of images it has only how many there are: those of messages are empty.
    """

    messages: list[Message] = []
    prompts: list[str | list[int]] = []
    num_images: int = 0
    """That belong to a prompt which is a text."""
    raw: bool = False
    """Texts become prompts as they are; else each is the user's part of a conversation."""
    context: list[int] = []
    """Tokens of an earlier conversation, which such a text continues."""
    system: str = ""
    """For conversations that do not begin with a system message."""
    embedded: list[Message] = []
    """What the model puts before every conversation."""
    think: bool = False
    think_level: str | None = None
    suffix: str = ""
    """What follows the texts: the model writes what belongs between."""
    template: str = ""
    """In Go's template language: renders the prompt in place of the model's own."""
    templates: ModelTemplates = ModelTemplates()
    """The model's own, beside the one in its file."""
    tools: list[Tool] = []
    """Functions that the model may call."""
    tool_choice: ToolChoice = ToolChoice()
    answer: AnswerFormat | None = None
    """What the reply's content must be; None: any text."""
    forgets_thoughts: bool = False
    """The model must not see what it thought before the user's latest message."""
    context_length: int
    """Longest prompt and answer together, in tokens."""
    num_keep: int = 0
    """Of the prompt's tokens; negative: all."""
    truncate: bool = True
    """Whether messages, or the middle of a prompt, may be left out to make it fit..."""
    shift: bool = True
    """...the latter only if tokens may be left out later, too."""
    with_boundaries: bool = False
    """Whether to say where later prompts may part from a conversation's, which takes rendering more of it."""

    @property
    def num_chars(self) -> int:
        """Roughly how long it is."""
        texts = [message.content for message in [*self.embedded, *self.messages]]
        return sum(map(len, texts)) + sum(map(len, self.prompts)) + len(self.context)


def check_tokens(request: PromptRequest, vocab_size: int) -> None:
    """PromptError for tokens that the model does not have."""
    given = [("prompt", prompt) for prompt in request.prompts if isinstance(prompt, list)]
    for field, tokens in [*given, ("context", request.context)]:
        for token in (min(tokens, default=0), max(tokens, default=0)):
            if not 0 <= token < vocab_size:
                raise PromptError(f"{field} has token {token}, which the model does not have")
