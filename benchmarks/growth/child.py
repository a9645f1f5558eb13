"""One scenario in a process of its own."""

from __future__ import annotations

import json

from benchmarks.growth.scenarios import SCENARIOS


def run(scenario: str) -> None:
    """Prints the scenario's figures and their samples as JSON."""
    print(json.dumps(SCENARIOS[scenario]()))
