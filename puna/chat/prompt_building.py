"""From a request to the tokens that the model continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec

from puna.chat.conversation.boundaries import find_boundaries
from puna.chat.conversation.changing_lines import without_changing_lines_in
from puna.chat.conversation.normalising import Rendered, render_any, repaired, with_known_roles
from puna.chat.conversation.repairs import num_leading_system
from puna.chat.conversation.truncation import fit_messages, fit_prompt, kept_tokens
from puna.chat.conversation.written_names import renamed_messages, renamed_tools
from puna.chat.errors import PromptError
from puna.chat.grammars.composition import offered_tools, reply_grammar
from puna.chat.images import TOKENS_PER_IMAGE, Cut, ImageMarks, cut_raw
from puna.chat.messages import Message
from puna.chat.prompt import Prompt, PromptRequest
from puna.chat.replies.families.plain import PLAIN
from puna.chat.replies.old_thoughts import without_old_thoughts
from puna.chat.replies.reply_format import ReplyFormat
from puna.chat.replies.thinking import ends_with_open_tag
from puna.chat.templates.choice import AnyTemplate
from puna.chat.templates.go.template import GoChatTemplate
from puna.chat.tools import ToolChoice, tool_variables
from puna.tokenizer import Tokenizer

_TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, "
    "adjust the context length in settings, or use a model with a longer context length"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What else prompts are made with.

    override: renders in place of the model's template; replies are read as that one says.
    filler: renders what has a gap.
    fill_in: where there is none: the tokens before a text, before what follows the gap, and before what
        belongs into it. If there are none either, the model cannot do that.
    at_work: entered while a template is.
    """

    override: GoChatTemplate | None = None
    filler: GoChatTemplate | None = None
    fill_in: Sequence[int] = ()
    at_work: Callable[[], AbstractContextManager[None]] = nullcontext


def build_prompts(
    request: PromptRequest,
    template: AnyTemplate | None,
    tokenizer: Tokenizer,
    rendering: Rendering = Rendering(),
) -> list[Prompt]:
    """One for each of the request's prompts, or the one of its conversation.

    request: its tokens are taken as they are, see check_tokens().
    template: None: then a conversation is just what user and model wrote. Raises PromptError, TemplateError.
    """
    builder = _Builder(request, template, tokenizer, rendering)
    if not request.prompts:
        return [builder.chat()]
    return [builder.generate(prompt) for prompt in request.prompts]


class _Builder:
    """Raises PromptError, TemplateError."""

    def __init__(
        self,
        request: PromptRequest,
        template: AnyTemplate | None,
        tokenizer: Tokenizer,
        rendering: Rendering,
    ) -> None:
        self._request = request
        self._template = template
        self._tokenizer = tokenizer
        self._rendering = rendering
        self._renderer = rendering.override or template
        self._marks = ImageMarks()
        self._latest: tuple[list[Message], Rendered, list[int]] | None = None
        self._num_messages = 0  # of the whole conversation
        self._variables: dict[str, Any] = {}
        if self._template is not None and self._template.supports_thinking:
            self._variables["enable_thinking"] = request.think
            if (level := request.think_level) is not None:
                self._variables["reasoning_effort"] = self._template.family.efforts.get(level, level)

    def generate(self, prompt: str | list[int]) -> Prompt:
        request = self._request
        if isinstance(prompt, list):
            return self._with_plain_reply(self._fitted("", prompt))
        if request.raw:
            cut = cut_raw(prompt, request.num_images)
            return self._with_plain_reply(self._fitted(prompt, self._tokenizer.encode(cut.text), cut))
        if request.suffix:
            return self._with_plain_reply(self._filled_in(prompt))
        system = [Message("system", request.system)] if request.system else []
        embedded = [] if request.context else request.embedded
        message = Message("user", prompt, images=[b""] * request.num_images)
        return self._conversation([*system, *embedded, *self._marks.marked([message])])

    def _filled_in(self, prompt: str) -> Prompt:
        suffix = self._request.suffix
        if (filler := self._rendering.filler) is not None:
            with self._rendering.at_work():
                text = filler.fill_in(prompt, suffix, **self._variables)
            tokens = self._tokenizer.encode(text, add_special=False)
            return self._fitted(text, self._with_special_tokens(tokens))
        if not self._rendering.fill_in:
            raise PromptError("the model cannot fill in what belongs between two texts")
        before, between, behind = self._rendering.fill_in
        head, tail = (self._tokenizer.encode(text, add_special=False) for text in (prompt, suffix))
        tokens = [before, *head, between, *tail, behind]
        return self._fitted(self._tokenizer.decode(tokens), self._with_special_tokens(tokens))

    def chat(self) -> Prompt:
        request = self._request
        requested = [
            msgspec.structs.replace(message, role=message.role.lower()) for message in request.messages
        ]
        messages = [*request.embedded, *self._marks.marked(without_changing_lines_in(requested))]
        if request.system and not (requested and requested[0].role == "system"):
            messages.insert(0, Message("system", request.system))
        return self._conversation(messages)

    def _conversation(self, messages: list[Message]) -> Prompt:
        """Renders the messages that fit, and puts the tokens of the context in front."""
        request = self._request
        if self._renderer is not None:
            messages = with_known_roles(messages, self._renderer.source)
        self._num_messages = len(messages)
        if request.truncate:
            messages = fit_messages(messages, self._cost, request.context_length)
        (text, repairs, _), tokens = self._encoded(messages)
        prompt = self._with_special_tokens(tokens)
        if request.context:
            continuation = prompt[1:] if self._tokenizer.add_bos else prompt
            prompt = [*request.context, *continuation]
        fitted = self._with_reply(self._fitted(text, prompt, self._marks.cut(text)))
        is_whole = fitted.cut is None and len(fitted.tokens) == len(prompt)
        if request.with_boundaries and self._renderer is not None and is_whole:
            num_before = len(prompt) - len(tokens) - self._tokenizer.add_eos

            def render(messages: Sequence[Message], asks: bool) -> str:
                return self._render(repaired(messages, repairs), asks)

            found = find_boundaries(messages, render, text, tokens, self._tokenizer)
            return msgspec.structs.replace(fitted, boundaries=[num_before + position for position in found])
        return fitted

    def _encoded(self, messages: list[Message]) -> tuple[Rendered, list[int]]:
        """The messages as text and as tokens, without BOS and EOS of the tokenizer, and without images."""
        if self._latest is None or self._latest[0] != messages:
            if self._renderer is None:
                rendered = Rendered(self._render(messages), [], True)
            else:
                rendered = render_any(messages, self._render, may_begin=self._may_begin(messages))
            text = self._marks.cut(rendered.text).text
            self._latest = messages, rendered, self._tokenizer.encode(text, add_special=False)
        return self._latest[1:]

    def _cost(self, messages: list[Message]) -> int:
        """What they are thought to take of the context, in tokens."""
        rendered, tokens = self._encoded(messages)
        return len(tokens) + TOKENS_PER_IMAGE * len(self._marks.cut(rendered.text).images)

    def _may_begin(self, messages: Sequence[Message]) -> bool:
        """Whether a question may be made up for an answer at the beginning. Not if the conversation was cut,
        but for calls: they say enough without, and their results.
        """
        rest = messages[num_leading_system(messages) :]
        is_answer = len(rest) > 1 and rest[0].role == "assistant" and not rest[0].tool_calls
        return not is_answer or len(messages) == self._num_messages

    def _with_special_tokens(self, tokens: list[int]) -> list[int]:
        """BOS and EOS as the model wants them; many chat templates write a BOS of their own."""
        bos_id, eos_id = self._tokenizer.bos_id, self._tokenizer.eos_id
        if self._tokenizer.add_bos and bos_id is not None and tokens[:1] != [bos_id]:
            tokens = [bos_id, *tokens]
        if self._tokenizer.add_eos and eos_id is not None:
            tokens = [*tokens, eos_id]
        return tokens

    def _render(self, messages: Sequence[Message], asks: bool = True) -> str:
        """asks: for a reply."""
        if self._request.forgets_thoughts:
            messages = without_old_thoughts(messages)
        if (template := self._renderer) is None:
            return "".join(message.content for message in messages if message.role in ("user", "assistant"))
        tools = self._request.tools if self._request.tool_choice.mode != "none" else []
        if (written_names := (self._template or template).family.written_names) is not None:
            names = written_names(self._request.tools)
            tools, messages = renamed_tools(tools, names), renamed_messages(messages, names)
        variables = [tool_variables(tool) for tool in tools]
        with self._rendering.at_work():
            return template.render(messages, tools=variables, add_generation_prompt=asks, **self._variables)

    def _with_reply(self, prompt: Prompt) -> Prompt:
        """Says how its reply is to be read, and what it may be. Raises PromptError."""
        request, template = self._request, self._template or self._renderer
        if template is None:
            return self._with_plain_reply(prompt)
        family = template.family
        tools = offered_tools(request.tools, request.tool_choice)
        form = ReplyFormat(
            family=family.name,
            may_think=request.think and template.supports_thinking,
            shows_thoughts=request.think,
            may_call=bool(tools),
            must_call=request.tool_choice.mode == "required",
            json=family.json,
            thinking=template.thinking if family.thinking is not None else None,
        )
        thinking = form.thinking_of(family) or ()
        if thinking and ends_with_open_tag(prompt.text, thinking):
            form = msgspec.structs.replace(form, starts_thinking=True)
        grammar = ""
        if request.answer is not None or tools:
            grammar = reply_grammar(family, form, tools, request.tool_choice, request.answer, self._tokenizer)
        tags = [tag for tag in family.tags if tools or tag in "".join(thinking)]
        tags += [tag for tag in thinking if tag not in tags]
        shown = [self._tokenizer.find_control(tag) for tag in tags]
        return msgspec.structs.replace(
            prompt, reply=form, grammar=grammar, shown_tokens=[token for token in shown if token is not None]
        )

    def _with_plain_reply(self, prompt: Prompt) -> Prompt:
        """Of a model that goes on with a text: no thoughts, no calls. Raises PromptError."""
        if (answer := self._request.answer) is None:
            return prompt
        grammar = reply_grammar(PLAIN, prompt.reply, [], ToolChoice(), answer, self._tokenizer)
        return msgspec.structs.replace(prompt, grammar=grammar)

    def _fitted(self, text: str, tokens: list[int], cut: Cut | None = None) -> Prompt:
        """With tokens that leave room in the context for at least one more. Between images, nothing is left
        out.
        """
        request, add_bos = self._request, self._tokenizer.add_bos
        has_images = cut is not None and bool(cut.images)
        if not tokens and not has_images:
            raise PromptError("the prompt is empty")
        if len(tokens) >= request.context_length:
            if has_images or not (request.truncate and request.shift):
                raise PromptError(_TOO_LONG)
            tokens = fit_prompt(tokens, request.context_length, request.num_keep, add_bos)
        num_keep = kept_tokens(request.num_keep, len(tokens), request.context_length, add_bos)
        if cut is None or not has_images:
            return Prompt(text=text, tokens=tokens, num_keep=num_keep)
        return Prompt(text=cut.shown, tokens=tokens, num_keep=num_keep, cut=self._continued(cut))

    def _continued(self, cut: Cut) -> Cut:
        """Behind the text of the context, without the BOS that whoever encodes it puts in front."""
        bos = self._tokenizer.bos_id if self._tokenizer.add_bos else None
        head, *tails = cut.pieces
        if bos is not None:
            head = head.removeprefix(self._tokenizer.token_text(bos))
        earlier = self._request.context
        earlier = earlier[1:] if earlier[:1] == [bos] else earlier
        return cut._replace(pieces=[self._tokenizer.decode(earlier) + head, *tails])
