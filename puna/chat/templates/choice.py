"""Which of a model's templates renders its prompts, and which family reads its replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from puna.chat.errors import TemplateError
from puna.chat.templates.go.template import GoChatTemplate
from puna.chat.templates.model_templates import ModelTemplates
from puna.chat.templates.parsers import PARSERS, RENDERERS, parser_family
from puna.chat.templates.template import ChatTemplate, mentions_tools, writes_thoughts
from puna.tokenizer import Tokenizer

AnyTemplate: TypeAlias = ChatTemplate | GoChatTemplate

_GPT_OSS = ("gptoss", "gpt-oss")
_TOOL_CALLS = ("tool_calls", "assistant_tool_call")
_TOOL_RESULTS = (
    "tool_response",
    "tool_results",
    "ipython",
    *(f"role{end} == {quote}tool{quote}" for end in ("']", '"]') for quote in "'\""),
    *(f"message.role == {quote}tool{quote}" for quote in "'\""),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """source: why this one. A template in Jinja is not parsed yet: it may be anything.
    parser: a name that decides how replies are read; "": the template does.
    """

    source: str
    go: GoChatTemplate | None = None
    jinja: Any = None
    parser: str = ""

    def compiled(self, tokenizer: Tokenizer) -> AnyTemplate | None:
        """ChatML where there is no template but the tokenizer knows ChatML's tokens; else None. Raises
        TemplateError.
        """
        if self.go is not None:
            return self.go
        return ChatTemplate.for_tokenizer(self.jinja, tokenizer, parser=self.parser)

    def check(self) -> None:
        """Raises TemplateError if it cannot be used."""
        if self.jinja is not None:
            ChatTemplate(self.jinja, bos_token="", eos_token="")

    @property
    def think_levels(self) -> tuple[str, ...]:
        """How hard the model may be told to think, if there is a choice."""
        if self.go is not None:
            knows = "thinklevel" in self.go.names
        else:
            knows = isinstance(self.jinja, str) and "reasoning_effort" in self.jinja
        return ("low", "medium", "high") if knows or self.parser == "harmony" else ()

    @property
    def capabilities(self) -> list[str]:
        """Beside completion."""
        offered = _go_capabilities(self.go) if self.go else _jinja_capabilities(self.jinja)
        if self.parser:
            named = PARSERS[self.parser]
            reads = {"tools": named.tools, "thinking": named.thinking, "insert": "insert" in offered}
            offered = {name for name, does in reads.items() if does}
        return [name for name in ("tools", "thinking", "insert") if name in offered]


def choose(jinja: Any, model: ModelTemplates) -> Choice:
    """jinja: what the file has as its template, if anything. Raises TemplateError for a Go template that is
    none, for names that are not known, and for a renderer where the file has no template to use in its place.
    """
    harmony = model.family in _GPT_OSS and "<|start|>" in model.go and "<|end|>" in model.go
    parser = model.parser or ("harmony" if harmony and not model.renderer else "")
    go = GoChatTemplate(model.go, parser=parser) if model.go else None
    if model.renderer or model.parser:
        return _named(jinja, go, model)
    if parser:
        return Choice("harmony", go=go, parser=parser)
    wants_go = model.prefers_go
    if go is not None and (wants_go or (wants_go is None and not _prefers_jinja(jinja, go))):
        return Choice("go_template", go=go)
    if jinja is None:
        return Choice("none")
    return Choice("gguf_chat_template", jinja=jinja)


def _named(jinja: Any, go: GoChatTemplate | None, model: ModelTemplates) -> Choice:
    names = {"renderer": model.renderer, "parser": model.parser}
    source = "_".join(kind for kind, name in names.items() if name)
    if model.parser:
        parser_family(model.parser)
    if not model.renderer and go is not None:
        return Choice(source, go=go, parser=model.parser)
    if model.renderer and model.renderer not in RENDERERS:
        raise TemplateError(f'unknown renderer "{model.renderer}"')
    if model.renderer and jinja is None:
        raise TemplateError(
            f'the renderer "{model.renderer}" is not supported where the model\'s file has no chat template'
        )
    return Choice(source, jinja=jinja, parser=model.parser)


def _prefers_jinja(jinja: Any, go: GoChatTemplate) -> bool:
    """Whether it offers more than the Go template, or as much, and only it has results of tools."""
    if not isinstance(jinja, str):
        return False
    offered, others = _jinja_capabilities(jinja), _go_capabilities(go)
    has_results = _renders_tool_results(jinja)
    if len(offered) > len(others):
        return has_results or not go.renders_tool_results
    return offered == others and "tools" in offered and has_results and not go.renders_tool_results


def _renders_tool_results(jinja: str) -> bool:
    return (
        mentions_tools(jinja)
        and any(mark in jinja for mark in _TOOL_CALLS)
        and any(mark in jinja for mark in _TOOL_RESULTS)
    )


def _jinja_capabilities(jinja: Any) -> set[str]:
    """Looked at as a text: lists of models come here."""
    offers: dict[str, Callable[[str], bool]] = {"tools": mentions_tools, "thinking": writes_thoughts}
    return {name for name, offered in offers.items() if isinstance(jinja, str) and offered(jinja)}


def _go_capabilities(go: GoChatTemplate) -> set[str]:
    mentioned = {"tools": "tools", "suffix": "insert"}
    thinks = {"thinking"} if go.supports_thinking else set[str]()
    return {capability for name, capability in mentioned.items() if name in go.names} | thinks
