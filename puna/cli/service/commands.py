"""The commands of `puna service`."""

from __future__ import annotations

from typing import Annotated

import typer

service_app = typer.Typer(
    help="Run the server as a service of systemd.", no_args_is_help=True, rich_markup_mode=None
)

IsSystem = Annotated[
    bool, typer.Option("--system", help="Of the whole system, under a user of its own; for root.")
]


@service_app.command("install")
def service_install(
    is_system: IsSystem = False,
    dry_run: Annotated[bool, typer.Option("--print", help="Only print the unit.")] = False,
) -> None:
    """Install and start it, with the settings of this environment."""
    import os

    from puna.cli.service.service import install, text_for

    if dry_run:
        print(text_for(os.environ, is_system=is_system), end="")
    else:
        install(is_system=is_system)


@service_app.command("uninstall")
def service_uninstall(is_system: IsSystem = False) -> None:
    """Stop and remove the service; models stay."""
    from puna.cli.service.service import uninstall

    uninstall(is_system=is_system)


@service_app.command("status")
def service_status(is_system: IsSystem = False) -> None:
    """Show whether the service is running."""
    from puna.cli.service.service import status

    raise typer.Exit(status(is_system=is_system))
