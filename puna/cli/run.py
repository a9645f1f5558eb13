"""`puna run`: one answer, or a conversation."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from puna.cli.client import Client, Json
from puna.cli.errors import CliError, ServerError
from puna.cli.import_gguf import import_gguf, is_path
from puna.cli.pull import pull
from puna.cli.reply import ReplyDisplay, spinner, statistics, with_spinner
from puna.quantities import parse_duration
from puna.settings import Settings

_NOT_FOUND = 404
_THINK_LEVELS = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The flags of `run`. None means: not given, so the server decides."""

    keep_alive: str | None = None
    think: bool | str | None = None
    format: Any = None
    """"json" or a JSON schema."""
    verbose: bool = False
    hide_thinking: bool = False
    word_wrap: bool = True
    insecure: bool = False
    session: str | None = None

    def request(self, **fields: Any) -> Json:
        """A request with `fields`, and what the flags add to every request."""
        optional = {
            "keep_alive": self.keep_alive,
            "think": self.think,
            "format": self.format,
            "session": self.session,
        }
        return fields | {key: value for key, value in optional.items() if value is not None}


def parse_think(text: str | None) -> bool | str | None:
    """The value of `--think`. Raises CliError."""
    if text is None or text in _THINK_LEVELS:
        return text
    if text in ("true", "false"):
        return text == "true"
    raise CliError(f'invalid value for --think: "{text}" (must be true, false, low, medium, high, or max)')


def parse_keep_alive(text: str | None) -> str | None:
    """The value of `--keepalive`, checked to be a Go duration. Raises CliError."""
    if text is not None:
        try:
            parse_duration(text)
        except ValueError as error:
            raise CliError(str(error)) from None
    return text


def parse_format(text: str | None) -> Any:
    """The value of `--format`: a JSON schema is sent as an object, anything else as it is."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CliError(f"--format: {error}") from None


def run(client: Client, model: str, words: list[str], options: RunOptions, settings: Settings) -> None:
    """Answers the prompt that words and piped standard input make, or converses if there is none."""
    if is_path(model):
        model = import_gguf(client, Path(model).expanduser())
    information = find_or_pull(client, model, insecure=options.insecure)
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    prompt = " ".join(part for part in (piped, *words) if part)
    if words or not (sys.stdin.isatty() and sys.stdout.isatty()):
        answer(client, model, prompt, options)
        return
    from puna.cli.repl import Repl

    with spinner():
        client.post(
            "/api/generate", RunOptions(keep_alive=options.keep_alive).request(model=model, stream=False)
        )
    Repl(client, model, options, settings).run(information.get("messages") or [])


def find_or_pull(client: Client, model: str, *, insecure: bool = False) -> Json:
    """What the server says about the model, which it pulls first if it has to."""
    try:
        return client.post("/api/show", {"model": model})
    except ServerError as error:
        if error.status != _NOT_FOUND:
            raise
    pull(client, model, insecure=insecure)
    return client.post("/api/show", {"model": model})


def answer(client: Client, model: str, prompt: str, options: RunOptions) -> None:
    """Streams the answer to one prompt to standard output."""
    display = ReplyDisplay(
        sys.stdout,
        wrap=options.word_wrap and sys.stdout.isatty(),
        hide_thinking=options.hide_thinking,
    )
    final: Json = {}
    with closing(client.stream("/api/generate", options.request(model=model, prompt=prompt))) as stream:
        for message in with_spinner(stream):
            display.show(message.get("thinking", ""), message.get("response", ""))
            final = message
    if prompt:
        display.finish()
    if options.verbose:
        print(statistics(final), file=sys.stderr)
