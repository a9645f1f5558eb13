from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.overhead.comparing import Figure, Results
from benchmarks.overhead.footprint import file_pages
from benchmarks.overhead.kinds import PLAIN, KindResults, Measure, Sample
from benchmarks.overhead.replay import write_replay
from puna import LLM
from puna.engine.request import SamplingParams

pytestmark = pytest.mark.native


def test_the_replayed_model_says_words_that_do_not_repeat(smollm2_path: Path, tmp_path: Path):
    target = tmp_path / "replay.gguf"
    write_replay(smollm2_path, target)
    with LLM(target) as llm:
        greedy = SamplingParams(temperature=0)
        one, other = llm.generate(["Hello there.", "1 + 1 ="], max_tokens=200, sampling=greedy)
    assert one.text == other.text
    words = one.text.split(" ")[1:]
    assert len(words) == len(set(words)) == 200


def test_floors_are_about_the_median_and_about_neighbours_in_time():
    results = Results(["new", "old"])
    figure = Figure("steps", "ms", most=3, most_added=1)
    for new, old in [(2, 1), (12, 11), (3, 1)]:
        results.add(figure, "new", new)
        results.add(figure, "old", old)
    row = results.markdown().splitlines()[-1]
    assert row == "| steps, ms | 2 / 3 / 12 | 1 / 1 / 11 | +1 (minima +1) | ≤ 3: met; added ≤ 1: met |"


def test_chats_with_tools_may_take_a_tenth_more_above_the_engines_own():
    results = KindResults()
    measure = Measure("first token", "ms", 1, most=2)
    for kind, above in [(PLAIN, 2.0), ("12 tools", 2.2), ("JSON schema", 2.3)]:
        results.add(measure, kind, Sample(3 + above, 3))
    row = results.markdown().splitlines()[-1]
    assert row.startswith("| first token, ms | 5.0, +2.0 (+2.0) | 5.2, +2.2 (+2.2) |")
    assert row.endswith("| ≤ 2: met, met, missed |")


def test_pages_of_files_without_private_copies():
    smaps = """\
7f00-7f10 r--p 00002000 08:01 77 /lib/a.so
Rss:                  64 kB
Anonymous:            16 kB
7f20-7f30 rw-p 00000000 00:00 0
Rss:                  32 kB
Anonymous:            32 kB
7f40-7f50 r--s 00000000 00:01 9 /memfd:vocabulary (deleted)
Rss:                   4 kB
Anonymous:             0 kB
"""
    pages = [(part.inode, part.offset, num_bytes) for part, num_bytes in file_pages(smaps)]
    assert pages == [(77, 0x2000, 48 * 1024), (9, 0, 4096)]
