"""A worker's death costs the requests in flight, with a clear error, and nothing else.

Time is virtual; workers are fakes.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from puna.backends.base import ModelLoadError, ModelSource
from puna.daemon.worker.memory import WorkersMemory
from puna.daemon.worker.restarting_child import SHUTTING_DOWN
from puna.daemon.worker.supervisor import WorkerSupervisor
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.request import Request
from puna.worker.call_client import RUNNER_STOPPED, WorkerDied
from puna.worker.engine.messages import GetStats, GetTrace
from tests.daemon.fake_worker import INFO, STEP_S, Workshop

pytestmark = pytest.mark.unit

A, B = ModelSource("/models/a", ()), ModelSource("/models/b", ())


class Supervised(Workshop):
    def __init__(self) -> None:
        super().__init__()
        self.lost: list[str] = []
        self.memory = WorkersMemory()
        self.supervisor = WorkerSupervisor(
            self.spawn, self.memory, lambda model_id, _: self.lost.append(model_id)
        )

    async def tokens(self, model_id, prompt):
        request = Request(id=f"{model_id}{len(prompt)}", model_id=model_id, prompt=prompt)
        async with self.supervisor.stream(request) as outputs:
            return [token async for output in outputs for token in output.tokens]


async def started(*models: str) -> Supervised:
    supervised = Supervised()
    supervised.supervisor.start()
    for model_id in models:
        await supervised.supervisor.load(model_id, ModelSource(f"/models/{model_id}", ()))
    return supervised


def test_first_request_waits_for_the_worker_that_is_starting(virtual_time):
    async def main():
        supervised = await started("a")
        assert await supervised.tokens("a", [1, 2, 3]) == [1, 2, 3]
        assert len(supervised.workers) == 1

    virtual_time(main)


def test_worker_is_started_by_the_first_request_if_nobody_did_before(virtual_time):
    async def main():
        supervised = Supervised()
        await asyncio.gather(supervised.supervisor.load("a", A), supervised.supervisor.load("b", B))
        assert set(supervised.worker.models) == {"a", "b"}
        assert len(supervised.workers) == 1

    virtual_time(main)


def test_requests_in_flight_fail_with_a_clear_error_and_the_next_one_works(virtual_time):
    async def main():
        supervised = await started("a", "b")
        running = [asyncio.create_task(supervised.tokens("a", [1] * count)) for count in (50, 60)]
        await asyncio.sleep(5 * STEP_S)
        supervised.worker.die()
        for result in await asyncio.gather(*running, return_exceptions=True):
            assert isinstance(result, WorkerDied)
            assert str(result) == RUNNER_STOPPED
        assert await supervised.tokens("a", [4, 5]) == [4, 5]
        assert len(supervised.workers) == 2
        assert set(supervised.worker.models) == {"a", "b"}
        assert supervised.lost == []

    virtual_time(main)


def test_dead_worker_is_replaced_even_if_nobody_asks(virtual_time):
    async def main():
        supervised = await started("a")
        supervised.worker.die()
        await asyncio.sleep(5)
        assert len(supervised.workers) == 2
        assert supervised.worker.models.keys() == {"a"}
        assert supervised.workers[0].terminated

    virtual_time(main)


def test_model_keeps_its_share_in_the_next_worker(virtual_time):
    async def main():
        supervised = await started("a")
        await supervised.supervisor.load("b", B, 2.5)
        supervised.worker.die()
        await asyncio.sleep(5)
        assert supervised.worker.shares == {"a": 1.0, "b": 2.5}
        assert len(supervised.workers) == 2

    virtual_time(main)


@pytest.mark.parametrize("num_steps", range(5))
def test_adapters_may_be_unloaded_while_a_new_worker_loads_them(virtual_time, tmp_path, num_steps):
    def opened() -> ModelSource:
        (tmp_path / "adapter").write_bytes(b"LoRA")
        return ModelSource("adapter", (os.open(tmp_path / "adapter", os.O_RDONLY),))

    async def main():
        supervised = await started("a")
        sources = {name: opened() for name in "xyz"}
        for name, source in sources.items():
            await supervised.supervisor.load_adapter("a", name, source)
        supervised.worker.die()
        await asyncio.sleep(0.501 + num_steps * STEP_S)
        await supervised.supervisor.unload_adapter("a", "y")
        sources["y"].close()
        await asyncio.sleep(5)
        assert len(supervised.workers) == 2
        assert supervised.lost == []
        assert supervised.worker.adapters == {("a", "x"), ("a", "z")}
        sources["x"].close()
        sources["z"].close()

    virtual_time(main)


def test_an_adapter_may_be_unloaded_while_its_model_falls_asleep(virtual_time, tmp_path):
    async def main():
        supervised = await started("a")
        supervisor = supervised.supervisor
        (tmp_path / "adapter").write_bytes(b"LoRA")
        source = ModelSource("adapter", (os.open(tmp_path / "adapter", os.O_RDONLY),))
        await supervisor.load_adapter("a", "x", source)
        assert (await asyncio.gather(supervisor.sleep("a"), supervisor.unload_adapter("a", "x")))[0]
        source.close()
        supervised.worker.die()
        await asyncio.sleep(5)
        await supervisor.wake("a")
        assert supervised.worker.adapters == set()

    virtual_time(main)


def test_limits_leases_and_guarantees_are_known_to_the_next_worker(virtual_time):
    async def main():
        supervised = await started("a")
        supervisor = supervised.supervisor
        await supervisor.load("b", B, 1.0, 77)
        await supervised.memory.set_limits(supervisor, 500, None)
        await supervised.memory.set_limits(supervisor, None, 9000)
        assert (await supervised.memory.lease(supervisor, 600)).granted
        assert not (await supervised.memory.lease(supervisor, 600)).granted
        await supervised.memory.end_lease(supervisor, 200)
        supervised.worker.die()
        await asyncio.sleep(5)
        assert len(supervised.workers) == 2
        assert supervised.worker.limits == (500, 9000)
        assert supervised.worker.leased_bytes == 400
        assert supervised.worker.guarantees == {"a": 0, "b": 77}
        await supervised.memory.end_lease(supervisor, 400)
        assert supervised.worker.leased_bytes == 0

    virtual_time(main)


def test_the_limits_that_the_first_worker_found_are_those_of_later_ones(virtual_time):
    async def main():
        supervised = await started("a")
        assert supervised.worker.limits == (None, None)
        found = await supervised.supervisor.call(GetStats())
        supervised.memory_bytes = 5000
        for _ in range(2):
            supervised.worker.die()
            await asyncio.sleep(5)
            assert supervised.worker.limits == (found.kv_limit_bytes, found.memory_limit_bytes)
        await supervised.memory.set_limits(supervised.supervisor, None, 7000)
        supervised.worker.die()
        await asyncio.sleep(5)
        assert supervised.worker.limits == (found.kv_limit_bytes, 7000)

    virtual_time(main)


@pytest.mark.parametrize("delay_s", [0, STEP_S / 2, 0.3, 0.6, 0.61, 0.65])
def test_a_lease_that_ends_while_workers_change_is_ended_in_the_next(virtual_time, delay_s: float):
    async def main():
        supervised = await started("a")
        await supervised.memory.lease(supervised.supervisor, 600)
        supervised.worker.die()
        await asyncio.sleep(delay_s)
        await supervised.memory.end_lease(supervised.supervisor, 500)
        await asyncio.sleep(5)
        assert len(supervised.workers) == 2
        assert supervised.worker.leased_bytes == 100

    virtual_time(main)


def test_a_lease_that_nobody_waits_for_is_given_back(virtual_time):
    async def main():
        supervised = await started("a")
        asked = asyncio.create_task(supervised.memory.lease(supervised.supervisor, 600))
        await asyncio.sleep(STEP_S / 2)
        asked.cancel()
        await asyncio.sleep(1)
        assert supervised.worker.leased_bytes == 0
        supervised.worker.die()
        await asyncio.sleep(5)
        assert supervised.worker.leased_bytes == 0

    virtual_time(main)


def test_a_lease_that_was_asked_of_a_dying_worker_is_not_there(virtual_time):
    async def main():
        supervised = await started("a")
        asked = asyncio.create_task(supervised.memory.lease(supervised.supervisor, 600))
        await asyncio.sleep(STEP_S / 2)
        supervised.worker.die()
        with pytest.raises(WorkerDied, match="check puna server logs"):
            await asked
        await asyncio.sleep(5)
        assert supervised.worker.leased_bytes == 0

    virtual_time(main)


def test_load_in_flight_fails_with_a_clear_error(virtual_time):
    async def main():
        supervised = await started("a")
        loading = asyncio.create_task(supervised.supervisor.load("b", B))
        await asyncio.sleep(STEP_S / 2)
        supervised.worker.die()
        with pytest.raises(WorkerDied, match="check puna server logs"):
            await loading
        await supervised.supervisor.load("b", B)

    virtual_time(main)


def test_model_that_cannot_be_loaded_again_is_reported_lost_and_the_others_come_back(virtual_time):
    async def main():
        supervised = await started("a", "b")
        supervised.unloadable.add("a")
        supervised.worker.die()
        await asyncio.sleep(STEP_S)
        assert await supervised.tokens("b", [7]) == [7]
        assert supervised.lost == ["a"]
        with pytest.raises(ModelLoadError, match="/models/a is broken"):
            await supervised.supervisor.load("a", A)

    virtual_time(main)


def test_model_that_kills_the_worker_when_loaded_again_does_not_kill_the_next_one(virtual_time):
    async def main():
        supervised = await started("a", "b")
        supervised.deadly.add("a")
        supervised.worker.die()
        await asyncio.sleep(10)
        assert supervised.lost == ["a"]
        assert supervised.worker.models.keys() == {"b"}
        assert await supervised.tokens("b", [7]) == [7]

    virtual_time(main)


def test_unloaded_model_is_not_loaded_again(virtual_time):
    async def main():
        supervised = await started("a", "b")
        await supervised.supervisor.unload("a")
        assert supervised.worker.models.keys() == {"b"}
        supervised.worker.die()
        await asyncio.sleep(5)
        assert supervised.worker.models.keys() == {"b"}
        supervised.worker.die()
        await supervised.supervisor.unload("b")  # with nobody there
        await asyncio.sleep(5)
        assert supervised.worker.models == {}

    virtual_time(main)


def test_worker_that_keeps_dying_is_restarted_ever_more_slowly(virtual_time):
    async def main():
        supervised = await started()
        deaths = []
        for _ in range(8):
            await supervised.supervisor.call(GetStats())  # waits for the next one
            deaths.append(asyncio.get_running_loop().time())
            supervised.worker.die()
            await asyncio.sleep(STEP_S)  # until it is noticed
        await supervised.supervisor.call(GetStats())
        starts = supervised.spawn_times[1:]
        pauses = [round(start - death, 1) for death, start in zip(deaths, starts, strict=True)]
        assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
        assert len(supervised.workers) == 9
        await asyncio.sleep(60)
        supervised.worker.die()
        death = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        assert supervised.spawn_times[-1] == pytest.approx(death)  # it was well for a while: at once

    virtual_time(main)


@pytest.mark.parametrize("failure", [WorkerDied("ended at its start"), OSError("no memory")])
def test_worker_that_cannot_be_started_fails_requests_until_it_can(virtual_time, failure):
    async def main():
        supervised = Supervised()
        supervised.failures = [failure, failure]
        supervised.supervisor.start()
        for _ in range(2):
            with pytest.raises(WorkerDied, match=f"could not be started: {failure}"):
                await supervised.supervisor.load("a", A)
        await supervised.supervisor.load("a", A)
        assert await supervised.tokens("a", [1]) == [1]

    virtual_time(main)


def test_closing_the_generator_cancels_in_the_worker(virtual_time):
    async def main():
        supervised = await started("a")
        request = Request(id="r", model_id="a", prompt=[1, 2, 3])
        async with supervised.supervisor.stream(request) as outputs:
            await anext(outputs)
        assert supervised.worker.cancelled == ["r"]

    virtual_time(main)


def test_cancelled_waiter_does_not_stop_the_start_for_others(virtual_time):
    async def main():
        supervised = Supervised()
        first = asyncio.create_task(supervised.supervisor.load("a", A))
        second = asyncio.create_task(supervised.supervisor.load("b", B))
        await asyncio.sleep(0.1)
        first.cancel()
        await second
        assert supervised.worker.models.keys() == {"b"}

    virtual_time(main)


def test_cancelled_load_is_undone(virtual_time):
    async def main():
        supervised = await started("a")
        loading = asyncio.create_task(supervised.supervisor.load("b", B))
        await asyncio.sleep(STEP_S / 2)
        supervised.worker.models["b"] = B  # the worker was quicker than the cancel
        loading.cancel()
        await asyncio.sleep(1)
        assert supervised.worker.models.keys() == {"a"}

    virtual_time(main)


def test_close_ends_the_worker_and_says_so_to_those_who_wait(virtual_time):
    async def main():
        supervised = await started("a")
        running = asyncio.create_task(supervised.tokens("a", [1] * 100))
        await asyncio.sleep(5 * STEP_S)
        await supervised.supervisor.close()
        with pytest.raises(WorkerDied, match=SHUTTING_DOWN):
            await running
        with pytest.raises(WorkerDied, match=SHUTTING_DOWN):
            await supervised.tokens("a", [1])
        await asyncio.sleep(60)
        assert len(supervised.workers) == 1
        assert supervised.worker.terminated

    virtual_time(main)


def test_close_during_start_leaves_nothing(virtual_time):
    async def main():
        supervised = Supervised()
        loading = asyncio.create_task(supervised.supervisor.load("a", A))
        await asyncio.sleep(0.1)
        await supervised.supervisor.close()
        with pytest.raises(WorkerDied, match=SHUTTING_DOWN):
            await loading
        assert supervised.workers == []

    virtual_time(main)


def test_a_question_is_answered_by_the_worker_that_is_there(virtual_time):
    async def main():
        supervised = await started("a")
        assert (await supervised.supervisor.ask(GetTrace(2.0))).end_ns == 2e9
        assert supervised.supervisor.num_started == 1

    virtual_time(main)


def test_a_question_neither_starts_a_worker_nor_waits_for_one(virtual_time):
    async def main():
        supervised = Supervised()
        assert await supervised.supervisor.ask(GetStats()) is None
        assert supervised.spawn_times == []
        supervised.supervisor.start()
        assert await supervised.supervisor.ask(GetStats()) is None
        assert asyncio.get_running_loop().time() == 0
        await supervised.supervisor.load("a", A)
        asyncio.get_running_loop().call_later(STEP_S / 2, supervised.worker.die)
        assert await supervised.supervisor.ask(GetStats()) is None  # died over it
        await supervised.supervisor.call(GetStats())
        assert supervised.supervisor.num_started == 2
        await supervised.supervisor.close()
        assert await supervised.supervisor.ask(GetStats()) is None

    virtual_time(main)


def test_prefixes_are_saved_by_the_worker_that_is_there(virtual_time):
    async def main():
        supervised = Supervised()
        await supervised.supervisor.save_prefixes()  # there is none
        assert supervised.spawn_times == []
        await supervised.supervisor.load("a", A)
        await supervised.supervisor.save_prefixes()
        assert supervised.worker.num_saves == 1

    virtual_time(main)


def test_saving_that_takes_too_long_is_not_waited_for(virtual_time):
    async def main():
        supervised = await started("a")
        supervised.worker.save_s = 3600
        begin_s = asyncio.get_running_loop().time()
        await supervised.supervisor.save_prefixes()
        assert asyncio.get_running_loop().time() - begin_s < 10
        assert supervised.worker.num_saves == 0

    virtual_time(main)


def test_model_that_sleeps_is_woken_where_it_is(virtual_time):
    async def main():
        supervised = await started("a")
        assert await supervised.supervisor.sleep("a")
        assert supervised.worker.asleep.keys() == {"a"}
        await supervised.supervisor.wake("a")
        assert (supervised.worker.models.keys(), supervised.worker.asleep.keys()) == ({"a"}, set())
        supervised.worker.die()
        await asyncio.sleep(5)
        assert supervised.worker.models.keys() == {"a"}, "awake it comes back by itself"

    virtual_time(main)


def test_model_that_slept_in_a_worker_that_died_is_loaded_when_it_is_to_wake(virtual_time):
    async def main():
        supervised = await started("a", "b")
        await supervised.supervisor.load("b", B, 2.5)
        await supervised.supervisor.sleep("b")
        supervised.worker.die()
        await asyncio.sleep(5)
        assert supervised.worker.models.keys() == {"a"}
        await supervised.supervisor.wake("b")
        assert set(supervised.worker.models) == {"a", "b"}
        assert supervised.worker.shares["b"] == 2.5

    virtual_time(main)


def test_worker_that_dies_over_a_wake_leaves_a_model_that_can_still_be_woken(virtual_time):
    async def main():
        supervised = await started("a")
        await supervised.supervisor.sleep("a")
        asyncio.get_running_loop().call_later(STEP_S / 2, supervised.worker.die)
        with pytest.raises(WorkerDied, match="check puna server logs"):
            await supervised.supervisor.wake("a")
        await supervised.supervisor.wake("a")
        assert supervised.worker.models.keys() == {"a"}

    virtual_time(main)


def test_model_whose_worker_dies_over_it_cannot_fall_asleep(virtual_time):
    async def main():
        supervised = await started("a", "b")
        asyncio.get_running_loop().call_later(STEP_S / 2, supervised.worker.die)
        assert not await supervised.supervisor.sleep("a")
        supervised.worker.die()
        await asyncio.sleep(STEP_S)
        assert await supervised.supervisor.sleep("b"), "the next worker has loaded it again"
        assert not await supervised.supervisor.sleep("never heard of")
        await asyncio.sleep(5)
        assert (supervised.worker.models.keys(), supervised.worker.asleep.keys()) == (set(), {"b"})

    virtual_time(main)


def test_cancelled_wake_is_undone(virtual_time):
    async def main():
        supervised = await started("a")
        await supervised.supervisor.sleep("a")
        waking = asyncio.create_task(supervised.supervisor.wake("a"))
        await asyncio.sleep(STEP_S / 2)
        waking.cancel()
        await asyncio.sleep(1)
        assert (supervised.worker.models, supervised.worker.asleep) == ({}, {})

    virtual_time(main)


def test_model_that_does_not_fit_sleeps_on(virtual_time):
    async def main():
        supervised = Supervised()
        supervised.memory_bytes = INFO.weight_bytes
        await supervised.supervisor.load("a", A)
        await supervised.supervisor.sleep("a")
        await supervised.supervisor.load("b", B)
        with pytest.raises(ModelDoesNotFit):
            await supervised.supervisor.wake("a")
        await supervised.supervisor.unload("b")
        await supervised.supervisor.wake("a")
        assert supervised.worker.models.keys() == {"a"}

    virtual_time(main)


def test_vocabulary_of_a_model_that_was_lost_is_an_error(virtual_time):
    async def main():
        supervised = await started("a")
        with pytest.raises(ModelLoadError, match="lost with its worker"):
            await supervised.supervisor.set_vocabulary("b", 0, 0)

    virtual_time(main)
