"""`puna run`: one answer, or a conversation."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from puna.cli.client import Client, Json
from puna.cli.errors import ServerError
from puna.cli.models.import_gguf import import_gguf, is_path
from puna.cli.models.pull import pull
from puna.cli.repl.repl import Repl
from puna.cli.run.options import RunOptions
from puna.cli.run.reply import ReplyDisplay, spinner, statistics, with_spinner
from puna.config.settings import Settings

_NOT_FOUND = 404


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
