"""`puna kv`: the memory that all models share."""

from __future__ import annotations

from puna.cli.client import Client, Json
from puna.cli.errors import CliError
from puna.cli.kv.tokens import token_lines
from puna.cli.output.json import print_json
from puna.cli.output.terminal import one_line
from puna.config.quantities import parse_memory_limit
from puna.config.sizes import binary_size

_MIN_NAME_WIDTH = 12
_WIDTHS = {
    "RESERVED": 8,
    "COMMITTED": 9,
    "IN USE": 8,
    "CACHED": 8,
    "GUARANTEED": 10,
    "HITS": 4,
    "REQUESTS": 8,
}
"""Those of the largest numbers, so that columns stay where they are as numbers change."""
_LEAST_MISSED = ("RESERVED", "GUARANTEED", "HITS", "CACHED", "COMMITTED")
"""Columns that go where lines are short, the first first."""
_GAP = "  "


def show_stats(client: Client, *, as_json: bool = False) -> None:
    """Prints the state of the memory once; as JSON, what the server says."""
    if as_json:
        print_json(client.get("/api/kv"))
        return
    memory = client.get("/api/kv")
    tables = [model_lines(memory), token_lines(memory), _summary(memory)]
    print("\n\n".join("\n".join(lines) for lines in tables if lines))


def limit(client: Client, kv_limit: int | None, memory_limit: int | None) -> None:
    """Changes limits, in bytes, of the running server; shows them if none is given."""
    if kv_limit is None and memory_limit is None:
        print("\n".join(_summary(client.get("/api/kv"))))
        return
    body = {"kv_limit": kv_limit, "memory_limit": memory_limit}
    now = client.post("/api/kv/limit", {name: size for name, size in body.items() if size is not None})
    print(f"limit of KV: {binary_size(now['kv_limit'])}, of all memory: {binary_size(now['memory_limit'])}")
    for warning in now.get("warnings", []):
        print(f"note: {one_line(warning)}")
    if now["excess"]:
        print(one_line(now["note"]))


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
    rows = [row for model in memory["models"] for row in (_cells(model), *_group_cells(model))]
    if memory["leased"]:
        leased = binary_size(memory["leased"])
        rows.append({"NAME": "(others)", "COMMITTED": leased, "IN USE": leased})
    if len(memory["models"]) + bool(memory["leased"]) > 1:
        rows.append(_total_cells(memory))
    if not rows:
        return []
    columns = _columns(memory, width)
    rows.insert(0, {title: title for title in ("NAME", *columns)})
    name_width = max(len(row["NAME"]) for row in rows)
    if width is not None:
        name_width = min(name_width, max(_left(width, columns), _MIN_NAME_WIDTH))
    return [_line(row, name_width, columns) for row in rows]


def _columns(memory: Json, width: int | None) -> list[str]:
    columns = list(_WIDTHS)
    if not any(model["guaranteed"] for model in memory["models"]):
        columns.remove("GUARANTEED")
    for column in _LEAST_MISSED:
        if width is not None and _left(width, columns) < _MIN_NAME_WIDTH and column in columns:
            columns.remove(column)
    return columns


def _left(width: int, columns: list[str]) -> int:
    return width - sum(_WIDTHS[column] + len(_GAP) for column in columns)


def _line(row: dict[str, str], name_width: int, columns: list[str]) -> str:
    name = row["NAME"]
    if len(name) > name_width:
        name = name[: name_width - 1] + "…"
    aligned = (row.get(column, "").rjust(_WIDTHS[column]) for column in columns)
    return _GAP.join([name.ljust(name_width), *aligned]).rstrip()


def _cells(model: Json) -> dict[str, str]:
    return {
        "NAME": one_line(model["name"]),
        "RESERVED": binary_size(model["reserved"]),
        "COMMITTED": binary_size(model["committed"]),
        "IN USE": binary_size(model["used"]),
        "CACHED": binary_size(model["cached"]),
        "GUARANTEED": binary_size(model["guaranteed"]),
        "HITS": "-" if model["hit_rate"] is None else f"{model['hit_rate']:.0%}",
        "REQUESTS": "asleep" if model["state"] == "asleep" else _requests(model),
    }


def _group_cells(model: Json) -> list[dict[str, str]]:
    """Of each group of layers, where there are several."""
    groups = model["groups"] if len(model["groups"]) > 1 else []
    return [
        {
            "NAME": f"  {_group_name(group)}",
            "IN USE": binary_size(group["used"]),
            "CACHED": binary_size(group["cached"]),
        }
        for group in groups
    ]


def _group_name(group: Json) -> str:
    if group["states"]:
        return "states"
    return "all tokens" if group["window"] is None else f"window {group['window']}"


def _total_cells(memory: Json) -> dict[str, str]:
    fields = ("reserved", "cached", "guaranteed", "running", "waiting")
    total = {field: sum(model[field] for model in memory["models"]) for field in fields}
    return {
        "NAME": "(all)",
        "RESERVED": binary_size(total["reserved"]),
        "COMMITTED": binary_size(kv_bytes(memory)),
        "IN USE": binary_size(used_bytes(memory)),
        "CACHED": binary_size(total["cached"]),
        "GUARANTEED": binary_size(total["guaranteed"]),
        "REQUESTS": _requests(total),
    }


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
