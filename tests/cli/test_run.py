"""`run` answers one prompt on standard output and nothing else; it starts what it needs."""

from __future__ import annotations

import hashlib
import sys
import time

import pytest

from puna.cli import connection
from puna.cli.connection import connect_or_start
from puna.cli.errors import CliError, NotRunning
from puna.cli.models.import_gguf import is_path, link_in_place, model_name_of
from puna.config.settings import Settings
from puna.registry import ModelName
from puna.registry.local.linked import link

pytestmark = pytest.mark.unit

ANSWER = [
    {"response": "Hello", "done": False},
    {"response": " you", "done": False},
    {"response": "", "done": True, "eval_count": 2, "eval_duration": 1_000_000_000},
]


@pytest.fixture(autouse=True)
def generate(server):
    server.answers["POST", "/api/generate"] = ANSWER


def test_prompt_words_are_joined(server, puna):
    result = puna("run", "m", "say", "hello")
    assert (result.out, result.err, result.status) == ("Hello you\n", "", 0)
    assert server.bodies("/api/generate") == [{"model": "m", "prompt": "say hello"}]


def test_a_file_of_another_program_is_used_in_place(server, puna, tmp_path):
    blob = tmp_path / "blob"
    blob.write_bytes(b"GGUF")
    path = tmp_path / "m.gguf"
    path.symlink_to(blob)
    local = [
        {"name": "split", "files": ["first", str(path)]},
        {"name": "hf.co/u/r:Q8_0", "files": [str(path)]},
    ]
    server.answers["GET", "/api/local"] = {"models": local}
    assert puna("run", str(blob), "hi").out == "Hello you\n"
    assert server.bodies("/api/generate") == [{"model": "hf.co/u/r:Q8_0", "prompt": "hi"}]
    assert server.bodies("/api/create") == []


def test_piped_input_comes_before_the_prompt(server, puna):
    puna("run", "m", "summarize", stdin="a text\n")
    assert server.bodies("/api/generate")[0]["prompt"] == "a text\n summarize"
    puna("run", "m", stdin="a text")
    assert server.bodies("/api/generate")[1]["prompt"] == "a text"


def test_flags_become_request_fields(server, puna):
    puna("run", "m", "--keepalive", "1h30m", "--format", "json", "--think=high", "hi")
    puna("run", "--format", '{"type": "object"}', "m", "hi")
    assert server.bodies("/api/generate") == [
        {"model": "m", "prompt": "hi", "keep_alive": "1h30m", "format": "json", "think": "high"},
        {"model": "m", "prompt": "hi", "format": {"type": "object"}},
    ]


def test_format_may_be_the_file_of_a_schema(server, puna, tmp_path):
    path = tmp_path / "person.json"
    path.write_text('{"type": "object"}')
    puna("run", "m", "--format", str(path), "hi")
    assert server.bodies("/api/generate")[0]["format"] == {"type": "object"}
    assert puna("run", "m", "--format", "nothing.json", "hi").err.startswith(
        "Error: --format: nothing.json: No"
    )


def test_flags_with_values_as_go_takes_them(server, puna):
    assert "eval rate" in puna("run", "m", "--verbose=true", "hi").err
    assert puna("run", "m", "--verbose=false", "--", "--verbose=false").err == ""
    assert server.bodies("/api/generate")[1]["prompt"] == "--verbose=false"


def test_an_embedding_is_one_array(server, puna):
    server.answers["POST", "/api/show"] = {"capabilities": ["embedding"]}
    server.answers["POST", "/api/embed"] = {"embeddings": [[0.5, -1.0]], "total_duration": 1_000_000}
    result = puna("run", "m", "--truncate=false", "--dimensions", "2", "a text")
    assert (result.out, result.err) == ("[0.5,-1.0]\n", "")
    assert server.bodies("/api/embed") == [
        {"model": "m", "input": "a text", "truncate": False, "dimensions": 2}
    ]
    assert puna("run", "m", stdin="piped").out == "[0.5,-1.0]\n"
    assert "embedding models require input text" in puna("run", "m").err


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("what is {path}?", "what is ?"),
        ("'{path}' compare", "compare"),
        ("{path} {path}", ""),
        ("http://host{path} stays", None),
        ("./nothing.png stays", None),
    ],
)
def test_images_in_prompts(server, puna, tmp_path, prompt, text):
    path = tmp_path / "x.PNG"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    prompt = prompt.format(path=path)
    warning = "Warning: this model takes no PNG: "
    assert (warning in puna("run", "m", prompt).err) == (text is not None)
    server.answers["POST", "/api/show"] = {"capabilities": ["completion", "vision"]}
    puna("run", "m", prompt)
    blind, seeing = server.bodies("/api/generate")
    assert blind == {"model": "m", "prompt": prompt}
    assert seeing["prompt"] == (prompt if text is None else text)
    assert len(seeing.get("images", [])) == prompt.count(str(path)) * (text is not None)


def test_an_image_that_is_none(server, puna, tmp_path):
    server.answers["POST", "/api/show"] = {"capabilities": ["vision"]}
    (tmp_path / "x.png").write_text("text")
    assert "not an image" in puna("run", "m", f"{tmp_path}/x.png").err


def test_a_bare_think_flag_leaves_the_prompt_alone(server, puna):
    puna("run", "m", "--think", "hi")
    puna("run", "m", "--think=false", "hi")
    puna("run", "m", "--", "--think")
    assert server.bodies("/api/generate") == [
        {"model": "m", "prompt": "hi", "think": True},
        {"model": "m", "prompt": "hi", "think": False},
        {"model": "m", "prompt": "--think"},
    ]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--think=maybe"], 'invalid value for --think: "maybe"'),
        (["--keepalive", "300"], 'time: missing unit in duration "300"'),
        (["--format", "{"], "--format: "),
    ],
)
def test_bad_flags(server, puna, flags, text):
    result = puna("run", "m", *flags, "hi")
    assert result.status == 1
    assert result.err.startswith("Error: " + text)
    assert server.bodies("/api/generate") == []


def test_verbose_statistics_go_to_standard_error(puna):
    result = puna("run", "m", "--verbose", "hi")
    assert result.out == "Hello you\n"
    assert "eval rate:            2.00 tokens/s" in result.err


@pytest.mark.parametrize(
    ("flags", "out"),
    [([], "Thinking...\nhm\n...done thinking.\n\nyes\n"), (["--hidethinking"], "yes\n")],
)
def test_thinking_is_marked_off_or_hidden(server, puna, flags, out):
    server.answers["POST", "/api/generate"] = [
        {"thinking": "h", "response": "", "done": False},
        {"thinking": "m", "response": "", "done": False},
        {"response": "\n\nyes", "done": True},
    ]
    assert puna("run", "m", *flags, "hi").out == out


def test_an_error_in_the_stream_follows_what_was_said(server, puna):
    server.answers["POST", "/api/generate"] = [{"response": "Hel", "done": False}, {"error": "out of memory"}]
    result = puna("run", "m", "hi")
    assert (result.out, result.err, result.status) == ("Hel", "Error: out of memory\n", 1)


def test_an_absent_model_is_pulled_first(server, puna):
    present = []
    server.answers["POST", "/api/show"] = lambda _: (
        {} if present else (404, {"error": "model 'm:latest' not found"})
    )

    def pull(_):
        present.append(True)
        return [{"status": "pulling manifest"}, {"status": "success"}]

    server.answers["POST", "/api/pull"] = pull
    result = puna("run", "m", "hi")
    assert result.out == "Hello you\n"
    assert result.err == "pulling manifest\nsuccess\n"


def test_other_errors_of_show_do_not_pull(server, puna):
    server.answers["POST", "/api/show"] = (400, {"error": "invalid model name"})
    result = puna("run", "../x:", "hi")
    assert server.bodies("/api/pull") == []
    assert result.status == 1


# Files


def test_a_file_is_uploaded_and_created(server, puna, tmp_path):
    path = tmp_path / "Tiny model.Q4_1.gguf"
    path.write_bytes(b"GGUF and weights")
    digest = "sha256:" + hashlib.sha256(b"GGUF and weights").hexdigest()
    uploaded = []
    server.answers["HEAD", f"/api/blobs/{digest}"] = lambda _: (200 if uploaded else 404, None)
    server.answers["POST", f"/api/blobs/{digest}"] = lambda body: uploaded.append(body) or (201, None)
    server.answers["POST", "/api/create"] = [{"status": "parsing GGUF"}, {"status": "success"}]
    for _ in range(2):
        result = puna("run", str(path), "hi")
        assert (result.out, result.status) == ("Hello you\n", 0)
    assert uploaded == [b"GGUF and weights"]
    name = "local/Tiny-model.Q4_1"
    assert server.bodies("/api/create")[0] == {"model": name, "files": {path.name: digest}}
    assert server.bodies("/api/generate")[0]["model"] == name


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04"])
def test_a_file_that_is_no_gguf_is_not_uploaded(server, puna, tmp_path, content):
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    result = puna("run", str(path), "hi")
    assert result.err == f"Error: {path} is not a GGUF file\n"
    assert {method for method, _, _ in server.requests} == {"HEAD", "GET"}


def test_a_file_that_is_not_there(server, puna):
    assert puna("run", "./nothing.gguf", "hi").err == "Error: nothing.gguf: No such file or directory\n"
    assert puna("run", "/", "hi").err == "Error: no Modelfile or safetensors files found\n"
    assert server.bodies("/api/show") == []


def test_what_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_path("x.gguf")
    (tmp_path / "x.gguf").touch()
    (tmp_path / "llama3").touch()
    assert is_path("x.gguf")
    assert is_path("./llama3")
    assert is_path("~/llama3")
    assert not is_path("llama3")
    assert not is_path("hf.co/n/m")


@pytest.mark.parametrize(
    ("file_name", "name"),
    [
        ("qwen3-4b.gguf", "local/qwen3-4b"),
        ("Größe (1).GGUF", "local/Gr-e-1-"),
        (".gguf", "local/model"),
        ("..gguf", "local/model"),
        ("-x.gguf", "local/x"),
        ("x" * 200 + ".gguf", "local/" + "x" * 80),
    ],
)
def test_a_file_name_becomes_a_valid_model_name(tmp_path, file_name, name):
    assert model_name_of(tmp_path / file_name) == name
    ModelName.parse(name)


@pytest.mark.parametrize("has_earlier", [True, False])
def test_a_link_that_no_server_finds_is_taken_back(server, client, tmp_path, has_earlier):
    links, directory = tmp_path / "links", tmp_path / "model"
    directory.mkdir()
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        (directory / file).write_text("{}")
    if has_earlier:
        link(links, "model", tmp_path / "earlier")
    server.answers["GET", "/api/local"] = {"models": []}
    assert link_in_place(client, directory, links) is None
    found = [path.readlink() for path in links.iterdir()]
    assert found == ([tmp_path / "earlier"] if has_earlier else [])


# Starting the server

SERVER = """
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(200); self.end_headers()
print("hello from the log", flush=True)
port = int(os.environ["OLLAMA_HOST"].rpartition(":")[2])
server = http.server.HTTPServer(("127.0.0.1", port), Handler)
server.timeout = 10
server.handle_request()
"""


@pytest.fixture
def log(server, tmp_path):
    server.close()
    return tmp_path / ".ollama" / "logs" / "puna.log"


def test_run_starts_a_server(log, monkeypatch):
    monkeypatch.setattr(connection, "_SERVE", (sys.executable, "-c", SERVER))
    connect_or_start(Settings.from_environment()).__exit__(None, None, None)
    assert log.read_text() == "hello from the log\n" or "HEAD" in log.read_text()


def test_a_server_that_fails_says_why(log, monkeypatch):
    log.parent.mkdir(parents=True)
    log.write_text("an old line\n")
    script = "import sys; sys.exit('starting\\nError: listen 127.0.0.1: address already in use')"
    monkeypatch.setattr(connection, "_SERVE", (sys.executable, "-c", script))
    with pytest.raises(
        CliError, match=r"^could not start puna server: listen 127\.0\.0\.1: address already in use"
    ):
        connect_or_start(Settings.from_environment())
    monkeypatch.setattr(connection, "_SERVE", (sys.executable, "-c", ""))
    with pytest.raises(CliError, match=r"^could not start puna server: see .*puna\.log$"):
        connect_or_start(Settings.from_environment())


def test_a_server_that_never_answers_is_ended(log, monkeypatch):
    monkeypatch.setattr(connection, "_SERVE", (sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(connection, "_START_TIMEOUT_S", 0.3)
    begin = time.monotonic()
    with pytest.raises(CliError, match="did not answer"):
        connect_or_start(Settings.from_environment())
    assert time.monotonic() - begin < 30  # it was not waited for until its end
    assert log.exists()


def test_a_log_that_cannot_be_written(log, monkeypatch):
    log.parent.parent.write_text("a file where the directory should be")
    monkeypatch.setattr(connection, "_SERVE", ("/nonexistent",))
    with pytest.raises(CliError, match="could not start puna server"):
        connect_or_start(Settings.from_environment())


def test_no_server_is_started_for_another_machine(monkeypatch):
    monkeypatch.setattr(connection, "_SERVE", ("/nonexistent",))
    monkeypatch.setenv("OLLAMA_HOST", "no-such-machine.invalid")
    with pytest.raises(NotRunning):
        connect_or_start(Settings.from_environment())
