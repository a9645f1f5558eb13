"""`puna session`: KV that the server keeps under a name."""

from __future__ import annotations

from puna.cli.client import Client, Json
from puna.cli.output.human import human_size, time_ago
from puna.cli.output.json import print_json
from puna.cli.output.table import table
from puna.cli.output.terminal import one_line


def save_session(client: Client, model: str, name: str) -> None:
    """From memory to disk."""
    _report("saved", client.post("/api/sessions/save", {"model": model, "name": name}))


def load_session(client: Client, model: str, name: str) -> None:
    """From disk to memory."""
    _report("loaded", client.post("/api/sessions/load", {"model": model, "name": name}))


def list_sessions(client: Client, prefix: str = "", *, as_json: bool = False) -> None:
    """Prints the sessions of the models whose names start with `prefix`."""
    sessions = [
        session
        for session in client.get("/api/sessions")["sessions"]
        if session["model"].lower().startswith(prefix.lower())
    ]
    if as_json:
        print_json({"sessions": sessions})
        return
    rows = [["NAME", "MODEL", "TOKENS", "SIZE", "STATE", "SAVED"]]
    rows += [
        [
            session["name"],
            session["model"],
            str(session["tokens"]),
            human_size(session["size"]),
            _state(session),
            time_ago(session["saved_at"]) if session["saved"] else "Never",
        ]
        for session in sessions
    ]
    print(table(rows))


def remove_sessions(client: Client, model: str, names: list[str]) -> None:
    """Forgets sessions, in memory and on disk, up to the first that cannot be."""
    for name in names:
        client.delete("/api/sessions", {"model": model, "name": name})
        print(f"deleted session '{name}'")


def _report(done: str, session: Json) -> None:
    size = human_size(session["size"])
    name, model = one_line(session["name"]), one_line(session["model"])
    print(f"{done} session '{name}' of {model}: {session['tokens']} tokens, {size}")


def _state(session: Json) -> str:
    if session["pinned"]:
        return "in memory"
    return "on disk" if session["saved"] else "dropped"
