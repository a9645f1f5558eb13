"""How the figures about memory come about: pairs, added latencies, shares, processes; without servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import Report, Row, Target, mebibytes, median_interval, percent, seconds
from benchmarks.memory import alternation, burst, elastic, idle, many, prefixes, switch
from benchmarks.memory.daemon import KvState, ModelKv
from benchmarks.memory.processes import Memory, children, family, memory_of, worker_of
from benchmarks.memory.static import kv_bytes_per_token, static_kv_bytes
from benchmarks.servers.clients import Stream, Usage
from benchmarks.servers.servers import Completion
from benchmarks.servers.watching import Sample, wait_until, watching
from benchmarks.weights.files import BenchFile
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

MIB = 1 << 20


def stream(sent: float, *arrivals: float, text: str = "") -> Stream:
    return Stream(sent, list(arrivals), text)


def test_the_interval_of_a_median_holds_it_and_narrows():
    few, many_ = [float(i) for i in range(10)], [i / 100 for i in range(1000)]
    assert median_interval(few) == (1, 9)
    low, high = median_interval(many_)
    assert 4.5 < low < 5 < high < 5.5
    assert median_interval([3.0]) == (3, 3)
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


def test_one_table_of_all_scenarios():
    report = Report("On a machine.")
    target = Target(0.15, is_least=False, show=seconds)
    report.scenarios["switch"] = [Row("first", "0.1 s", "1.20 s", 12, target, 0.1), Row("slowest", "0.2 s")]
    report.scenarios["idle"] = [Row("grown", "120%", target=Target(1.1, False, percent), value=1.2)]
    assert report.one_table() == (
        "On a machine.\n\n"
        "| scenario | figure | puna | llama.cpp | better | floor |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| **switch** | first | 0.1 s | 1.20 s | **12** × | ≤ 150.0 ms: met |\n"
        "|  | slowest | 0.2 s |  |  |  |\n"
        "| **idle** | grown | 120% |  |  | ≤ 110.0%: missed |\n"
    )
    records = report.scenarios["switch"][0].record()
    assert (records["value"], records["ratio"], records["met"]) == (0.1, 12, True)
    assert '"met": false' in report.json()


def test_a_target_is_about_the_value_if_there_is_one():
    assert Row("", "", ratio=3, target=Target(2)).is_met
    assert not Row("", "", ratio=3, target=Target(2), value=1).is_met
    assert Row("", "", ratio=3).is_met is None
    with pytest.raises(AssertionError):
        Row("", "", target=Target(2))


def test_memory_of_this_process_and_its_children():
    before = memory_of(os.getpid())
    block = bytearray(os.urandom(1)) * (32 * MIB)
    grown = memory_of(os.getpid())
    assert len(block) <= grown.anonymous - before.anonymous < 40 * MIB
    assert grown.pss >= grown.anonymous
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "puna.worker.engine"], stdin=subprocess.PIPE
    ) as child:
        try:
            assert child.pid in children(os.getpid())
            assert family(os.getpid())[0] == os.getpid()
            assert child.pid in family(os.getpid())
            assert worker_of(os.getpid()) == child.pid
            assert memory_of(child.pid, os.getpid()).pss > memory_of(child.pid).pss > 0
        finally:
            child.kill()
    with pytest.raises(FileNotFoundError):
        memory_of(child.pid)


def test_processes_whose_names_look_like_anything(tmp_path: Path):
    for pid, stat in {7: "7 (a) (b) S 1 7", 9: "9 (x y) R 7 7", 10: "10 (z) S 9 7"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat)
    assert children(7, tmp_path) == [9]
    (tmp_path / "7" / "smaps_rollup").write_text("Pss:  3 kB\nPss_Anon:   1 kB\n")
    assert memory_of(7, proc=tmp_path) == Memory(3072, 1024)
    (tmp_path / "9" / "smaps_rollup").write_text("")
    with pytest.raises(ValueError, match="no Pss"):
        memory_of(9, proc=tmp_path)


def test_watching_looks_until_the_end_and_says_what_went_wrong():
    numbers = iter(range(10**9))
    with watching(lambda: next(numbers), 0) as samples:
        wait_until(lambda: len(samples) > 5, 10, "nothing")
    assert [s.value for s in samples] == list(range(len(samples)))
    assert sorted(s.at for s in samples) == [s.at for s in samples]
    with pytest.raises(ZeroDivisionError), watching(lambda: 1 // 0, 0):
        pass
    with pytest.raises(RuntimeError, match="still there after 0 s"):
        wait_until(lambda: False, 0, "still there")


def test_static_kv_has_room_for_every_slot(tmp_path: Path):
    tiny = TINY["llama"]
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    file = BenchFile("tiny", tmp_path, "tiny", path)
    assert kv_bytes_per_token(file) == tiny.layers * tiny.kv_heads * tiny.head_dim * 2 * 2
    assert static_kv_bytes(file, 100, 3) == 300 * kv_bytes_per_token(file)


class Answering:
    """A server of so many tokens per second; the first answers end early."""

    def __init__(self, rate: float, num_early: int = 0) -> None:
        self.rate, self.num_early = rate, num_early
        self.prompts: list[str] = []

    def complete(self, prompt: str, num_tokens: int, *, reuse: bool = False) -> Completion:
        assert reuse, "what is computed is to be recorded"
        self.prompts.append(prompt)
        self.num_early -= 1
        generated = num_tokens - (self.num_early >= 0)
        return Completion(50, 50 / self.rate, generated, generated / self.rate)


class FakePrompts:
    def __init__(self) -> None:
        self.num_taken = 0

    def take(self, num_tokens: int) -> str:
        self.num_taken += 1
        return f"{self.num_taken}: {num_tokens}"


def test_elastic_and_static_get_the_same_prompts_in_pairs():
    a, b = Answering(99), Answering(100, num_early=1)
    rates, prompts = elastic.Rates(), FakePrompts()
    for figure in elastic._FIGURES[:2]:
        for _ in range(3):
            elastic._ask_both(figure, [(a, rates.elastic), (b, rates.static)], prompts)
    assert a.prompts == b.prompts
    assert len(set(a.prompts)) == 7
    assert rates.elastic == pytest.approx([99] * 6)
    rates.peer.append(50)
    row = elastic._row(elastic._FIGURES[0], rates)
    assert "99 tokens/s, static 100 tokens/s: 1.0% more time (median of 6 pairs" in row.puna
    assert row.value == pytest.approx(1 / 99)
    assert not row.is_met
    assert elastic._row(elastic._FIGURES[1], rates).is_met


def test_added_latency_is_that_of_the_model_which_suffers_most():
    latencies = alternation.Latencies(
        alone=([0.010] * 100, [0.020] * 100), in_turn=([0.011] * 100, [0.010] * 90 + [0.032] * 10)
    )
    assert latencies.added_s == pytest.approx(0.012)
    row = alternation._added_row("x", latencies, latencies)
    assert (row.puna, row.is_met) == ("12.0 ms", False)


def test_gaps_count_while_all_streams_come():
    gaps = alternation._gaps([stream(0, 1, 2, 3, 4, 5), stream(0, 2.5, 3.5, 4.5)])
    assert gaps == [[1], [1, 1]]
    assert alternation._gaps([stream(0, 1, 3)]) == [[2]]


def test_rows_about_a_switch():
    first, slowest, unloaded, stayed = switch._rows([0.1] * 18 + [0.2] * 2, [0.3], [0.02], "default", [1.2])
    assert first.cells()[1:] == ["100.0 ms / 200.0 ms", "1.20 s / 1.20 s", "**12**", "≤ 150.0 ms: missed"]
    assert (slowest.puna, stayed.puna) == ("200.0 ms", "20.0 ms / 20.0 ms")
    assert unloaded.ratio == pytest.approx(4)


def state(**committed: int) -> KvState:
    models = [ModelKv(name, num_bytes, 0, 0) for name, num_bytes in committed.items()]
    return KvState(100 * MIB, sum(committed.values()), 0, models)


def test_rows_about_five_models():
    answers = [[stream(0, 1, 3, text="a")], [stream(0, 2, 4, text="b")]]
    ample = [[stream(0, 1, 2, text="a")], [stream(0, 1, 2, text="c")]]
    kv = [Sample(0.0, state(a=committed * MIB)) for committed in (90, 100, 20)]
    worker = [Sample(0.0, Memory(0, anonymous * MIB)) for anonymous in (150, 160, 60)]
    course = many.Course(answers, ample, kv, worker, Memory(0, 50 * MIB))
    theirs = many.Theirs([[stream(0, 9)], [stream(0, 8)]], Memory(900 * MIB, 440 * MIB))
    at_once, peak, own, same, took = many._rows(course, theirs, 100 * MIB, 400 * MIB)
    assert (at_once.puna, at_once.peer) == ("2 of 2; 2 requests answered", "within the limit 0 of 2")
    assert (peak.puna, peak.peer, peak.is_met) == ("100.0 MiB", "400.0 MiB: 4.0 times the limit", True)
    assert (own.puna, own.ratio, own.is_met) == ("110.0 MiB", 4, True)
    assert (same.puna, same.is_met) == ("1 of 2", False)
    assert (took.puna, took.peer) == ("4.00 s, with ample memory 2.00 s", "9.00 s")


def test_models_that_take_turns_do_not_answer_at_once():
    assert (
        many._num_at_once([[stream(0, 1, 2)], [stream(0, 3, 4)], [stream(0, 3.5, 5), stream(0, 6, 7)]]) == 2
    )


def test_rows_about_an_idle_model():
    def course(*pss: int) -> idle._Course:
        return idle._Course(*(Memory(num * MIB, 0) for num in pss))

    ours = idle._Puna(Memory(80 * MIB, 0), course(200, 300, 210), 100 * MIB, 0)
    kv, pss, growth, unused = idle._rows(ours, course(400, 630, 630), 400 * MIB)
    assert (kv.puna, kv.peer, kv.is_met) == ("100.0 MiB → 0 bytes", "400.0 MiB, always", True)
    assert (pss.puna, pss.ratio) == ("200.0 MiB → 300.0 MiB → 210.0 MiB", 3)
    assert (growth.puna, growth.is_met) == ("105.0%", True)
    assert unused.puna == "80.0 MiB"
    assert not idle._rows(ours._replace(idle_kv=1), course(1, 1, 1), 1)[0].is_met


def test_rows_about_a_burst():
    looks = [
        Sample(1.0, state(a=95 * MIB)),
        Sample(10.1, state(a=50 * MIB, b=50 * MIB)),
        Sample(10.5, state(a=5 * MIB, b=90 * MIB)),
        Sample(11.0, state(a=0, b=100 * MIB)),
    ]
    first, second = stream(0, 1), stream(10, 12)
    first.usage = Usage(96, 32, 1.0)
    course = burst.Course([first] * 4, [second], looks, 100 * MIB)
    assert course.reached_s("b") == pytest.approx(0.5)
    with pytest.raises(RuntimeError, match="a never had 90%"):
        course.reached_s("a")  # only before B's burst
    theirs = burst.Theirs(70 * MIB, 70 * MIB, [stream(0, 6)])
    reached, most, memory, answered, took = burst._rows([course], theirs, "a", "b")
    assert (reached.puna, reached.is_met) == ("500.0 ms", True)
    assert most.puna == "95.0% / 100.0%"
    assert (memory.puna, memory.peer) == (f"{mebibytes(95 * MIB)} → 0 bytes", "70.0 MiB → 70.0 MiB")
    assert (answered.puna, answered.is_met) == ("4 of 5", False)
    assert took.ratio == 3


def test_a_burst_is_more_than_the_pool_has_room_for():
    plan = burst._plan(1000, FakePrompts())
    assert [len(texts) for texts in plan.texts] == [16, 16]
    assert len({*plan.texts[0], *plan.texts[1]}) == 32


def test_rows_about_a_prefix():
    def answers(first_token_s: float, *texts: str) -> prefixes.Answers:
        return prefixes.Answers(list(texts), [first_token_s] * len(texts))

    ours = prefixes.Course(
        warm=answers(0.02, "a"),
        reloaded=answers(0.03, "b"),
        reloaded_at_hand=answers(0.025, "b2"),
        reloading=answers(0.2, "c"),
        restarted=answers(0.05, "d"),
        computed=answers(2, "a", "b", "b2", "c", "e"),
        fresh_memory_s=[0.256],
    )
    theirs = prefixes.Course(warm=answers(0.1, "a"), restarted=answers(6, "b"))
    rows = prefixes._rows(ours, theirs)
    _, _, reloaded, reload_ratio, _, at_hand_ratio, restarted, restart_ratio, _, fresh, same = rows
    assert (reloaded.ratio, restarted.ratio) == (pytest.approx(200), pytest.approx(120))
    assert (reload_ratio.puna, reload_ratio.is_met) == ("1.5", True)
    assert (restart_ratio.puna, restart_ratio.is_met) == ("2.5", False)
    assert at_hand_ratio.puna == "1.25"
    assert fresh.puna.startswith("1.0 ms")
    assert (same.puna, same.is_met) == ("4 of 5", False)
