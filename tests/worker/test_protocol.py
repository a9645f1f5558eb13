"""Every message survives the wire; what is no message is refused by name, not by a crash."""

from __future__ import annotations

import asyncio
import io
import socket
import threading

import msgspec
import pytest

from puna.engine import EngineCore, EngineStats, ModelStats, Request, SamplingParams, StepOutput, TokenLogprob
from puna.engine.metrics import ModelMetrics
from puna.engine.recorder import Recorder
from puna.engine.trace import MAX_EVENTS, MAX_STEPS
from puna.worker.client import WorkerClient, WorkerDied
from puna.worker.protocol import (
    HEADER,
    MAX_FRAME_BYTES,
    Cancel,
    FromWorker,
    GetTrace,
    Load,
    Outputs,
    ProtocolError,
    Stats,
    Submit,
    ToWorker,
    Trace,
    decode,
    encode,
    read_payload,
)
from puna.worker.server import WorkerServer
from tests.engine.toy import ToyBackend

pytestmark = pytest.mark.native

REQUEST = Request(
    id="r",
    model_id="m",
    prompt=list(range(100_000)),
    sampling=SamplingParams(seed=2**63, logit_bias={5: -1.5}, num_logprobs=2),
    stop_tokens=[1, 2],
)


@pytest.mark.parametrize(
    "message", [Load(1, "m", b"/\xff"), Submit(REQUEST), Cancel("r"), GetTrace(2, 0.5)], ids=type
)
def test_messages_to_the_worker_survive(message: ToWorker):
    payload = read_payload(io.BytesIO(encode(message)))
    assert payload is not None
    assert decode(payload, msgspec.msgpack.Decoder(ToWorker)) == message


def test_messages_from_the_worker_survive():
    logprob = TokenLogprob(5, -0.5, b"\xff", [TokenLogprob(5, -0.5), TokenLogprob(6, float("-inf"))])
    message = Outputs([StepOutput("a", "x", [5], [logprob]), StepOutput("b", finish_reason="stop")])
    payload = read_payload(io.BytesIO(encode(message)))
    assert payload is not None
    assert decode(payload, msgspec.msgpack.Decoder(FromWorker)) == message


def test_metrics_survive():
    metrics = ModelMetrics(prompt_tokens=5, finished={"stop": 2})
    metrics.step_s.observe(0.02, 3)
    model = ModelStats("m", 1, 2, 3, 64, 128, 64, 256)
    message = Stats(7, EngineStats(1 << 40, [model], metrics={"m": metrics}))
    payload = read_payload(io.BytesIO(encode(message)))
    assert payload is not None
    assert decode(payload, msgspec.msgpack.Decoder(FromWorker)) == message


def test_the_longest_trace_fits_in_a_frame():
    recorder = Recorder()
    recorder.add_model(model_id := "sha256-" + 64 * "f")
    for _ in range(MAX_STEPS):
        recorder.begin_step()
        recorder.end_step(model_id, 128, 256, 128)
    for _ in range(MAX_EVENTS):
        recorder.submitted(100 * "r", model_id, 1_000_000)
    message = Trace(1, recorder.trace())
    frame = encode(message)
    assert len(frame) < MAX_FRAME_BYTES // 8
    payload = read_payload(io.BytesIO(frame))
    assert payload is not None
    assert decode(payload, msgspec.msgpack.Decoder(FromWorker)) == message


@pytest.mark.parametrize("data", [b"", b"\0\0", HEADER.pack(5) + b"1234"])
def test_the_stream_may_end_anywhere(data: bytes):
    assert read_payload(io.BytesIO(data)) is None


def test_an_oversized_frame_is_refused_before_it_is_read():
    with pytest.raises(ProtocolError, match="larger than any message"):
        read_payload(io.BytesIO(HEADER.pack(MAX_FRAME_BYTES + 1)))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"type": "Nonsense"})])
def test_a_payload_that_is_no_message_is_refused(payload: bytes):
    with pytest.raises(ProtocolError, match="not a message"):
        decode(payload, msgspec.msgpack.Decoder(ToWorker))


def test_garbage_ends_the_server_in_order():
    ours, theirs = socket.socketpair()
    backend = ToyBackend()
    server = threading.Thread(target=WorkerServer(EngineCore(backend), theirs).run)
    server.start()
    ours.sendall(HEADER.pack(3) + b"abc")
    server.join()
    backend.close()
    ours.close()


def test_garbage_from_the_worker_is_its_death():
    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(HEADER.pack(3) + b"abc")
        with pytest.raises(WorkerDied):
            await WorkerClient.connect(ours)
        theirs.close()

    asyncio.run(main())
