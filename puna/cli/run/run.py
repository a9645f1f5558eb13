"""`puna run`: one answer, an embedding, or a conversation."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import msgspec

from puna.cli.client import Client, Json
from puna.cli.errors import CliError, ServerError
from puna.cli.models.import_gguf import import_gguf, is_path, link_in_place, name_in_place
from puna.cli.models.pull import pull
from puna.cli.repl.repl import Repl
from puna.cli.run.attachments import attach_files
from puna.cli.run.options import RunOptions
from puna.cli.run.reply import ReplyDisplay, spinner, statistics, with_spinner
from puna.config.settings import Settings

_NOT_FOUND = 404


def run(client: Client, model: str, words: list[str], options: RunOptions, settings: Settings) -> None:
    """Answers the prompt that words and piped standard input make, or converses if there is none."""
    if is_path(model):
        path = Path(model).expanduser()
        model = _name_of(client, path, settings)
    information = find_or_pull(client, model, insecure=options.insecure)
    capabilities = information.get("capabilities") or []
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    prompt = " ".join(part for part in (piped, *words) if part)
    if "embedding" in capabilities:
        embed(client, model, prompt, options)
    elif words or not (sys.stdin.isatty() and sys.stdout.isatty()):
        answer(client, model, prompt, options, capabilities)
    else:
        converse(client, model, information, options, settings)


def _name_of(client: Client, path: Path, settings: Settings) -> str:
    """Of a file or directory, which the server uses where it is, or else gets a copy of."""
    if found := name_in_place(client, path):
        return found
    if settings.in_place and (linked := link_in_place(client, path, settings.in_place / "links")):
        return linked
    return import_gguf(client, path)


def find_or_pull(client: Client, model: str, *, insecure: bool = False) -> Json:
    """What the server says about the model, which it pulls first if it has to."""
    try:
        return client.post("/api/show", {"model": model})
    except ServerError as error:
        if error.status != _NOT_FOUND:
            raise
    pull(client, model, insecure=insecure)
    return client.post("/api/show", {"model": model})


def answer(client: Client, model: str, prompt: str, options: RunOptions, capabilities: list[str]) -> None:
    """Streams the answer to one prompt to standard output."""
    display = ReplyDisplay(
        sys.stdout,
        wrap=options.word_wrap and sys.stdout.isatty(),
        hide_thinking=options.hide_thinking,
    )
    text, images = attach_files(prompt, capabilities)
    request = options.request(model=model, prompt=text) | ({"images": images} if images else {})
    final: Json = {}
    with closing(client.stream("/api/generate", request)) as stream:
        for message in with_spinner(stream):
            display.show(message.get("thinking", ""), message.get("response", ""))
            final = message
    if prompt:
        display.finish()
    if options.verbose:
        print(statistics(final), file=sys.stderr)


def embed(client: Client, model: str, text: str, options: RunOptions) -> None:
    """Prints the text's embedding as one JSON array. Raises CliError if there is no text."""
    if not text:
        raise CliError(f'embedding models require input text. Usage: puna run {model} "your text here"')
    asked = {
        "keep_alive": options.keep_alive,
        "truncate": options.truncate,
        "dimensions": options.dimensions,
    }
    request = {"model": model, "input": text} | {
        key: value for key, value in asked.items() if value is not None
    }
    with spinner():
        reply = client.post("/api/embed", request)
    print(msgspec.json.encode(reply["embeddings"][0]).decode())
    if options.verbose:
        print(statistics(reply), file=sys.stderr)


def converse(client: Client, model: str, information: Json, options: RunOptions, settings: Settings) -> None:
    """Loads the model, so that its first reply does not wait for that, and talks with the user."""
    with spinner():
        client.post(
            "/api/generate", RunOptions(keep_alive=options.keep_alive).request(model=model, stream=False)
        )
    Repl(client, model, options, settings).run(information)
