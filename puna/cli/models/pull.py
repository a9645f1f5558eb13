"""`puna pull`."""

from __future__ import annotations

from puna.cli.client import Client
from puna.cli.output.progress import progress_display, show_statuses


def pull(client: Client, model: str, *, insecure: bool = False) -> None:
    """Has the server fetch the model, showing its progress."""
    with progress_display() as display:
        show_statuses(client.stream("/api/pull", {"model": model, "insecure": insecure}), display)
