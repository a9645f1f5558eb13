"""The real command in a real terminal, against the fake server."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.cli.kv.kv_memory import kv_memory, kv_model

pytestmark = pytest.mark.e2e


def _environment():
    """As it is now, but for the size of the terminal that the tests run in."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return kept | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}


class Terminal:
    """Runs `puna` with all three streams on a pseudo terminal of 60 columns."""

    def __init__(self, *arguments):
        self.screen = ""
        self._fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "puna.cli", *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=_environment(),
        )
        os.close(child)

    def type(self, text):
        os.write(self._fd, text.encode())

    def read_until(self, pattern, limit_s=60):
        """Reads on until `pattern` appears in what came since the last call; returns the text up to there."""
        deadline = time.monotonic() + limit_s
        while not (match := re.search(pattern, self.screen, re.DOTALL)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.screen!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                assert self._read(), f"no {pattern!r} in {self.screen!r}"
        seen, self.screen = self.screen[: match.end()], self.screen[match.end() :]
        return seen

    def read_rest(self):
        """What was printed since the last call, once the command has ended."""
        while self._read():
            pass
        return self.screen

    def _read(self):
        try:
            data = os.read(self._fd, 4096)
        except OSError:  # the command has ended
            return False
        self.screen += data.decode(errors="replace")
        return True

    def wait(self):
        return self._process.wait(60)

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._fd)


@pytest.fixture
def terminal(server):
    assert server.port
    terminals = []

    def start(*arguments):
        terminals.append(Terminal(*arguments))
        return terminals[-1]

    yield start
    for each in terminals:
        each.close()


@pytest.fixture(autouse=True)
def answers(server):
    server.answers["POST", "/api/generate"] = [
        {"response": "word " * 30, "done": True, "done_reason": "stop"}
    ]
    server.answers["POST", "/api/chat"] = lambda body: [
        {
            "message": {"role": "assistant", "content": f"You said {body['messages'][-1]['content']}."},
            "done": True,
        }
    ]


def test_a_conversation(server, terminal, tmp_path):
    session = terminal("run", "m")
    session.read_until("Send a message")
    session.type("hello\r")
    session.read_until(r"You said hello\.")
    session.read_until("Send a message")
    session.type("\x03")
    session.read_until(r"Use Ctrl \+ d or /bye to exit\..*Send a message")
    session.type("/bye\r")
    assert session.wait() == 0
    assert server.bodies("/api/generate") == [{"model": "m", "stream": False}]
    assert (tmp_path / ".ollama" / "history").read_text() == "hello\n/bye\n"


def test_ctrl_g_opens_the_editor_on_what_was_typed(server, terminal, tmp_path, monkeypatch):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/draft/$1/; s/$/\\nmore/" "$2"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", "not this one")
    monkeypatch.setenv("OLLAMA_EDITOR", f"{editor} letter")
    session = terminal("run", "m")
    session.read_until("Send a message")
    session.type("a draft\x07")
    session.read_until("a letter.*more")
    session.type("\r")
    session.read_until("You said")
    assert server.bodies("/api/chat")[0]["messages"][0]["content"] == "a letter\nmore"


def test_ctrl_d_leaves(terminal):
    session = terminal("run", "m")
    session.read_until("Send a message")
    session.type("\x04")
    assert session.wait() == 0


def test_ctrl_c_stops_a_reply_and_the_server_notices(server, terminal):
    def endless(_):
        class Stream(list):
            def __iter__(self):
                for n in range(6000):
                    time.sleep(0.01)
                    yield {"message": {"role": "assistant", "content": f"{n} "}, "done": False}

        return Stream()

    server.answers["POST", "/api/chat"] = endless
    session = terminal("run", "m")
    session.read_until("Send a message")
    session.type("hello\r")
    session.read_until("3 4 5")
    session.type("\x03")
    session.read_until("Send a message")
    while not server.num_disconnects:
        time.sleep(0.01)
    session.type("/bye\r")
    assert session.wait() == 0


def test_one_answer_is_wrapped(terminal):
    session = terminal("run", "m", "hi")
    assert session.wait() == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", session.read_rest())
    assert [line.strip() for line in shown.splitlines() if "word" in line] == [
        *("word word word word word word word word word word word",) * 2,
        "word word word word word word word word",
    ]


def test_ctrl_c_ends_a_one_shot_run_without_a_traceback(server, terminal):
    server.answers["POST", "/api/generate"] = lambda _: time.sleep(2) or []
    session = terminal("run", "m", "hi")
    while not server.bodies("/api/generate"):
        time.sleep(0.01)
    session.type("\x03")
    assert session.wait() != 0
    assert "Traceback" not in session.read_rest()


def test_pull_shows_bars_in_order(server, terminal):
    server.answers["POST", "/api/pull"] = [
        {"status": "pulling manifest"},
        {"status": f"copying sha256:{'a' * 64}", "total": 92_000_000, "completed": 46_000_000},
        {"status": f"copying sha256:{'a' * 64}", "total": 92_000_000, "completed": 92_000_000},
        {"status": "writing manifest"},
        {"status": "success"},
    ]
    session = terminal("pull", "m")
    assert session.wait() == 0
    session.read_until(
        r"pulling manifest.*copying sha256:a{12}:.*100%.*92.0/92.0 MB.*writing manifest.*success"
    )


def test_kv_top_follows_the_server_until_q(server, terminal):
    memory = kv_memory(kv_model("smollm2:135m", committed=64 << 20, used=64 << 20))
    server.answers["GET", "/api/kv"] = lambda _: memory
    top = terminal("kv", "top")
    assert "\x1b[?1049h" in top.read_until(r"KV +\[")  # a screen of its own
    seen = top.read_until(r"\n\S*smollm2\S+[^\n]+")
    assert re.search(r"6\.25%|\b6%", seen)
    assert "64 MiB" in seen
    memory = kv_memory(kv_model("smollm2:135m", state="asleep"))
    top.read_until("asleep")
    top.type("q")
    assert "\x1b[?1049l" in top.read_rest()
    assert top.wait() == 0


def test_kv_top_ends_at_ctrl_c(server, terminal):
    server.answers["GET", "/api/kv"] = kv_memory()
    top = terminal("kv", "top")
    top.read_until("no model is loaded")
    top.type("\x03")
    assert "Traceback" not in top.read_rest()
    assert top.wait() == 0


def test_kv_top_says_why_it_ends(server, terminal):
    server.answers["GET", "/api/kv"] = kv_memory()
    top = terminal("kv", "top")
    top.read_until("no model is loaded")
    server.answers["GET", "/api/kv"] = (503, {"error": "the worker does not answer"})
    rest = top.read_rest()
    assert rest.rpartition("\x1b[?1049l")[2].strip().endswith("Error: the worker does not answer")
    assert top.wait() == 1
