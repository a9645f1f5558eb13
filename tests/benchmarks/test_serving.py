"""How the figures about serving come about: percentiles, waits, metrics, tables; with a fake server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.figures import Report, Row, Target, percentile, seconds
from benchmarks.servers.clients import LlamaCppClient, PunaClient, Stream, makespan_s, stream_all
from benchmarks.servers.metrics import Metrics
from benchmarks.serving.latency import Waits
from benchmarks.serving.memory import _pressure_rows
from benchmarks.serving.prefix import _alone_rows, _computed, _computed_row, _needed, _together_row
from benchmarks.serving.speculation import _figure
from benchmarks.serving.tasks import FREE, REPETITIVE

pytestmark = pytest.mark.native


def test_percentiles_are_values_that_occurred():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, p) for p in (0, 20, 21, 50, 95, 100)] == [1, 1, 2, 3, 5, 5]
    assert percentile([7.0], 50) == 7
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_targets():
    least, most = Target(15), Target(2.5, is_least=False)
    assert [least.is_met(r) for r in (14.9, 15, 16)] == [False, True, True]
    assert [most.is_met(r) for r in (2.4, 2.5, 2.6)] == [True, True, False]
    assert (str(least), str(most)) == ("≥ 15", "≤ 2.5")


def test_the_table():
    report = Report("On a machine.")
    report.scenarios["One"] = [
        Row("how fast", seconds(0.01234), seconds(2.5), 202.6, Target(15)),
        Row("how much", "7"),
    ]
    report.scenarios["Two"] = [Row("how slow", "1", "2", 3.0, Target(2.5, is_least=False))]
    assert report.tables() == (
        "On a machine.\n\n"
        "| One | puna | llama.cpp | ratio | wanted |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| how fast | 12.3 ms | 2.50 s | **203** | ≥ 15: met |\n"
        "| how much | 7 |  |  |  |\n\n"
        "| Two | puna | llama.cpp | ratio | wanted |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| how slow | 1 | 2 | **3** | ≤ 2.5: missed |\n"
    )


METRICS = """\
# HELP puna_prompt_tokens Prompt tokens.
# TYPE puna_prompt_tokens counter
puna_prompt_tokens_total{model="a \\"b\\", c"} 100.0
puna_prompt_tokens_total{model="d"} 1e2
puna_cached_prompt_tokens_total{model="d"} 50 1700000000
puna_up 1.0
"""


def test_metrics_are_summed_over_labels():
    metrics = Metrics.parse(METRICS)
    assert metrics.total("puna_prompt_tokens_total") == 200
    assert metrics.total("puna_prompt_tokens_total", model='a \\"b\\", c') == 100
    assert metrics.total("puna_up") == 1
    with pytest.raises(KeyError, match="no puna_down"):
        metrics.total("puna_down")


def test_computed_tokens_are_those_of_prompts():
    sample = 'puna_computed_tokens_total{{model="m",phase="{}"}} {}\n'
    before, after = (
        Metrics.parse(sample.format("prefill", n) + sample.format("decode", 5 * n)) for n in (30, 100)
    )
    assert _computed(before, after) == 70


def stream(sent: float, *arrivals: float, text: str = "") -> Stream:
    return Stream(sent, list(arrivals), text)


def test_waits_of_a_stream():
    one = stream(1, 3, 3.5, 6.5)
    assert (one.first_token_s, one.total_s, one.longest_wait_s) == (2, 5.5, 3)
    assert list(one.gaps()) == [(3, 3.5), (3.5, 6.5)]
    assert makespan_s([one, stream(0.5, 2), stream(2, 4, 9)]) == 8.5


def test_p95_waits_are_compared():
    assert Waits([0.01] * 99 + [5.0], [0.02] * 94 + [0.03] * 6, 1).ratio == pytest.approx(3)


def test_rows_about_a_shared_prefix():
    ours = [[stream(0, 0.3), stream(1, 1.01), stream(2, 2.03), stream(3, 3.02)]]
    theirs = [stream(0, 1.0), stream(1, 1.5), stream(2, 2.5), stream(3, 3.5)]
    *_, worst, ratio = _alone_rows(ours, theirs)
    assert (worst.puna, worst.peer) == ("30.0 ms", "500.0 ms")
    assert (ratio.puna, ratio.peer) == ("1/15.0", "1/2.0")
    together = _together_row(
        "x", [[stream(0, 2)], [stream(5, 8)], [stream(0, 4)]], [stream(0, 60)], has_target=True
    )
    assert (together.puna, together.ratio) == ("3.00 s", 20)


def test_rows_about_memory():
    ample = [stream(0, 1, 2, text="a"), stream(0, 2, 3, text="b")]
    scarce = [stream(0, 1, 2, text="a"), stream(0, 9, 10, text="c")]
    same, preemptions, done, wait = _pressure_rows(ample, scarce, Metrics.parse("puna_preemptions_total 3"))
    assert same.cells()[1:] == ["1 of 2", "", "**0.5**", "≥ 1: missed"]
    assert preemptions.puna == "3"
    assert done.puna == "10.00 s, with ample memory 3.00 s"
    assert wait.puna == "9.00 s, with ample memory 2.00 s"


def test_repetitive_tasks_say_how_much_is_repeated():
    for task in REPETITIVE:
        assert _figure(task, task.repeated + " and more") == f"{task.title} (100% as it should be)"
        assert _figure(task, task.repeated[:10] + "§" * 10) == f"{task.title} (50% as it should be)"
        assert task.repeated[-30:] in task.prompt or "stock" in task.repeated
    assert _figure(FREE[0], "whatever") == "free text: a story"


class _Handler(BaseHTTPRequestHandler):
    """Speaks like both servers: three pieces of text, or an endless answer to "endless"."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.send_response(404 if body["prompt"] == "unknown" else 200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for line in self._ollama(body) if self.path == "/api/generate" else self._llamacpp():
                self._chunk(line)
            self._chunk(b"")
        except OSError:
            self.server.disconnected.set()

    def _ollama(self, body: dict) -> Iterator[bytes]:
        if body["prompt"] == "bad":
            yield b'{"error": "no such luck"}\n'
            return
        yield b'{"response": "", "done": false}\n'
        while True:
            yield from [b'{"response": "a", "done": false}\n'] * 3
            if body["prompt"] != "endless":
                break
        end = {"prompt_eval_count": 7, "eval_count": 4, "eval_duration": 2_000_000_000}
        yield json.dumps({"response": "", "done": True, **end}).encode() + b"\n"

    def _llamacpp(self) -> Iterator[bytes]:
        yield from [b'data: {"content": "a", "stop": false}\n\n'] * 3
        timings = {"prompt_n": 2, "cache_n": 5, "predicted_n": 4, "predicted_ms": 2000.0}
        yield b"data: " + json.dumps({"content": "", "stop": True, "timings": timings}).encode() + b"\n\n"

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def fake_server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.bodies, server.disconnected = [], threading.Event()
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_both_servers_are_understood():
    with fake_server() as server:
        ours = PunaClient(server.url, "m").stream("p", 4, {"seed": 3})
        theirs = LlamaCppClient(server.url).stream("p", 4)
        assert server.bodies[0] == {
            "model": "m",
            "prompt": "p",
            "raw": True,
            "options": {"temperature": 0, "num_predict": 4, "seed": 3},
        }
    for one in (ours, theirs):
        assert (one.text, len(one.arrivals)) == ("aaa", 3)
        assert (one.usage.prompt_tokens, one.usage.generated_tokens, one.usage.rate) == (7, 4, 2)
    assert (ours.usage.cached_tokens, theirs.usage.cached_tokens) == (None, 5)
    assert _needed([theirs, theirs], prefix_tokens=3) == 11
    assert _computed_row(11, 11, [theirs, theirs]).cells()[1:4] == ["11 / 11", "4", "**1**"]


def test_errors_of_a_server_are_passed_on():
    with fake_server() as server:
        for prompt, text in (("bad", "no such luck"), ("unknown", "404")):
            with pytest.raises(RuntimeError, match=text):
                PunaClient(server.url, "m").stream(prompt, 4)


def test_who_has_seen_enough_disconnects():
    with fake_server() as server:
        live = Stream(0.0)
        thread = threading.Thread(target=PunaClient(server.url, "m").stream, args=("endless", 4, None, live))
        thread.start()
        while len(live.arrivals) < 5:
            thread.join(0.01)
        live.cancelled = True
        thread.join()
        assert server.disconnected.wait(10)
    assert live.usage is None


def test_all_are_sent_at_once():
    with fake_server() as server:
        streams = stream_all(PunaClient(server.url, "m"), list("pqr"), 4)
        assert sorted(body["prompt"] for body in server.bodies) == list("pqr")
    assert all(s.usage for s in streams)
