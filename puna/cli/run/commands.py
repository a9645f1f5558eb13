"""The command `run`."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from puna.cli.parameters import Insecure, Model

run_app = typer.Typer()


@run_app.command()
def run(
    model: Model,
    prompt: Annotated[Optional[list[str]], typer.Argument(show_default=False)] = None,  # noqa: UP045
    keepalive: Annotated[str, typer.Option(help="How long the model stays loaded, such as 5m.")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", help="Show timings of the reply.")] = False,
    insecure: Insecure = False,
    nowordwrap: Annotated[bool, typer.Option("--nowordwrap", help="Don't wrap words.")] = False,
    format: Annotated[str, typer.Option(help="Format of the reply, such as json.")] = "",  # noqa: A002
    think: Annotated[
        str, typer.Option(metavar="[=LEVEL]", help="Think first: true, false, low, medium, high, max.")
    ] = "",
    hidethinking: Annotated[bool, typer.Option("--hidethinking", help="Don't show the thinking.")] = False,
    session: Annotated[str, typer.Option(help="Keep the conversation's KV under this name.")] = "",
) -> None:
    """Run a model: answer PROMPT, or converse. MODEL may be a GGUF file."""
    from puna.cli.connection import connect_or_start
    from puna.cli.run.options import RunOptions, parse_format, parse_keep_alive, parse_think
    from puna.cli.run.run import run as run_model
    from puna.config.settings import Settings

    options = RunOptions(
        keep_alive=parse_keep_alive(keepalive or None),
        think=parse_think(think or None),
        format=parse_format(format or None),
        verbose=verbose,
        hide_thinking=hidethinking,
        word_wrap=not nowordwrap,
        insecure=insecure,
        session=session or None,
    )
    settings = Settings.from_environment()
    with connect_or_start(settings) as client:
        run_model(client, model, prompt or [], options, settings)
