"""`puna --version`: of the server that answers, and of this client where it differs."""

from __future__ import annotations

from puna import __version__
from puna.cli.client import Client
from puna.cli.errors import CliError
from puna.cli.output.terminal import one_line
from puna.config.settings import Settings


def show_version() -> None:
    """Prints both versions, or a warning that there is no server."""
    try:
        with Client(Settings.from_environment().host) as client:
            reply = client.get("/api/version")
    except CliError:
        print("Warning: could not connect to a running puna instance")
        print(f"Warning: client version is {__version__}")
        return
    server = str(reply.get("puna") or reply.get("version", ""))  # of Ollama, if that is who answers
    print(f"puna version is {one_line(server)}")
    if server != __version__:
        print(f"Warning: client version is {__version__}")
