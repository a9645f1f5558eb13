"""How far state machines are run: PUNA_DEEP=100 runs a hundred times as many examples as a usual test run."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def machine_settings(max_examples: int, steps: int) -> settings:
    return settings(
        max_examples=max_examples * int(os.environ.get("PUNA_DEEP", "1")),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
