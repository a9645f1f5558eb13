"""A whole decoder gives the right logits, and the same bits however its tokens are spread over steps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.executor.toy import Chunk, Runner
from tests.executor.transformer import VOCABULARY, build_transformer, expected_logits, random_tensors

pytestmark = pytest.mark.native

TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, 75)
OTHER = np.random.default_rng(1).integers(0, VOCABULARY, 40)
BLOCKS, OTHER_BLOCKS = [9, 2, 30, 4, 17], [3, 11, 0]


def test_float_weights_match_the_reference(tmp_path: Path, isa: str) -> None:
    tensors = random_tensors("F32")
    actual = Runner(build_transformer(tmp_path, isa, tensors)).run([Chunk(TOKENS, BLOCKS)])
    # Where a key or value lies between two half floats, float32 and float64 may round it differently.
    np.testing.assert_allclose(actual, expected_logits(tensors, TOKENS), atol=0.01)


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_1"])
def test_quantized_weights_match_the_reference(tmp_path: Path, isa: str, type_name: str) -> None:
    """Up to what 8-bit activations cost; the weights' own rounding is in the reference."""
    tensors = random_tensors(type_name)
    actual = Runner(build_transformer(tmp_path, isa, tensors)).run([Chunk(TOKENS, BLOCKS)])
    expected = expected_logits(tensors, TOKENS)
    assert np.sqrt(((actual - expected) ** 2).mean() / (expected**2).mean()) < 0.03


@pytest.mark.parametrize("type_name", ["F32", "Q4_1"])
class TestBatchInvariance:
    def test_in_chunks(self, tmp_path: Path, isa: str, type_name: str) -> None:
        runner = Runner(build_transformer(tmp_path, isa, random_tensors(type_name)))
        whole = runner.run([Chunk(TOKENS, BLOCKS)])
        for bounds in ([0, 16, 48, 75], [0, 1, 2, 40, 74, 75], range(76)):
            pieces = [runner.run([Chunk(TOKENS[a:b], BLOCKS, a)]) for a, b in pairwise(bounds)]
            np.testing.assert_array_equal(np.concatenate(pieces), whole)

    def test_beside_other_sequences(self, tmp_path: Path, isa: str, type_name: str) -> None:
        runner = Runner(build_transformer(tmp_path, isa, random_tensors(type_name)))
        alone = runner.run([Chunk(TOKENS, BLOCKS)])
        other = runner.run([Chunk(OTHER, OTHER_BLOCKS)])
        together = runner.run([Chunk(OTHER, OTHER_BLOCKS), Chunk(TOKENS, BLOCKS)])
        np.testing.assert_array_equal(together, np.concatenate([other, alone]))
        decoding = runner.run([Chunk(TOKENS[74:], BLOCKS, 74), Chunk(OTHER[20:], OTHER_BLOCKS, 20)])
        np.testing.assert_array_equal(decoding, np.concatenate([alone[74:], other[20:]]))

    def test_with_any_number_of_threads(self, tmp_path: Path, isa: str, type_name: str) -> None:
        program = build_transformer(tmp_path, isa, random_tensors(type_name))
        whole = Runner(program, num_threads=1).run([Chunk(TOKENS, BLOCKS)])
        for num_threads in (2, 3, 8):
            runner = Runner(program, num_threads=num_threads)
            np.testing.assert_array_equal(runner.run([Chunk(TOKENS, BLOCKS)]), whole)
            # Few rows: cut by columns, or computed by every thread for itself.
            for begin, end in ((40, 41), (41, 43), (74, 75)):
                for limit in (1, 2, num_threads, 99):
                    few = runner.run([Chunk(TOKENS[begin:end], BLOCKS, begin)], num_threads=limit)
                    np.testing.assert_array_equal(few, whole[begin:end])
                    one = runner.run([Chunk(TOKENS[begin:end], BLOCKS, begin)], [0], num_threads=limit)
                    np.testing.assert_array_equal(one, whole[begin : begin + 1])

    def test_in_other_blocks_and_rows(self, tmp_path: Path, isa: str, type_name: str) -> None:
        runner = Runner(build_transformer(tmp_path, isa, random_tensors(type_name)))
        whole = runner.run([Chunk(TOKENS, BLOCKS)])
        np.testing.assert_array_equal(
            runner.run([Chunk(TOKENS, [1, 5, 6, 7, 8])], rows=[74, 0]), whole[[74, 0]]
        )


def test_no_tokens_and_no_rows(tmp_path: Path, isa: str) -> None:
    runner = Runner(build_transformer(tmp_path, isa, random_tensors("Q8_0")))
    assert runner.run([]).shape == (0, VOCABULARY)
    assert runner.run([Chunk(TOKENS[:20], BLOCKS)], rows=[]).shape == (0, VOCABULARY)
    # The step without rows did its work: its keys and values are there.
    rest = runner.run([Chunk(TOKENS[20:], BLOCKS, 20)])
    fresh = Runner(runner.program).run([Chunk(TOKENS, BLOCKS)])
    np.testing.assert_array_equal(rest, fresh[20:])
