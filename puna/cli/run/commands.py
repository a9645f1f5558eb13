"""The command `run`."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from puna.cli.parameters import Insecure, Model

run_app = typer.Typer()


@run_app.command()
def run(
    model: Model,
    prompt: Annotated[Optional[list[str]], typer.Argument(metavar="PROMPT", show_default=False)] = None,  # noqa: UP045
    keepalive: Annotated[str, typer.Option(help="How long the model stays loaded, such as 5m.")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", help="Show timings of the reply.")] = False,
    insecure: Insecure = False,
    nowordwrap: Annotated[bool, typer.Option("--nowordwrap", help="Don't wrap words.")] = False,
    format: Annotated[  # noqa: A002
        str, typer.Option(help="Format of the reply: json, a JSON schema, or a file that has one.")
    ] = "",
    think: Annotated[
        str, typer.Option(metavar="[=LEVEL]", help="Think first: true, false, low, medium, high, max.")
    ] = "",
    hidethinking: Annotated[bool, typer.Option("--hidethinking", help="Don't show the thinking.")] = False,
    truncate: Annotated[
        str, typer.Option(metavar="[=false]", help="Embeddings: cut text that is too long, or refuse it.")
    ] = "",
    dimensions: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(metavar="N", min=1, help="Embeddings: only the first N values.", show_default=False),
    ] = None,
    session: Annotated[str, typer.Option(help="Keep the conversation's KV under this name.")] = "",
) -> None:
    """Run a model: answer PROMPT, or converse.

    MODEL may be a GGUF file, or a directory of safetensors.
    """
    from puna.cli.connection import connect_or_start
    from puna.cli.run.options import RunOptions, parse_format, parse_keep_alive, parse_think, parse_truncate
    from puna.cli.run.run import run as run_model
    from puna.config.settings import Settings

    options = RunOptions(
        keep_alive=parse_keep_alive(keepalive or None),
        think=parse_think(think or None),
        format=parse_format(format or None),
        truncate=parse_truncate(truncate or None),
        dimensions=dimensions,
        verbose=verbose,
        hide_thinking=hidethinking,
        word_wrap=not nowordwrap,
        insecure=insecure,
        session=session or None,
    )
    settings = Settings.from_environment()
    with connect_or_start(settings) as client:
        run_model(client, model, prompt or [], options, settings)
