"""The commands of `puna session`."""

from __future__ import annotations

from typing import Annotated

import typer

from puna.cli.parameters import AsJson, Model, open_client

session_app = typer.Typer(
    help="Keep the KV of conversations, in memory and on disk.", no_args_is_help=True, rich_markup_mode=None
)

Session = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@session_app.command("save")
def session_save(model: Model, name: Session) -> None:
    """Save a session from memory to disk."""
    from puna.cli.sessions.session import save_session

    with open_client() as client:
        save_session(client, model, name)


@session_app.command("load")
def session_load(model: Model, name: Session) -> None:
    """Load a saved session into memory."""
    from puna.cli.sessions.session import load_session

    with open_client() as client:
        load_session(client, model, name)


@session_app.command("list")
def session_list(
    prefix: Annotated[str, typer.Argument(metavar="MODEL", show_default=False)] = "",
    as_json: AsJson = False,
) -> None:
    """List sessions, in memory and on disk."""
    from puna.cli.sessions.session import list_sessions

    with open_client() as client:
        list_sessions(client, prefix, as_json=as_json)


session_app.command("ls", hidden=True)(session_list)


@session_app.command("rm")
def session_rm(
    model: Model, names: Annotated[list[str], typer.Argument(metavar="NAME", show_default=False)]
) -> None:
    """Remove sessions from memory and disk."""
    from puna.cli.sessions.session import remove_sessions

    with open_client() as client:
        remove_sessions(client, model, names)
