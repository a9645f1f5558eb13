"""Every test of the kernels runs with each instruction set that this machine has."""

from __future__ import annotations

import pytest

from puna._native import cpu_info


@pytest.fixture(params=cpu_info().isas)
def isa(request: pytest.FixtureRequest) -> str:
    return request.param
