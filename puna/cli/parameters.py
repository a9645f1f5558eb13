"""What several commands have in common: their arguments, and the server that they talk to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from puna.cli.client import Client

Model = Annotated[str, typer.Argument(metavar="MODEL", show_default=False)]
Prefix = Annotated[
    str, typer.Argument(metavar="PREFIX", help="Only names that start so.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Use plain http for the registry.")]


def open_client() -> Client:
    from puna.cli.connection import connect
    from puna.config.settings import Settings

    return connect(Settings.from_environment())
