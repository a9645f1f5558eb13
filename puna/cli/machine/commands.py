"""The commands on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from puna.cli.parameters import AsJson, open_client

machine_app = typer.Typer()


@machine_app.command()
def bench(
    model: Annotated[str, typer.Argument(metavar="MODEL", show_default=False)] = "",
    as_json: AsJson = False,
    info: Annotated[bool, typer.Option("--info", help="Only show what was found and chosen.")] = False,
) -> None:
    """Measure how fast a model runs. MODEL may be a GGUF file."""
    from puna.cli.machine.bench import bench as run_bench
    from puna.cli.machine.bench import show_machine
    from puna.config.settings import Settings

    settings = Settings.from_environment()
    if info:
        show_machine(settings, as_json=as_json)
    else:
        run_bench(model, settings, as_json=as_json)


@machine_app.command()
def doctor(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="What it, or a GGUF file, needs.", show_default=False),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Examine the machine, the settings, or a model."""
    from puna.cli.doctor.doctor import doctor as examine

    raise typer.Exit(examine(model, as_json=as_json))


@machine_app.command()
def trace(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("puna-trace.json"),
    seconds: Annotated[Optional[float], typer.Option(help="Only the last ones.", show_default=False)] = None,  # noqa: UP045
) -> None:
    """Save a timeline of what the engine did lately.

    To be opened in ui.perfetto.dev.
    """
    from puna.cli.machine.trace import save_trace

    with open_client() as client:
        save_trace(client, output, seconds)
