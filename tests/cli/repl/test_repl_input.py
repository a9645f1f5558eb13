"""Typing messages: keys, history, and text on several lines."""

from __future__ import annotations

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from puna.cli.errors import CliError
from puna.cli.repl.completion import CommandCompleter
from puna.cli.repl.editor import edit
from puna.cli.repl.line_input import LineHistory, prompt_reader, read_message

pytestmark = pytest.mark.unit


@pytest.fixture
def type_keys(tmp_path):
    """type_keys("abc\\r", prompts=1): presses keys, returns what the prompts gave."""

    def press(keys, count=1, enabled=True):
        history = LineHistory(tmp_path / ".ollama" / "history", enabled=enabled)
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            read = prompt_reader(history)
            pipe.send_text(keys)
            return [read(">>> ") for _ in range(count)]

    return press


def test_lines_and_their_history(type_keys, tmp_path):
    assert type_keys("one\rtwo\r", 2) == ["one", "two"]
    assert (tmp_path / ".ollama/history").read_text() == "one\ntwo\n"


def test_history_is_that_of_ollama_and_bounded(type_keys, tmp_path):
    path = tmp_path / ".ollama" / "history"
    path.parent.mkdir()
    path.write_text("".join(f"line {n}\n" for n in range(150)))
    type_keys("new\r")
    lines = path.read_text().splitlines()
    assert len(lines) == 100
    assert lines[-2:] == ["line 149", "new"]


def test_history_switched_off(type_keys, tmp_path):
    type_keys("secret\r", enabled=False)
    assert not (tmp_path / ".ollama").exists()


def test_history_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    history = LineHistory(tmp_path / "file" / "history", enabled=True)
    history.store_string("x")
    assert not history.enabled


def test_ctrl_j_begins_a_new_line(type_keys, tmp_path):
    assert type_keys("a\nb\r") == ["a\nb"]
    assert (tmp_path / ".ollama/history").read_text() == "a b\n"


def test_pasted_lines_are_one_message(type_keys):
    assert type_keys("\x1b[200~a\nb\x1b[201~\r") == ["a\nb"]


def test_ctrl_c_clears_a_line_and_leaves_an_empty_one(type_keys):
    assert type_keys("wrong\x03right\r") == ["right"]
    with pytest.raises(KeyboardInterrupt):
        type_keys("\x03")


def test_ctrl_d_ends(type_keys):
    with pytest.raises(EOFError):
        type_keys("\x04")


def test_an_editor_that_is_not_there():
    with pytest.raises(CliError, match='editor "/no/such/editor" not found, set OLLAMA_EDITOR'):
        edit("text", "/no/such/editor -w")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("/se", ["/set"]),
        ("/set parameter temp", ["temperature"]),
        ("/show s", ["system"]),
        ("", []),
        ("show s", []),
    ],
)
def test_tab_completes_commands(typed, completed):
    found = CommandCompleter().get_completions(Document(typed), CompleteEvent())
    assert [completion.text for completion in found] == completed


def test_continuation_prompt():
    prompts = []
    lines = iter(['"""a', "b", 'c"""'])

    def read(prompt):
        prompts.append(prompt)
        return next(lines)

    assert read_message(read) == "a\nb\nc"
    assert prompts == [">>> ", "... ", "... "]
