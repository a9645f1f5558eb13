"""`puna kv`: the memory that all models share."""

from __future__ import annotations

from puna.cli.client import Client, Json
from puna.cli.errors import CliError
from puna.quantities import parse_memory_limit
from puna.sizes import binary_size

_MIN_NAME_WIDTH = 12
_COLUMNS = (("RESERVED", 8), ("COMMITTED", 9), ("IN USE", 8), ("CACHED", 8), ("HITS", 4), ("REQUESTS", 8))
"""And their widths: those of the largest numbers, so that columns stay where they are as numbers change."""
_GAP = "  "


def show_stats(client: Client, *, as_json: bool = False) -> None:
    """Prints the state of the memory once; as JSON, what the server says."""
    if as_json:
        print(client.get_raw("/api/kv").decode())
        return
    memory = client.get("/api/kv")
    lines = model_lines(memory)
    print("\n".join([*lines, *([""] if lines else []), *_summary(memory)]))


def limit(client: Client, kv_limit: int | None, memory_limit: int | None) -> None:
    """Changes limits, in bytes, of the running server; shows them if none is given."""
    if kv_limit is None and memory_limit is None:
        print("\n".join(_summary(client.get("/api/kv"))))
        return
    body = {"kv_limit": kv_limit, "memory_limit": memory_limit}
    now = client.post("/api/kv/limit", {name: size for name, size in body.items() if size is not None})
    print(f"limit of KV: {binary_size(now['kv_limit'])}, of all memory: {binary_size(now['memory_limit'])}")
    if now["excess"]:
        print(now["note"])


def trim(client: Client) -> None:
    """Has the server give back what no request needs now."""
    print(f"gave back {binary_size(client.post('/api/kv/trim', {})['freed'])}")


def parse_limit_argument(text: str) -> int | None:
    """Bytes; None for no text. Raises CliError."""
    if not text:
        return None
    try:
        return parse_memory_limit(text)
    except ValueError as error:
        raise CliError(str(error)) from None


def kv_bytes(memory: Json) -> int:
    """What counts to the limit of KV."""
    return int(memory["committed"] + memory["leased"])


def used_bytes(memory: Json) -> int:
    """What of kv_bytes() cannot be given back."""
    return int(sum(model["used"] for model in memory["models"]) + memory["leased"])


def weight_bytes(memory: Json) -> int:
    """What counts to the limit of all memory besides KV; weights of a model that sleeps do not."""
    return int(sum(model["weights"] for model in memory["models"] if model["state"] != "asleep"))


def model_lines(memory: Json, width: int | None = None) -> list[str]:
    """A table of the models, none if there are none. width: what lines may take; None: what they need."""
    models, leased = memory["models"], memory["leased"]
    rows = [[model["name"], *_cells(model)] for model in models]
    if leased:
        rows.append(["(others)", "", binary_size(leased), binary_size(leased), "", "", ""])
    if len(rows) > 1:
        rows.append(["(all)", *_total_cells(memory)])
    if not rows:
        return []
    rows = [["NAME", *(title for title, _ in _COLUMNS)], *rows]
    name_width = max(len(row[0]) for row in rows)
    widths = [column_width for _, column_width in _COLUMNS]
    if width is None:
        return [_line(row, name_width, widths) for row in rows]
    if _left(width, widths) < _MIN_NAME_WIDTH:
        rows, widths = [[row[0], *row[2:]] for row in rows], widths[1:]  # mere addresses are missed least
    name_width = min(name_width, max(_left(width, widths), _MIN_NAME_WIDTH))
    return [_line(row, name_width, widths) for row in rows]


def _left(width: int, widths: list[int]) -> int:
    return width - sum(widths) - len(_GAP) * len(widths)


def _line(row: list[str], name_width: int, widths: list[int]) -> str:
    name, *cells = row
    if len(name) > name_width:
        name = name[: name_width - 1] + "…"
    aligned = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join([name.ljust(name_width), *aligned]).rstrip()


def _cells(model: Json) -> list[str]:
    sizes = [binary_size(model[field]) for field in ("reserved", "committed", "used", "cached")]
    hits = "-" if model["hit_rate"] is None else f"{model['hit_rate']:.0%}"
    return [*sizes, hits, "asleep" if model["state"] == "asleep" else _requests(model)]


def _total_cells(memory: Json) -> list[str]:
    models = memory["models"]
    total = {field: sum(model[field] for model in models) for field in ("reserved", "running", "waiting")}
    cached = sum(model["cached"] for model in models)
    sizes = [total["reserved"], kv_bytes(memory), used_bytes(memory), cached]
    return [*map(binary_size, sizes), "", _requests(total)]


def _requests(counts: Json) -> str:
    return f"{counts['running']} +{counts['waiting']}" if counts["waiting"] else str(counts["running"])


def _summary(memory: Json) -> list[str]:
    committed, used, weights = kv_bytes(memory), used_bytes(memory), weight_bytes(memory)
    everything = _of(committed + weights, memory["memory_limit"])
    lines = [
        f"KV          {_of(committed, memory['kv_limit'])}, {binary_size(used)} of it in use",
        f"all memory  {everything}, {binary_size(weights)} of it weights",
    ]
    if disk := memory["disk"]:
        lines.append(f"disk        {_of(disk['size'], disk['limit'])}")
    return lines


def _of(size: int, limit: int) -> str:
    return f"{binary_size(size)} of {binary_size(limit)}"
