"""Every message survives the wire; what is no message, or cannot be one, is refused by name."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puna.engine import EngineStats, ModelStats, Request, SamplingParams, StepOutput, TokenLogprob
from puna.engine.observation.metrics import ModelMetrics
from puna.engine.observation.recorder import Recorder
from puna.engine.observation.trace import MAX_EVENTS, MAX_STEPS
from puna.worker.call_client import CallClient, WorkerDied
from puna.worker.calls import (
    HEADER,
    MAX_ERROR_BYTES,
    MAX_FRAME_BYTES,
    Call,
    CallFailed,
    CallServer,
    Channel,
    ProtocolError,
    close_all,
    encode,
    open_channel,
    printable,
)
from puna.worker.engine.messages import GetTrace, Load, Outputs, Submit, ToWorker

pytestmark = pytest.mark.native


class Refused(ValueError):
    pass


class Echo(Call[list[str]], frozen=True, tag=True):
    """The text, then what each descriptor is open on."""

    text: str


class Raise(Call[int], frozen=True, tag=True):
    kind: str
    text: str


class Huge(Call[str], frozen=True, tag=True):
    num_bytes: int


class Note(msgspec.Struct, frozen=True, tag=True):
    number: int


CROSSING = (Refused,)
ERRORS: dict[str, Callable[[str], Exception]] = {
    "refused": Refused,
    "unforeseen": KeyError,
    "long": lambda _: Refused("ü" * 70_000_000 + "\udcff"),
}


def child(channel: Channel) -> None:
    calls = CallServer(channel, Echo | Raise | Huge | Note, CROSSING)
    while (asked := calls.read()) is not None:
        match asked.message:
            case Echo(text):
                targets = [str(Path(f"/proc/self/fd/{number}").readlink()) for number in asked.descriptors]
                close_all(asked.descriptors)
                calls.answer(asked.call, [text, *targets])
            case Raise(kind, text):
                calls.fail(asked.call, ERRORS[kind](text))
            case Huge(num_bytes):
                calls.answer(asked.call, "x" * num_bytes)
            case Note(number):
                calls.tell(Note(number + 1))
    calls.close()


def with_client(main: Callable[[CallClient, list[Any]], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        ours, theirs = open_channel()
        thread = threading.Thread(target=child, args=(theirs,))
        thread.start()
        events: list[Any] = []
        client = await CallClient.connect(ours, crossing=CROSSING, events=Note, on_event=events.append)
        try:
            await main(client, events)
        finally:
            await client.close()
            await asyncio.to_thread(thread.join)

    before = set(Path("/proc/self/fd").iterdir())
    asyncio.run(run())
    assert set(Path("/proc/self/fd").iterdir()) <= before, "every descriptor was closed"


def test_answers_events_and_descriptors_arrive_in_order(tmp_path: Path):
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.touch()

    async def main(client: CallClient, events: list[Any]) -> None:
        descriptors = [os.open(path, os.O_RDONLY) for path in paths]
        try:
            client.tell(Note(1))
            answers = await asyncio.gather(
                client.call(Echo("0")),
                *(client.call(Echo(str(n)), descriptors[:n]) for n in (1, 2, 3)),
            )
        finally:
            close_all(descriptors)
        assert answers == [[str(n), *map(str, paths[:n])] for n in range(4)]
        assert events == [Note(2)]

    with_client(main)


def test_exceptions_cross_as_what_they_are_and_cut():
    async def main(client: CallClient, _: list[Any]) -> None:
        with pytest.raises(Refused, match=r"^no$"):
            await client.call(Raise("refused", "no"))
        with pytest.raises(CallFailed, match="KeyError: 'bug'"):
            await client.call(Raise("unforeseen", "bug"))
        with pytest.raises(Refused) as long:
            await client.call(Raise("long", ""))
        assert len(str(long.value).encode()) <= MAX_ERROR_BYTES
        with pytest.raises(ProtocolError, match="larger than any message"):
            await client.call(Echo("x" * (MAX_FRAME_BYTES + 1)))
        assert await client.call(Echo("still there")) == ["still there"]

    with_client(main)


def test_an_answer_that_cannot_be_sent_fails_its_call_alone():
    async def main(client: CallClient, _: list[Any]) -> None:
        with pytest.raises(CallFailed, match="larger than any message"):
            await client.call(Huge(MAX_FRAME_BYTES))
        assert await client.call(Huge(3)) == "xxx"

    with_client(main)


def test_whoever_stops_waiting_leaves_nothing_behind():
    async def main(client: CallClient, _: list[Any]) -> None:
        waiting = asyncio.create_task(client.call(Huge(10_000_000)))
        await asyncio.sleep(0)
        waiting.cancel()
        assert await client.call(Echo("next")) == ["next"]

    with_client(main)


@pytest.mark.parametrize("data", [b"", b"\0\0", HEADER.pack(5) + b"1234"])
def test_the_stream_may_end_anywhere(data: bytes):
    ours, theirs = open_channel()
    ours.stream.sendall(data)
    ours.close()
    calls = CallServer(theirs, Echo, {})
    assert calls.read() is None
    calls.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEADER.pack(MAX_FRAME_BYTES + 1), "larger than any message"),
        (HEADER.pack(3) + b"abc", "not a message"),
        (HEADER.pack(1) + b"\xc1", "not a message"),
        (encode((1, 0, {"type": "Nonsense"})), "not a message"),
        (encode((1, 1000, Echo(""))), "1000 descriptors"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, reason: str):
    ours, theirs = open_channel()
    ours.stream.sendall(data)
    calls = CallServer(theirs, Echo, {})
    with pytest.raises(ProtocolError, match=reason):
        calls.read()
    calls.close()
    ours.close()


def test_a_child_that_takes_no_descriptors_stops_nobody(tmp_path: Path):
    async def main() -> None:
        ours, theirs = open_channel()
        client = await CallClient.connect(ours, crossing={})
        waiting: list[asyncio.Task[list[str]]] = []
        with (tmp_path / "file").open("w") as file:
            for _ in range(10_000):
                waiting.append(asyncio.create_task(client.call(Echo(""), [file.fileno()])))
                await asyncio.sleep(0)
                if waiting[-1].done():
                    break
            with pytest.raises(WorkerDied, match="takes no files"):
                await waiting[-1]
        await client.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        theirs.close()

    asyncio.run(main())


def test_garbage_from_the_child_is_its_death():
    async def main() -> None:
        ours, theirs = open_channel()
        client = await CallClient.connect(ours, crossing={})
        waiting = asyncio.create_task(client.call(Huge(1)))
        await asyncio.sleep(0)
        theirs.stream.sendall(HEADER.pack(3) + b"abc")
        with pytest.raises(WorkerDied):
            await waiting
        with pytest.raises(WorkerDied):
            await client.call(Huge(1))
        await client.close()
        theirs.close()

    asyncio.run(main())


REQUEST = Request(
    id="r",
    model_id="m",
    prompt=list(range(100_000)),
    sampling=SamplingParams(seed=2**63, logit_bias={5: -1.5}, num_logprobs=2),
    stop_tokens=[1, 2],
)


@pytest.mark.parametrize("message", [Load("m", "\\xff", 2.0, 5), Submit(REQUEST), GetTrace(0.5)], ids=type)
def test_messages_to_the_engine_survive(message: msgspec.Struct):
    ours, theirs = open_channel()
    calls = CallServer(theirs, ToWorker, {})
    sending = threading.Thread(target=ours.stream.sendall, args=(encode((7, 0, message)),))
    sending.start()
    asked = calls.read()
    sending.join()
    assert asked == (7, message, [])
    calls.close()
    ours.close()


def survives(value: object, kind: Any) -> None:
    encoded = msgspec.msgpack.encode(value)
    assert len(encoded) < MAX_FRAME_BYTES // 8
    assert msgspec.msgpack.decode(encoded, type=kind) == value


def test_what_the_engine_says_survives():
    logprob = TokenLogprob(5, -0.5, b"\xff", [TokenLogprob(6, float("-inf"))])
    outputs = [
        StepOutput(request_id="a", tokens=[5], logprobs=[logprob]),
        StepOutput(request_id="b", finish_reason="stop"),
    ]
    survives(Outputs(outputs), Outputs)
    metrics = ModelMetrics(prompt_tokens=5, finished={"stop": 2})
    metrics.step_s.observe(0.02, 3)
    model = ModelStats("m", 1, 2, 3, 64, 128, 64, 256)
    survives(EngineStats(1 << 40, [model], metrics={"m": metrics}), EngineStats)


def test_the_longest_trace_fits_in_a_frame():
    recorder = Recorder(time.monotonic)
    recorder.add_model(model_id := "sha256-" + 64 * "f")
    for _ in range(MAX_STEPS):
        recorder.begin_step()
        recorder.end_step(model_id, 128, 256, 128)
    for _ in range(MAX_EVENTS):
        recorder.submitted(100 * "r", model_id, 1_000_000)
    trace = recorder.trace()
    survives(trace, type(trace))


def test_error_texts_are_cut_between_characters():
    assert printable("plain") == "plain"
    assert printable("\udcff") == r"\udcff"
    cut = printable("ü" * 2000)
    assert cut.endswith("ü...")
    assert len(cut.encode()) <= MAX_ERROR_BYTES
