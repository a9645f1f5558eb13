"""Where snapshots are taken, and which of them are worth their memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.engine.caching.snapshots import spacing_of, stops_of, worn_out
from puna.engine.sequences.snapshot_plan import SnapshotPlan

pytestmark = pytest.mark.unit

POSITIONS = st.lists(st.integers(1, 100_000), unique=True, max_size=40).map(sorted)


def test_the_spacing_is_what_a_state_costs_within_bounds():
    assert spacing_of(48 << 20, 32 << 10) == 1536
    assert spacing_of(1 << 10, 1 << 10) == 512
    assert spacing_of(1 << 30, 1 << 10) == 4096
    assert spacing_of(1 << 30, 0) == 4096  # a model with recurrent layers only


@pytest.mark.parametrize(
    ("begin", "boundaries", "num_matched", "stops"),
    [
        (0, [], 0, []),
        (0, [40], 0, [40]),  # the last boundary always
        (0, [100, 5000], 0, [5000]),  # little is saved at the others
        (0, [200, 5000], 0, [200, 5000]),
        (0, [3000, 3100, 5000], 0, [3000, 5000]),
        (3000, [3000, 5000], 3010, [5000]),  # the usual turn: it parts within what asks for the reply
        (3000, [3000, 5000], 4500, [4500, 5000]),
        (0, [3000, 5000], 3200, [3000, 5000]),
        (6000, [3000, 5000], 6000, []),  # the prompt of before
        (0, [], 1000, [1000]),
    ],
)
def test_where_chunks_end(begin, boundaries, num_matched, stops):
    assert sorted(stops_of(begin, boundaries, num_matched, 1500)) == stops


def test_of_a_long_path_fewer_are_kept_the_further_back():
    positions = list(range(500, 32001, 500))
    worn = set(worn_out(positions, {4000}, 500))
    assert [p for p in positions if p not in worn] == [4000, 16000, 24000, 28000, 30000, 31000, 31500, 32000]


@given(POSITIONS, st.sets(st.integers(1, 100_000)), st.integers(512, 4096))
def test_what_is_worn_out_costs_at_most_as_much_again(positions, useful, spacing):
    worn = set(worn_out(positions, useful, spacing))
    kept = [position for position in positions if position not in worn]
    assert worn.isdisjoint({*positions[-2:], *useful})
    for position in worn:
        behind = min(p for p in kept if p > position)
        assert behind - position < max(spacing, positions[-1] - behind)


def test_a_plan_says_where_the_next_chunk_ends():
    plan = SnapshotPlan()
    plan.begin(100, [300, 200])
    assert plan.room(100, 500) == 100
    assert plan.room(100, 50) == 50
    assert plan.room(200, 500) == 100
    plan.add_stop(250)
    plan.add_stop(250)
    assert plan.room(200, 500) == 50
    assert plan.is_stop(250)
    assert not plan.is_stop(100)
    assert plan.room(300, 500) == 500
