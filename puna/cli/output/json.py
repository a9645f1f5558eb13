"""What `--json` prints."""

from __future__ import annotations

import sys

import msgspec

from puna.cli.output.terminal import fit_for


def print_json(value: object) -> None:
    """On one line in a pipe, indented on a terminal."""
    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    print(fit_for(sys.stdout, data.decode()))
