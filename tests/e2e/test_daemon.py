"""The real daemon with a real model: many clients at once, clients that leave, deaths and ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from puna.api.app import create_app
from puna.config.settings import Settings
from puna.daemon.runtime import Runtime
from puna.http.limits import Limits
from puna.http.server import Server
from tests.e2e.launching import MODEL, TIMEOUT_S, address_of, engine_worker, eventually, launch

pytestmark = pytest.mark.e2e

RUNNER_STOPPED = "model runner has unexpectedly stopped"
BUSY = "server busy, please try again.  maximum pending requests exceeded"


@dataclass
class Daemon:
    process: subprocess.Popen[str]
    url: str

    def worker(self) -> int:
        """The process id of the worker, once it is there."""
        return engine_worker(self.process.pid)

    def request(self, prompt: str, num_predict: int = 12) -> dict:
        return httpx.post(
            f"{self.url}/api/generate", json=body(prompt, num_predict, stream=False), timeout=TIMEOUT_S
        ).json()

    @contextmanager
    def stream(self, prompt: str, num_predict: int) -> Iterator[Iterator[dict]]:
        with httpx.stream(
            "POST", f"{self.url}/api/generate", json=body(prompt, num_predict), timeout=TIMEOUT_S
        ) as reply:
            yield (json.loads(line) for line in reply.iter_lines())


def body(prompt: str, num_predict: int, *, stream: bool = True) -> dict:
    options = {"temperature": 0, "num_predict": num_predict}
    return {"model": MODEL, "prompt": prompt, "raw": True, "stream": stream, "options": options}


@pytest.fixture
def daemon(models) -> Iterator[Daemon]:
    process = launch(models, PUNA_KV_DIR=str(models.parent / "kv"))
    try:
        yield Daemon(process, f"http://{address_of(process)}")
    finally:
        process.kill()
        process.communicate()


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [process for child in children for process in (child, *descendants(child))]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_drafts_change_no_reply(daemon):
    prompt = "One two three four five six. One two three four five six. One two"
    plain, *drafting = [
        {**body(prompt, 24, stream=False), "options": {"temperature": 0, "num_predict": 24, **options}}
        for options in ({"draft_num_predict": 0}, {}, {"draft_model": MODEL, "draft_num_predict": 3})
    ]
    replies = [
        httpx.post(f"{daemon.url}/api/generate", json=request, timeout=TIMEOUT_S).json()["response"]
        for request in (plain, *drafting)
    ]
    assert len(set(replies)) == 1
    metrics = httpx.get(f"{daemon.url}/metrics", timeout=TIMEOUT_S).text
    assert re.search(r"^puna_speculation_accepted_tokens_total\S* [1-9]", metrics, re.MULTILINE)


def test_many_streams_at_once_get_the_text_each_gets_alone(daemon):
    prompts = [f"{number} facts about the number {number * 7}:" for number in range(2, 18)]
    alone = [daemon.request(prompt)["response"] for prompt in prompts]

    async def stream(client: httpx.AsyncClient, prompt: str) -> str:
        async with client.stream("POST", "/api/generate", json=body(prompt, 12)) as reply:
            events = [json.loads(line) async for line in reply.aiter_lines()]
        assert events[-1]["done"]
        return "".join(event["response"] for event in events)

    async def main() -> list[str]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=daemon.url, timeout=TIMEOUT_S, limits=limits) as client:
            return await asyncio.gather(*(stream(client, prompt) for prompt in prompts * 2))

    assert asyncio.run(main()) == alone * 2
    assert len(set(alone)) > 8


def scraped(daemon: Daemon) -> dict[str, float]:
    """Samples whose other labels than `model` are irrelevant, or there are none, by name; sums."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{daemon.url}/metrics", timeout=TIMEOUT_S).text):
        for sample in family.samples:
            assert sample.labels.get("model", MODEL) == MODEL
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_metrics_and_timeline_say_what_was_served(daemon):
    assert scraped(daemon).keys() >= {"puna_worker_up", "puna_http_requests_in_progress"}
    prompt = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is"
    replies = [daemon.request(prompt, 12) for _ in range(3)]
    found = scraped(daemon)
    assert (found["puna_worker_up"], found["puna_worker_starts_total"], found["puna_model_loaded"]) == (
        1,
        1,
        1,
    )
    assert found["puna_requests_finished_total"] == 3
    assert found["puna_prompt_tokens_total"] == sum(reply["prompt_eval_count"] for reply in replies)
    assert found["puna_cached_prompt_tokens_total"] == 2 * (replies[0]["prompt_eval_count"] - 1)
    assert found["puna_generated_tokens_total"] == sum(reply["eval_count"] for reply in replies)
    assert found["puna_time_to_first_token_seconds_count"] == found["puna_queue_time_seconds_count"] == 3
    assert found["puna_inter_token_latency_seconds_count"] == found["puna_generated_tokens_total"] - 3
    assert 0 < found["puna_device_busy_seconds_total"] <= found["puna_step_duration_seconds_sum"]
    assert 0 < found["puna_kv_committed_bytes"] <= found["puna_kv_limit_bytes"]
    assert found["puna_requests_running"] == found["puna_requests_waiting"] == 0
    trace = httpx.get(f"{daemon.url}/debug/trace", timeout=TIMEOUT_S).json()["traceEvents"]
    assert {event["pid"] for event in trace} == {daemon.worker()}
    steps = [event for event in trace if event["ph"] == "X" and event["name"] in ("prefill", "decode")]
    assert len(steps) == found["puna_step_duration_seconds_count"]
    assert sum(event["ph"] == "b" and event["name"].startswith("request") for event in trace) == 3
    os.kill(daemon.worker(), signal.SIGKILL)
    eventually(lambda: scraped(daemon)["puna_worker_starts_total"] == 2)
    assert scraped(daemon).get("puna_requests_finished_total", 0) == 0


def test_workers_death_in_the_middle_of_a_stream_is_a_clear_error_and_the_next_request_works(daemon):
    before = daemon.request("The capital of France is")
    first = daemon.worker()
    with daemon.stream("Once upon a time", 2000) as events:
        assert next(events)["response"]
        os.kill(first, signal.SIGKILL)
        *_, last = events
    assert last["error"].startswith(RUNNER_STOPPED)
    after = daemon.request("The capital of France is")
    assert after["response"] == before["response"]
    assert daemon.worker() != first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_every_process_lets_requests_end_keeps_prefixes_and_leaves_no_process(
    daemon, models, number
):
    kept = models.parent / "kv"
    shutil.rmtree(kept, ignore_errors=True)
    long_prompt = "The quick brown fox jumps over the lazy dog. " * 20
    with daemon.stream("Once upon a time", 2000) as events, daemon.stream(long_prompt, 12) as short:
        assert next(events)["response"]
        assert next(short)["response"]
        family = [daemon.process.pid, *descendants(daemon.process.pid)]
        for process in family:  # as Ctrl-C and service managers do
            os.kill(process, number)
        *_, short_end = short
        *_, end = events
    assert short_end["done_reason"] == "length"
    assert end.get("done") or end["error"] == "puna server is shutting down"
    assert daemon.process.wait(TIMEOUT_S) == 0
    assert not any(is_running(process) for process in family)
    assert "Traceback" not in daemon.process.stderr.read()
    assert len([path for path in kept.rglob("*") if path.is_file()]) > 5


def test_second_signal_does_not_wait_for_anyone(daemon):
    with daemon.stream("Once upon a time", 2000) as events:
        assert next(events)["response"]
        worker = daemon.worker()
        daemon.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(TIMEOUT_S) == 0
    assert not is_running(worker)


def test_signal_before_the_worker_is_ready_leaves_no_process(daemon):
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(TIMEOUT_S) == 0
    assert "Traceback" not in daemon.process.stderr.read()


def test_worker_does_not_outlive_a_killed_daemon(daemon):
    daemon.request("Hello")
    worker = daemon.worker()
    daemon.process.kill()
    eventually(lambda: not is_running(worker))


def test_port_in_use_is_said_clearly(daemon, models):
    address = daemon.url.removeprefix("http://")
    second = launch(models, host=address, PUNA_KV_DISK="0")
    _, errors = second.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 1
    assert errors.splitlines()[-1] == f"Error: listen tcp {address}: bind: address already in use"
    assert httpx.get(daemon.url).text == "Ollama is running"


@pytest.mark.parametrize("models_path", ["/proc/nowhere", "/dev/null"])
def test_store_that_cannot_be_used_does_not_keep_the_daemon_from_starting(models_path):
    process = launch(Path(models_path), PUNA_KV_DISK="0")
    try:
        url = f"http://{address_of(process)}"
        assert httpx.get(f"{url}/api/tags").json() == {"models": []}
        assert httpx.post(f"{url}/api/generate", json=body("Hello", 1)).status_code == 404
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def served(models: Path, **settings: Any) -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    """The daemon's parts in this process, so that a test can look inside."""
    runtime = Runtime(
        Settings(
            models=models, kv_dir=models.parent / "kv", state_key=models.parent / "state.key", **settings
        )
    )
    server = Server(create_app(runtime), Limits())
    listener = socket.create_server(("127.0.0.1", 0))
    await runtime.start()
    serving = asyncio.create_task(server.serve(listener))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
            yield runtime, client
    finally:
        server.abort()
        await serving
        await runtime.close()


CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Write a novel."}], "stream": True}


@pytest.mark.parametrize(
    ("path", "content", "num_replies"),
    [
        ("/api/generate", body("Once upon a time", 4000), 1),
        ("/v1/chat/completions", {**CHAT, "n": 4, "seed": 1, "temperature": 1.5}, 4),
    ],
)
def test_client_that_disconnects_frees_its_blocks(models, path, content, num_replies):
    async def main() -> None:
        async with served(models) as (runtime, client):
            async with client.stream("POST", path, json=content) as reply:
                lines = reply.aiter_lines()
                for _ in range(8 * num_replies):
                    await anext(lines)
                (model,) = (await runtime.observe()).stats.models
                assert model.used_kv_bytes > 0
                assert model.num_running == num_replies
            for _ in range(200):
                (model,) = (await runtime.observe()).stats.models
                if model.used_kv_bytes == 0 and model.num_running == 0:
                    return
                await asyncio.sleep(0.05)
            pytest.fail(f"blocks are still held: {model}")

    asyncio.run(main())


def test_requests_beyond_the_queue_are_refused_on_both_faces(models):
    async def main() -> None:
        async with served(models, max_running=1, max_queue=1) as (runtime, client):
            async with client.stream("POST", "/api/generate", json=body("Once upon a time", 4000)) as reply:
                lines = reply.aiter_lines()  # dropping it would close the connection
                await anext(lines)
                waiting = asyncio.create_task(client.post("/api/generate", json=body("Hello", 1)))
                while (await runtime.observe()).stats.models[0].num_waiting == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                for stream in (True, False):
                    native = await client.post("/api/generate", json=body("Hello", 1, stream=stream))
                    assert native.json() == {"error": BUSY}
                    openai = await client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
                    assert openai.json()["error"]["message"] == BUSY
                    assert native.status_code == openai.status_code == 503
                assert not waiting.done()
            assert (await waiting).status_code == 200

    asyncio.run(main())
