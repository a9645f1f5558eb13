"""The commands of `puna kv`."""

from __future__ import annotations

from typing import Annotated

import typer

from puna.cli.parameters import AsJson, open_client

kv_app = typer.Typer(
    help="Watch and limit the memory that all models share.", no_args_is_help=True, rich_markup_mode=None
)


@kv_app.command("top")
def kv_top() -> None:
    """Watch the memory of each model; q quits. (REQUESTS: running +waiting.)"""
    from puna.cli.kv.top import top

    with open_client() as client:
        top(client)


@kv_app.command("stats")
def kv_stats(as_json: AsJson = False) -> None:
    """Show the memory of each model once."""
    from puna.cli.kv.stats import show_stats

    with open_client() as client:
        show_stats(client, as_json=as_json)


@kv_app.command("limit")
def kv_limit(
    size: Annotated[str, typer.Argument(metavar="SIZE", show_default=False)] = "",
    all_memory: Annotated[
        str, typer.Option("--all-memory", metavar="SIZE", help="Limit weights and KV together.")
    ] = "",
) -> None:
    """Limit the KV memory of all models.

    SIZE is such as 4GB, and holds until the server ends; without it, the limits are shown.
    """
    from puna.cli.kv.stats import limit, parse_limit_argument

    limits = parse_limit_argument(size), parse_limit_argument(all_memory)
    with open_client() as client:
        limit(client, *limits)


@kv_app.command("trim")
def kv_trim() -> None:
    """Give the memory that no request needs now back to the system."""
    from puna.cli.kv.stats import trim

    with open_client() as client:
        trim(client)
