"""The command `launch`."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

launch_app = typer.Typer()


@launch_app.command()
def launch(
    integration: Annotated[
        str, typer.Argument(metavar="claude|codex|opencode", help="None: list them.", show_default=False)
    ] = "",
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="ARGS", help="For the program.", show_default=False),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="Default: the newest that knows tools.", show_default=False)
    ] = "",
    config: Annotated[
        bool, typer.Option("--config", help="Only print the environment and the command line.")
    ] = False,
) -> None:
    """Launch a coding agent with a model of this server.

    Its own configuration is left alone; -- comes before what is meant for it.
    """
    from puna.cli.connection import connect_or_start
    from puna.cli.launch.launch import describe_integrations, find_integration, show_config
    from puna.cli.launch.launch import launch as launch_program
    from puna.config.settings import Settings

    if not integration:
        print(describe_integrations())
        return
    find_integration(integration)
    settings = Settings.from_environment()
    if config and model:
        from puna.cli.client import Client

        show_config(Client(settings.host), integration, model, arguments or [])
        return
    with connect_or_start(settings) as client:
        (show_config if config else launch_program)(client, integration, model, arguments or [])
