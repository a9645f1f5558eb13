"""`puna pull` and `puna push`."""

from __future__ import annotations

from puna.cli.client import Client
from puna.cli.output.progress import progress_display, show_statuses
from puna.registry.name import DEFAULT_HOST, ModelName


def pull(client: Client, model: str, *, insecure: bool = False) -> None:
    """Has the server fetch the model, showing its progress."""
    with progress_display() as display:
        show_statuses(client.stream("/api/pull", {"model": model, "insecure": insecure}), display)


def push(client: Client, model: str, *, insecure: bool = False) -> None:
    """Has the server send the model to its registry, showing its progress."""
    with progress_display() as display:
        show_statuses(client.stream("/api/push", {"model": model, "insecure": insecure}), display)
    name = ModelName.parse(model)
    if name.host == DEFAULT_HOST:
        print(f"\nYou can find your model at:\n\n\thttps://ollama.com/{name.namespace}/{name.model}\n")
