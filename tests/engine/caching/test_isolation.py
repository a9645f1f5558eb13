"""What one tenant's requests report tells nothing of what another tenant, with another salt, has computed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.toy import Results, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

TENANTS = ("", "a", "b")
PROMPTS = st.builds(
    lambda begin, end: [i % 13 for i in range(begin)] + end,
    st.integers(0, 70),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
)
ROUNDS = st.lists(  # in each, some tenants ask something at the same time
    st.dictionaries(st.sampled_from(TENANTS), st.tuples(PROMPTS, st.booleans()), min_size=1),
    min_size=1,
    max_size=6,
)
Rounds = list[dict[str, tuple[list[int], bool]]]


def cached(rounds: Rounds, **fields: object) -> dict[tuple[int, str], int]:
    """By round and tenant. Checks the answers."""
    engine, found = toy_engine(**fields), {}
    for number, questions in enumerate(rounds):
        results = Results()
        for salt, (prompt, to_disk) in questions.items():
            request = toy_request(f"{number}{salt}", prompt, 4, cache_salt=salt, cache_to_disk=to_disk)
            engine.submit(request)
            results.add(engine.step())
        run_all(engine, results)
        engine.check()
        for salt, (prompt, _) in questions.items():
            assert results.tokens[f"{number}{salt}"] == expected_tokens(prompt, 4)
            found[number, salt] = results.last[f"{number}{salt}"].stats.cached_tokens
    engine.close()
    return found


def alone(rounds: Rounds, salt: str) -> Rounds:
    return [{s: asked for s, asked in questions.items() if s == salt} for questions in rounds]


@settings(max_examples=60, deadline=None)
@given(rounds=ROUNDS)
def test_tenants_find_what_they_would_find_alone(rounds: Rounds):
    together = cached(rounds)
    for salt in TENANTS:
        expected = cached(alone(rounds, salt))
        assert {key: value for key, value in together.items() if key[1] == salt} == expected


@settings(max_examples=60, deadline=None)
@given(rounds=ROUNDS, num_slots=st.integers(1, 4), multi_user=st.booleans())
def test_slots_give_tenants_no_more_than_their_own(rounds: Rounds, num_slots: int, multi_user: bool):
    together = cached(rounds, cache_policy="slots", max_running=num_slots, multi_user_cache=multi_user)
    asked: dict[str, list[list[int]]] = {salt: [] for salt in TENANTS}
    for (number, salt), num_cached in together.items():
        prompt = rounds[number][salt][0]
        own = [common(prompt, earlier) for earlier in asked[salt]]
        assert num_cached <= max(own, default=0)
        asked[salt].append([*prompt, *expected_tokens(prompt, 4)])


def test_a_slot_for_each_tenant_is_as_good_as_being_alone():
    prompt = [i % 13 for i in range(100)]
    rounds: Rounds = [dict.fromkeys(TENANTS, (prompt, True))] * 3
    found = cached(rounds, cache_policy="slots", max_running=4)
    assert found == {(number, salt): 99 if number else 0 for number in range(3) for salt in TENANTS}


def common(a: list[int], b: list[int]) -> int:
    length = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        length += 1
    return length
