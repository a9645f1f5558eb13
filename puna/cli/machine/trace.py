"""`puna trace`: the server's timeline in a file."""

from __future__ import annotations

from pathlib import Path

from puna.cli.client import Client
from puna.cli.errors import CliError


def save_trace(client: Client, path: Path, seconds: float | None) -> None:
    """Writes Chrome trace events, of the last `seconds` or as far back as the server knows.

    Raises CliError.
    """
    data = client.get_raw("/debug/trace" if seconds is None else f"/debug/trace?seconds={seconds:f}")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from error
    print(f"wrote {path}; open it in https://ui.perfetto.dev or chrome://tracing")
