"""The command line. Everything a command needs is imported by that command: `--help` must be instant."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from puna.cli.completion.commands import completion_app
from puna.cli.flags import as_typer_takes_them
from puna.cli.kv.commands import kv_app
from puna.cli.launch.commands import launch_app
from puna.cli.machine.commands import machine_app
from puna.cli.models.commands import models_app
from puna.cli.run.commands import run_app
from puna.cli.service.commands import service_app
from puna.cli.sessions.commands import session_app

app = typer.Typer(
    name="puna",
    help="Runs large language models on this machine, behind Ollama's API.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(run_app)
app.add_typer(models_app)
app.add_typer(launch_app)
app.add_typer(machine_app)
app.add_typer(session_app, name="session")
app.add_typer(kv_app, name="kv")
app.add_typer(service_app, name="service")
app.add_typer(completion_app)


def main() -> None:
    """Entry point: an error is one line on standard error and exit status 1."""
    from puna.cli.errors import CliError
    from puna.cli.output.terminal import printable
    from puna.config.settings import SettingsError

    try:
        app(as_typer_takes_them(sys.argv[1:]), prog_name="puna")
    except (CliError, SettingsError) as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as error:
        # Wrong usage has status 2 in typer, but 1 in Ollama.
        sys.exit(1 if error.code == 2 else error.code)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-v", help="Show the version.", is_eager=True)
    ] = False,
) -> None:
    if version:
        from puna.cli.version import show_version

        show_version()
        raise typer.Exit


@app.command()
def serve() -> None:
    """Start the server."""
    from puna.api.app import create_app
    from puna.config.settings import Settings
    from puna.daemon.server import serve as run_server

    raise typer.Exit(run_server(Settings.from_environment(), create_app))


app.command("start", hidden=True)(serve)
