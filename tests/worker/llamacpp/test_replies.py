"""Requests become what llama.cpp's server is asked, and its replies outputs of ours."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from puna.engine.request import Request, SamplingParams, StepOutput
from puna.worker.llamacpp.client.http import ServerClient
from puna.worker.llamacpp.client.replies import ServedModel
from tests.worker.llamacpp.fake_server import FakeServer, last, token

pytestmark = pytest.mark.unit

EOS = 2


class Served:
    """A model in a fake served.server."""

    def __init__(self, socket: Path) -> None:
        self.server = FakeServer()
        self._socket = socket

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ServedModel]:
        async with self.server.serving(self._socket):
            client = ServerClient(self._connect)
            yield ServedModel(client, context_length=16, bos_id=1, marker="<M>")
            await client.close()
        self._socket.unlink()

    async def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._socket))
        return connection

    def outputs(self, asked: Request) -> list[StepOutput]:
        async def outputs() -> list[StepOutput]:
            async with self.running() as model:
                return [output async for output in model.outputs(asked, set_event())]

        return asyncio.run(outputs())

    def body(self, asked: Request) -> dict[str, Any]:
        """What the server is asked for a completion."""
        self.server.events = [last("limit")]
        self.outputs(asked)
        return next(body for path, body in self.server.asked if path == "/completion")


def set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path / "s")


def request(**fields: Any) -> Request:
    return Request(**{"id": "r", "model_id": "m", "prompt": [5, 6, 7], "stop_tokens": [EOS], **fields})


def test_a_reply_is_told_token_by_token(served: Served):
    served.server.events = [token(8, "a"), token(9, "b"), last("limit", 2)]
    first, second, end = served.outputs(request())
    assert (first.text, first.tokens, second.text, second.tokens) == ("a", [8], "b", [9])
    assert (end.finish_reason, end.text, end.tokens) == ("length", "", [])
    stats = end.stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (3, 1, 2)
    assert (stats.prompt_ns, stats.generation_ns) == (1_500_000, 2_500_000)


def test_the_end_token_is_not_told(served: Served):
    served.server.events = [token(8, "a"), token(EOS, ""), last("eos", 2)]
    outputs = served.outputs(request())
    assert [output.tokens for output in outputs] == [[8], []]
    assert outputs[-1].finish_reason == "stop"


def test_what_is_held_back_comes_with_the_text_that_ends_it(served: Served):
    served.server.events = [token(8, ""), token(9, "ab"), token(10, ""), last("limit", 3)]
    outputs = served.outputs(request(stop=["ac"]))
    assert [(output.text, output.tokens) for output in outputs] == [("ab", [8, 9]), ("", [10])]


def test_a_stop_string_ends_a_reply_without_its_tokens(served: Served):
    served.server.events = [token(8, "a"), token(9, ""), last("word", 2, stopping_word="END")]
    outputs = served.outputs(request(stop=["END"]))
    assert [output.tokens for output in outputs] == [[8], []]
    assert (outputs[-1].finish_reason, outputs[-1].stop_string) == ("stop", "END")


def test_log_probabilities(served: Served):
    top = [{"id": 8, "logprob": -0.5, "bytes": [97]}, {"id": 4, "logprob": None, "bytes": [98]}]
    likely = {"id": 8, "logprob": -0.5, "bytes": [97], "top_logprobs": top}
    served.server.events = [token(8, "a", completion_probabilities=[likely]), last("limit")]
    two = (served.outputs(request(sampling=SamplingParams(num_logprobs=2))))[0].logprobs[0]
    none = (served.outputs(request(sampling=SamplingParams(num_logprobs=0))))[0].logprobs[0]
    assert (two.token, two.logprob, two.bytes) == (8, -0.5, b"a")
    assert [(each.token, each.bytes) for each in two.top] == [(8, b"a"), (4, b"b")]
    assert two.top[1].logprob < -1000  # JSON has no infinity
    assert none.top == []
    assert (served.outputs(request()))[0].logprobs is None


def test_options_mean_what_they_mean_to_us(served: Served):
    sampling = SamplingParams(
        temperature=0.5,
        top_k=7,
        top_p=0.25,
        min_p=0.125,
        typical_p=0.75,
        repeat_last_n=-1,
        repeat_penalty=1.5,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        seed=3_000_000_000,
        logit_bias={4: -2.0},
        num_logprobs=3,
    )
    schema = '{"type": "object"}'
    body = served.body(request(sampling=sampling, max_tokens=5, stop=["x"], json_schema=schema))
    expected = {
        **{"temperature": 0.5, "top_k": 7, "top_p": 0.25, "min_p": 0.125, "typical_p": 0.75},
        **{"repeat_last_n": 2**31 - 1, "repeat_penalty": 1.5, "presence_penalty": 0.25},
        **{"frequency_penalty": 0.5, "seed": 3_000_000_000, "logit_bias": [[4, -2.0]], "n_probs": 3},
        **{"prompt": [5, 6, 7], "n_predict": 5, "stop": ["x"], "json_schema": {"type": "object"}},
        **{"cache_prompt": True, "stream": True},
    }
    assert expected.items() <= body.items()
    assert "ignore_eos" not in body


def test_what_is_not_asked_for_is_off(served: Served):
    body = served.body(request(stop_tokens=[], cache_salt="mine"))
    assert body["ignore_eos"]
    assert not body["cache_prompt"]  # others' tokens are in the same slots
    assert body["seed"] == -1
    assert body["n_predict"] == 13  # of a context of 16
    assert not {"json_schema", "n_probs", "logit_bias", "preserved_tokens"} & body.keys()


def test_shown_control_tokens_are_named(served: Served):
    served.server.replies["/detokenize"] = {"content": "<call>"}
    body = served.body(request(shown_tokens=[11, 11]))
    assert body["preserved_tokens"] == ["<call>", "<call>"]
    assert [body for path, body in served.server.asked if path == "/detokenize"] == [{"tokens": [11]}]


@pytest.mark.parametrize(("found", "expected"), [([1, 1, 9], [1, 9]), ([1, 9], [1, 9]), ([9, 9], [9, 9])])
def test_a_text_becomes_tokens_there_and_never_has_two_beginnings(
    served: Served, found: list[int], expected: list[int]
):
    served.server.replies["/tokenize"] = {"tokens": found}
    assert (served.body(request(prompt=[], text="<s>x")))["prompt"] == expected


def test_a_prompt_that_does_not_fit_is_refused(served: Served):
    (output,) = served.outputs(request(prompt=[5] * 16))
    assert (output.finish_reason, served.server.asked) == ("refused", [])
    assert "16 tokens" in output.error
    (output,) = served.outputs(request(context_length=3))
    assert output.finish_reason == "refused"


@pytest.mark.parametrize(("status", "reason"), [(400, "refused"), (501, "refused"), (500, "error")])
def test_refusals_say_why(served: Served, status: int, reason: str):
    served.server.status = status
    served.server.replies["/completion"] = {"error": {"message": "no such thing"}}
    (output,) = served.outputs(request())
    assert (output.finish_reason, output.error) == (reason, "llama.cpp's server: no such thing")


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"content": 1}\n\n',
        b"data: \xff\n\n",
        b'error: {"message": "full"}\n\n',
        b'data: {"error": {}}\n\n',
        b"",
    ],
)
def test_a_stream_that_goes_wrong_ends_in_an_error(served: Served, event: bytes):
    served.server.events = [token(8, "a"), event + b"\n\n"]
    first, end = served.outputs(request())
    assert (first.text, end.finish_reason) == ("a", "error")


def test_lines_end_only_where_they_do(served: Served):
    served.server.events = ['data: {"content": "a\u2028b\x85", "tokens": [8]}\n\n'.encode(), last("limit")]
    assert (served.outputs(request()))[0].text == "a\u2028b\x85"


def test_leaving_a_reply_closes_the_connection(served: Served):
    served.server.events, served.server.is_endless = [token(8, "a")], True

    async def leave() -> None:
        async with served.running() as model:
            async with aclosing(model.outputs(request(), set_event())) as outputs:
                assert (await anext(outputs)).text == "a"
                assert not served.server.has_gone.is_set()
            await asyncio.wait_for(served.server.has_gone.wait(), 10)

    asyncio.run(leave())


def test_a_paused_reply_is_not_read(served: Served):
    served.server.events = [token(8, "a"), token(9, "b"), last("limit", 2)]

    async def pause() -> None:
        may_go_on = asyncio.Event()
        async with served.running() as model, aclosing(model.outputs(request(), may_go_on)) as outputs:
            await anext(outputs)
            following = asyncio.ensure_future(anext(outputs))
            await asyncio.sleep(0)
            assert not following.done()
            may_go_on.set()
            assert (await following).text == "b"

    asyncio.run(pause())


def test_embeddings(served: Served):
    served.server.replies["/embedding"] = [{"index": 0, "embedding": [[0.5, -2.0]]}]
    (output,) = served.outputs(request(pooling="mean"))
    assert (output.embedding, output.finish_reason) == (struct.pack("2f", 0.5, -2.0), "stop")
    assert served.server.asked == [("/embedding", {"content": [5, 6, 7], "embd_normalize": -1})]
    served.server.replies["/embedding"] = []
    (output,) = served.outputs(request(pooling="mean"))
    assert output.finish_reason == "error"


def test_images_go_with_a_text_in_which_nobody_else_can_have_marked_one(served: Served):
    body = served.body(request(images=[b"red", b"blue"], pieces=["a<M>", "b", "<<M>M>"]))
    assert body["prompt"] == {"prompt_string": "a <M>b<M>< M>", "multimodal_data": ["cmVk", "Ymx1ZQ=="]}


def test_a_reply_to_images_ends_with_the_context(served: Served):
    shown = request(images=[b"red"], pieces=["", "a"])
    events = [token(8, "x", tokens_evaluated=14, tokens_predicted=n) for n in (1, 2, 3)]
    served.server.events = events
    first, end = served.outputs(shown)
    assert (first.finish_reason, end.finish_reason, end.text) == (None, "length", "x")
    assert (end.stats.prompt_tokens, end.stats.generated_tokens) == (14, 2)
    served.server.events = [token(8, "x", tokens_evaluated=16, tokens_predicted=1)]
    (refused,) = served.outputs(shown)
    assert refused.finish_reason == "refused"
    assert "the prompt has 16 tokens with its images, the context 16" in refused.error
