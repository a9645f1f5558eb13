"""An exception that nobody foresaw ends one request at most, and nothing is lost by it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from puna.engine import Request, SamplingParams
from puna.engine import requests as engine_requests
from puna.engine.caching.cache_policy import PrefixPolicy
from puna.engine.caching.slot_policy import SlotPolicy
from puna.engine.memory.engine_memory import EngineMemory
from puna.engine.observation.recorder import RequestRecord
from puna.engine.offload.prefix_restores import PrefixRestores
from puna.engine.offload.sessions import Sessions
from puna.engine.offload.warm_prefixes import WarmPrefixes
from puna.engine.scheduling.contention import Contention
from puna.engine.sequences.draft_state import DraftState
from puna.engine.sequences.sequence import Sequence
from puna.engine.speculation import drafting
from puna.engine.steps import execution
from puna.kv import BLOCK_TOKENS, PrefixTree, SequenceTable
from tests.engine.offload.fake_threads import FakeThreads
from tests.engine.toy import BLOCK_BYTES, Results, ToyModel, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

# Where one request is looked at, and whose fault it is if that fails.
SEAMS: list[tuple[Any, str]] = [
    (engine_requests, "new_sequence"),
    (PrefixPolicy, "admit"),
    (PrefixPolicy, "catch_up"),
    (PrefixPolicy, "reuse_part"),
    (PrefixPolicy, "computed"),
    (PrefixPolicy, "release"),
    (SequenceTable, "grow"),
    (Contention, "is_infeasible"),
    (Contention, "has_room"),
    (execution, "part_of"),
    (Sequence, "extend"),
    (Sequence, "take_logprobs"),
    (RequestRecord, "drew"),
    (RequestRecord, "admitted"),
    (drafting, "draft_from_text"),
    (DraftState, "judge"),
    (Sessions, "keep"),
]


@dataclass
class Faults:
    """Raises at some calls of one function, before it or behind it."""

    calls: set[int]
    is_behind: bool
    num_calls: int = 0
    num_raised: int = field(default=0)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **fields: Any) -> Any:
            self.num_calls += 1
            strikes = self.num_calls in self.calls
            if strikes and not self.is_behind:
                self.strike()
            result = function(*arguments, **fields)
            if strikes:
                self.strike()
            return result

        return faulty

    def strike(self) -> None:
        self.num_raised += 1
        raise RuntimeError("struck")


def requests(rng: random.Random) -> list[Request]:
    prefix = [7, 0, 1, 2, 3, 4, 5] * 5
    found = []
    for n in range(8):
        prompt = prefix[: rng.randrange(1, 35)] + [rng.randrange(90) for _ in range(rng.randrange(20))]
        session = rng.choice([None, "s", "t"])
        draft = rng.choice([None, "small"])
        sampling = SamplingParams(temperature=0, num_logprobs=rng.choice([-1, 1]))
        fields = {"session": session, "draft_model_id": draft, "sampling": sampling}
        found.append(toy_request(str(n), prompt, rng.randrange(1, 40), **fields))
    return found


@pytest.mark.parametrize("seam", SEAMS, ids=[f"{owner.__name__}.{name}" for owner, name in SEAMS])
@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_fault_ends_one_request_at_most(
    seam: tuple[Any, str], is_behind: bool, monkeypatch: pytest.MonkeyPatch
):
    owner, name = seam
    num_raised = 0
    for seed in range(6):
        rng = random.Random(seed)
        faults = Faults({rng.randrange(1, 30) for _ in range(2)}, is_behind)
        engine = toy_engine(ToyModel(is_habitual=True, step_s=0.05), num_blocks=rng.choice([12, 100]))
        engine.attach_model("small", ToyModel(is_habitual=True))
        results = Results()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, faults.around(getattr(owner, name)))
            submitted = requests(rng)
            for request in submitted:
                engine.submit(request)
                results.add(engine.step())
                engine.check()
            run_all(engine, results)
        check_results(results, submitted, faults)
        num_raised += faults.num_raised
        engine.submit(toy_request("later", [1, 2], 5))
        assert run_all(engine).tokens["later"] == expected_tokens([1, 2], 5, is_habitual=True)
        engine.close()
        assert engine.memory.budget.committed_bytes == 0
    assert num_raised


def check_results(results: Results, submitted: list[Request], faults: Faults) -> None:
    struck = 0
    for request in submitted:
        last, tokens = results.last[request.id], results.tokens[request.id]
        wanted = expected_tokens(request.prompt, request.max_tokens or 0, is_habitual=True)
        assert tokens == wanted[: len(tokens)]
        if last.finish_reason == "error":
            assert last.error == "an internal error: RuntimeError('struck')"
            struck += 1
        else:
            assert (last.finish_reason, len(tokens)) == ("length", len(wanted))
    assert struck <= faults.num_raised


def test_slots_survive_a_fault(monkeypatch: pytest.MonkeyPatch):
    for name in ("admit", "computed", "release"):
        faults = Faults({2, 3, 5}, is_behind=False)
        engine = toy_engine(cache_policy="slots", max_running=2)
        with monkeypatch.context() as patch:
            patch.setattr(SlotPolicy, name, faults.around(getattr(SlotPolicy, name)))
            for n in range(8):
                engine.submit(toy_request(str(n), [n, 2], 5))
            reasons = [last.finish_reason for last in run_all(engine).last.values()]
        assert faults.num_raised == 3
        assert reasons.count("error") <= 3
        engine.submit(toy_request("later", [1, 2], 5))
        assert run_all(engine).tokens["later"] == expected_tokens([1, 2], 5)
        engine.close()


# Where a prefix is looked for on disk and read; what fails there costs at most the request that it is for.
DISK_SEAMS: list[tuple[Any, str]] = [
    (WarmPrefixes, "begin"),
    (WarmPrefixes, "end"),
    (PrefixRestores, "begin"),
    (PrefixRestores, "withdraw"),
    (PrefixRestores, "_pays"),
    (PrefixTree, "next_key"),
    (PrefixTree, "record_tail"),
    (FakeThreads, "start"),
]
LONG = [n % 7 for n in range(10 * BLOCK_TOKENS + 5)]


@pytest.mark.parametrize("seam", DISK_SEAMS, ids=[f"{owner.__name__}.{name}" for owner, name in DISK_SEAMS])
@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_fault_with_what_is_on_disk_ends_one_request_at_most(
    seam: tuple[Any, str], is_behind: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    owner, name = seam
    num_raised = 0
    for strike in range(1, 6):
        threads, engine = FakeThreads(), toy_engine(kv_dir=str(tmp_path / str(strike)))
        engine.prefixes.use_threads(threads)
        engine.submit(toy_request("first", LONG, 5))
        threads.run()
        run_all(engine)
        engine.unload_model("toy")
        threads.run()
        engine.attach_model("toy", ToyModel())
        faults, results = Faults({strike}, is_behind), Results()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, faults.around(getattr(owner, name)))
            for n in range(4):
                engine.submit(toy_request(str(n), LONG[: len(LONG) - n % 2], 5))
            engine.cancel("0")
            engine.check()
            threads.run()
            run_all(engine, results)
        num_raised += faults.num_raised
        endings = [last.finish_reason for last in results.last.values()]
        assert len(endings) == 4
        assert endings.count("error") <= faults.num_raised
        assert endings.count("length") >= 3 - faults.num_raised
        engine.submit(toy_request("later", LONG, 5))
        threads.run()
        last = run_all(engine, results).last["later"]
        assert last.stats.cached_tokens == len(LONG) - 1
        assert results.tokens["later"] == expected_tokens(LONG, 5)
        engine.prefixes.stop()
        threads.run()
        engine.close()
        assert engine.memory.budget.committed_bytes == 0
    assert num_raised


def test_requests_go_on_where_memory_cannot_be_given_back(monkeypatch: pytest.MonkeyPatch):
    engine = toy_engine(num_blocks=40)
    for n in range(3):
        engine.submit(toy_request(str(n), [n] * 100, 30))
    engine.step()
    engine.step()
    faults = Faults(set(range(1, 1000)), is_behind=False)
    with monkeypatch.context() as patch:
        patch.setattr(EngineMemory, "_settle", faults.around(EngineMemory._settle))
        engine.set_limits(10 * BLOCK_BYTES)
        outputs = [output for _ in range(3) for output in engine.step()]
    assert faults.num_raised
    assert all(output.finish_reason is None for output in outputs)
    results = run_all(engine)
    assert [last.finish_reason for last in results.last.values()] == ["length"] * 3
    assert engine.set_limits() == 0
    engine.close()
