"""Drafts change how many rows a call samples, never what comes out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna._native import NativeError, Sampler, SampleResult, ThreadPool, cpu_info, sample_batch
from tests.sampler.reference import Params

pytestmark = pytest.mark.native

VOCABULARY = 30
HISTORY = [1, 2, 3, 4, 5]
CHAINS = [
    Params(temperature=0.0, num_logprobs=0),
    Params(temperature=0.0, repeat_penalty=1.5, repeat_last_n=3),
    Params(num_logprobs=4),
    Params(top_k=5, top_p=0.9, repeat_penalty=1.4, presence_penalty=0.5, num_logprobs=2),
    Params(typical_p=0.8, frequency_penalty=1.5, repeat_last_n=-1, logit_bias={7: 2.0}),
]


def logits_of(rows: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, rows]).standard_normal((rows, VOCABULARY)).astype(np.float32)


def samplers(count: int) -> list[Sampler]:
    return [CHAINS[i % len(CHAINS)].sampler(HISTORY, seed=i) for i in range(count)]


def sample(
    pool: ThreadPool,
    logits: NDArray[np.float32],
    batch: list[Sampler],
    drafts: Sequence[Sequence[int]],
    isa: str = "auto",
) -> SampleResult:
    tokens = np.array([token for draft in drafts for token in draft], np.int32)
    return sample_batch(pool, logits, batch, tokens, starts_of(drafts), isa)


def starts_of(drafts: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    return np.cumsum([0, *map(len, drafts)]).astype(np.int32)


def one_by_one(
    pool: ThreadPool, logits: NDArray[np.float32], sampler: Sampler, draft: Sequence[int]
) -> list[tuple[int, str, list[tuple[int, float]]]]:
    """What must come out: a row at a time while the tokens are those of the draft."""
    drawn = []
    for row, expected in zip(logits, [*draft, None], strict=True):
        result = sample_batch(pool, row[None], [sampler])
        drawn.append((int(result.tokens[0]), repr(result.logprobs[0]), result.top_tokens[0]))
        if drawn[-1][0] != expected:
            break
    return drawn


def by_sampler(result: SampleResult) -> list[list[tuple[int, str, list[tuple[int, float]]]]]:
    rows = list(
        zip(result.tokens.tolist(), map(repr, result.logprobs), result.top_tokens, strict=True),
    )
    assert result.starts[-1] == len(rows)
    return [rows[a:b] for a, b in zip(result.starts, result.starts[1:], strict=False)]


def right_drafts(pool: ThreadPool, logits: NDArray[np.float32], lengths: Sequence[int]) -> list[list[int]]:
    """For each sampler, the tokens that it will give."""
    drafts, row = [], 0
    for sampler, length in zip(samplers(len(lengths)), lengths, strict=True):
        rows = logits[row : row + length]
        drafts.append([int(sample_batch(pool, x[None], [sampler]).tokens[0]) for x in rows])
        row += length + 1
    return drafts


def same_state(pool: ThreadPool, one: list[Sampler], other: list[Sampler]) -> bool:
    """Whether they give the same from now on."""
    rows = logits_of(len(one), seed=9)
    return all(
        sample_batch(pool, rows, one).tokens.tolist() == sample_batch(pool, rows, other).tokens.tolist()
        for _ in range(6)
    )


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), max_size=7),
    wrong=st.lists(st.integers(0, 4), max_size=4),
    seed=st.integers(0, 5),
)
def test_as_row_by_row(lengths: list[int], wrong: list[int], seed: int, pool: ThreadPool) -> None:
    """wrong: places, counted through all samplers' drafts, where the draft is another token."""
    logits = logits_of(sum(lengths) + len(lengths), seed)
    drafts = right_drafts(pool, logits, lengths)
    for sampler, place in enumerate(wrong):
        if sampler < len(drafts) and place < len(drafts[sampler]):
            drafts[sampler][place] = (drafts[sampler][place] + 1) % VOCABULARY
    first_rows = starts_of(drafts) + np.arange(len(drafts) + 1)
    expected_samplers, batch = samplers(len(drafts)), samplers(len(drafts))
    expected = [
        one_by_one(pool, logits[a:b], sampler, draft)
        for a, b, sampler, draft in zip(first_rows, first_rows[1:], expected_samplers, drafts, strict=False)
    ]
    assert by_sampler(sample(pool, logits, batch, drafts)) == expected
    assert same_state(pool, batch, expected_samplers)


@pytest.mark.parametrize("isa", cpu_info().isas)
def test_right_drafts_are_all_accepted(isa: str, pool: ThreadPool) -> None:
    lengths = [3, 0, 5, 1, 2]
    logits = logits_of(sum(lengths) + len(lengths))
    drafts = right_drafts(pool, logits, lengths)
    result = sample(pool, logits, samplers(5), drafts, isa)
    assert np.diff(result.starts).tolist() == [length + 1 for length in lengths]
    assert [list(map(int, tokens))[:-1] for tokens in np.split(result.tokens, result.starts[1:-1])] == drafts


def test_wrong_drafts_give_one_token_each(pool: ThreadPool) -> None:
    lengths = [3, 0, 5, 1, 2]
    logits = logits_of(sum(lengths) + len(lengths))
    firsts = logits[starts_of([[0] * n for n in lengths])[:-1] + np.arange(5)]
    expected = sample_batch(pool, firsts, samplers(5)).tokens
    drafts = [[(token + 1) % VOCABULARY] * n for token, n in zip(expected.tolist(), lengths, strict=True)]
    result = sample(pool, logits, samplers(5), drafts)
    assert result.starts.tolist() == list(range(6))
    assert result.tokens.tolist() == expected.tolist()


def test_drafts_that_are_no_tokens_are_wrong(pool: ThreadPool) -> None:
    result = sample(pool, logits_of(3), samplers(1), [[-1, 2**31 - 1]])
    assert result.starts.tolist() == [0, 1]


def test_without_drafts_each_sampler_has_one_token(pool: ThreadPool) -> None:
    logits = logits_of(5)
    plain = sample_batch(pool, logits, samplers(5))
    assert plain.starts.tolist() == [0, 1, 2, 3, 4, 5]
    assert by_sampler(plain) == by_sampler(sample(pool, logits, samplers(5), [[]] * 5))
    assert sample(pool, logits[:0], [], []).starts.tolist() == [0]


def test_same_on_any_number_of_threads(pool: ThreadPool) -> None:
    """Large enough for the threads to be woken: fewer samplers than threads, and more."""
    rng = np.random.default_rng(3)
    single, three = ThreadPool(1), ThreadPool(3)
    for lengths in ([4], [2, 0, 3, 1, 2]):
        logits = (rng.standard_normal((sum(lengths) + len(lengths), 100_000)) * 3).astype(np.float32)
        drafts = right_drafts(pool, logits, lengths)
        results = [sample(p, logits, samplers(len(lengths)), drafts) for p in (single, pool, three)]
        assert by_sampler(results[0]) == by_sampler(results[1]) == by_sampler(results[2])
        assert len(results[0].tokens) == len(logits)
    single.close()
    three.close()


def test_row_that_cannot_be_sampled_waits_until_it_is_the_first(pool: ThreadPool) -> None:
    lengths = [2, 3, 1]
    logits = logits_of(9)
    drafts = right_drafts(pool, logits, lengths)
    sound = by_sampler(sample(pool, logits, samplers(3), drafts))
    bad = logits.copy()
    bad[5, 3] = np.nan  # the second sampler's third row
    batch = samplers(3)
    result = sample(pool, bad, batch, drafts)
    assert by_sampler(result) == [sound[0], sound[1][:2], sound[2]]
    assert result.errors == {}
    result = sample(pool, bad[5:6], batch[1:2], [[]])
    assert (result.errors, len(result.tokens)) == ({0: "a logit is NaN"}, 0)
    assert by_sampler(sample(pool, logits[5:6], batch[1:2], [[]])) == [sound[1][2:3]]


def test_row_behind_a_wrong_draft_may_be_anything(pool: ThreadPool) -> None:
    logits = logits_of(4)
    drafts = right_drafts(pool, logits, [3])
    drafts[0][1] = (drafts[0][1] + 1) % VOCABULARY
    logits[2:] = np.nan
    assert sample(pool, logits, samplers(1), drafts).starts.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("num_rows", "drafts", "starts", "match"),
    [
        (2, [5, 5], [0, 1, 2], "logits have 2 rows, but there are 2 samplers and 2 drafts"),
        (4, [5, 5], [0, 2], "draft_starts has 2 entries for 2 samplers"),
        (4, [5, 5], [], "draft_starts has no entries"),
        (4, [5, 5], [0, 1, 1], "does not run from 0 to the number of drafts, 2"),
        (4, [5, 5], [1, 1, 2], "does not run from 0"),
        (4, [5, 5], [0, -1, 2], "draft_starts decreases at entry 1"),
        (4, [5, 5], [0, 3, 2], "draft_starts decreases at entry 2"),
        (4, [5, 5], None, "go together"),
        (2, None, [0, 0, 0], "go together"),
    ],
)
def test_what_does_not_fit_is_refused(
    num_rows: int, drafts: list[int] | None, starts: list[int] | None, match: str, pool: ThreadPool
) -> None:
    arrays = [None if values is None else np.array(values, np.int32) for values in (drafts, starts)]
    batch = samplers(2)
    with pytest.raises(NativeError, match=match):
        sample_batch(pool, logits_of(num_rows), batch, *arrays)
    assert same_state(pool, batch, samplers(2))


def test_drafts_are_int32(pool: ThreadPool) -> None:
    with pytest.raises(TypeError):
        sample_batch(pool, logits_of(2), samplers(1), np.array([5]), np.array([0, 1]))
