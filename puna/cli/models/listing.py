"""The commands on stored and loaded models: list, ps, rm, stop."""

from __future__ import annotations

from contextlib import suppress

from puna.cli.client import Client, Json
from puna.cli.errors import CliError, ServerError
from puna.cli.output.human import human_size, time_ago, time_until
from puna.cli.output.json import print_json
from puna.cli.output.table import table
from puna.config.sizes import binary_size

_NOT_FOUND = 404


def list_models(client: Client, prefix: str = "", *, as_json: bool = False) -> None:
    """Prints the stored models whose names start with `prefix`; as JSON, what the server says of them."""
    models = _starting_with(prefix, client.get("/api/tags")["models"])
    if as_json:
        print_json({"models": models})
        return
    rows = [["NAME", "ID", "SIZE", "MODIFIED"]]
    rows += [
        [model["name"], model["digest"][:12], human_size(model["size"]), time_ago(model["modified_at"])]
        for model in models
    ]
    print(table(rows))


def list_local(client: Client, prefix: str = "", *, as_json: bool = False) -> None:
    """Prints the models of other programs whose names start with `prefix`."""
    models = _starting_with(prefix, client.get("/api/local")["models"])
    if as_json:
        print_json({"models": models})
        return
    rows = [["NAME", "SIZE", "MODIFIED", "SOURCE"]]
    rows += [
        [model["name"], human_size(model["size"]), time_ago(model["modified_at"]), model["source"]]
        for model in models
    ]
    print(table(rows))


def list_loaded(client: Client, prefix: str = "", *, verbose: bool = False, as_json: bool = False) -> None:
    """Prints the models in memory whose names start with `prefix`; verbose: and the server's processes."""
    reply = client.get("/api/ps")
    reply["models"] = _starting_with(prefix, reply["models"])
    if as_json:
        print_json(reply)
        return
    rows = [["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "KV", "CACHED", "UNTIL"]]
    rows += [
        [
            model["name"],
            model["digest"][:12],
            human_size(model["size"]),
            _processor(model),
            str(model.get("context_length", "")),
            *_kv(model),
            time_until(model["expires_at"]),
        ]
        for model in reply["models"]
    ]
    print(table(rows))
    if verbose:
        print()
        processes = [[p["name"], str(p["pid"]), p["cage"]] for p in reply.get("processes", [])]
        print(table([["PROCESS", "PID", "HELD BY"], *processes]))


def _processor(model: Json) -> str:
    """And the engine, if it is not the usual one."""
    where = processor(model["size"], model.get("size_vram", 0))
    return f"{where}, {engine}" if (engine := model.get("engine", "native")) != "native" else where


def _kv(model: Json) -> list[str]:
    """KV memory, and how much of it is only cached; nothing if the server does not say."""
    kv = model.get("kv")
    return [binary_size(kv["committed"]), binary_size(kv["cached"])] if kv else ["", ""]


def _starting_with(prefix: str, models: list[Json]) -> list[Json]:
    return [model for model in models if model["name"].lower().startswith(prefix.lower())]


def processor(size: int, size_vram: int) -> str:
    """Where a loaded model lies, in percent; sizes in bytes."""
    if size_vram == 0:
        return "100% CPU"
    if size_vram == size:
        return "100% GPU"
    if size_vram > size or size == 0:
        return "Unknown"
    cpu_percent = round((size - size_vram) / size * 100)
    return f"{cpu_percent}%/{100 - cpu_percent}% CPU/GPU"


def copy(client: Client, source: str, destination: str) -> None:
    """Gives a model another name."""
    client.post("/api/copy", {"source": source, "destination": destination})
    print(f"copied '{source}' to '{destination}'")


def remove(client: Client, names: list[str]) -> None:
    """Unloads and deletes models, up to the first that cannot be."""
    for name in names:
        with suppress(ServerError):  # a damaged model cannot be unloaded, but deleted
            unload(client, name)
        client.delete("/api/delete", {"model": name})
        print(f"deleted '{name}'")


def stop(client: Client, name: str) -> None:
    """Unloads a model."""
    try:
        unload(client, name)
    except ServerError as error:
        if error.status == _NOT_FOUND:
            raise CliError(f'couldn\'t find model "{name}" to stop') from None
        raise


def unload(client: Client, name: str) -> None:
    """Asks the server to drop the model from memory once it is idle."""
    client.post("/api/generate", {"model": name, "keep_alive": 0, "stream": False})
