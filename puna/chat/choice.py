"""Which of a model's templates renders its prompts, and which family reads its replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from puna.chat.errors import TemplateError
from puna.chat.go.template import GoChatTemplate
from puna.chat.parsers import PARSERS, RENDERERS, parser_family
from puna.chat.replies.families.family import Family
from puna.chat.template import ChatTemplate, mentions_tools, writes_thoughts

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


class ModelTemplates(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model's manifest says of its prompts and replies, beside its file."""

    go: str = ""
    """Its TEMPLATE."""
    renderer: str = ""
    parser: str = ""
    family: str = ""
    """Of models, as the configuration calls it."""
    prefers_go: bool | None = None
    """True, False: whatever the file has; None: the one that offers more."""


@dataclass(frozen=True, slots=True)
class Choice:
    """source: why this one. A template in Jinja is not parsed yet: it may be anything.
    parser: a name that decides how replies are read; "": the template does.
    """

    source: str
    go: GoChatTemplate | None = None
    jinja: Any = None
    parser: str = ""

    @property
    def family(self) -> Family | None:
        """None: the template's. Raises TemplateError."""
        return parser_family(self.parser) if self.parser else None

    @property
    def capabilities(self) -> list[str]:
        """Beside completion."""
        offered = _go_capabilities(self.go) if self.go else _jinja_capabilities(self.jinja)
        named = PARSERS.get(self.parser)
        if named is not None:
            offered |= {"tools"} if named.tools else set()
            offered |= {"thinking"} if named.thinking else set()
        return [name for name in ("tools", "thinking", "insert") if name in offered]


def choose(jinja: Any, model: ModelTemplates) -> Choice:
    """jinja: what the file has as its template, if anything. Raises TemplateError for a Go template that is
    none, for names that are not known, and for a renderer where the file has no template to use in its place.
    """
    go = GoChatTemplate(model.go) if model.go else None
    if model.renderer or model.parser:
        return _named(jinja, go, model)
    if go is not None and model.family in _GPT_OSS and "<|start|>" in go.source and "<|end|>" in go.source:
        return Choice("harmony", go=go, parser="harmony")
    if go is not None and model.prefers_go is not False:
        if model.prefers_go or not _prefers_jinja(jinja, go):
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
    thinks = {"thinking"} if go.supports_thinking else set()
    return {capability for name, capability in mentioned.items() if name in go.names} | thinks
