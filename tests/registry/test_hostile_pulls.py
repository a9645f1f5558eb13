"""A few of the pulls of `make pulls`."""

from __future__ import annotations

import pytest

from tests.campaign.pulls import run

pytestmark = pytest.mark.unit


def test_the_store_is_consistent_whatever_the_registry_does_and_whenever_a_pull_is_killed(tmp_path):
    found = run(tmp_path, 4, "lean")
    assert found.violations == []
    assert found.num_pulls == 4
    assert found.fetched_again == 0
