"""Columns, texts and exit statuses of the commands are Ollama's."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.unit

DIGEST = "0123456789abcdef" * 4


def ago(**delta):
    return (datetime.now(UTC) - timedelta(**delta)).isoformat()


def model(name, size=92_000_000, **fields):
    return {"name": name, "model": name, "digest": DIGEST, "size": size, "details": {}, **fields}


def test_list(server, puna):
    server.answers["GET", "/api/tags"] = {
        "models": [
            model("smollm2:135m", modified_at=ago(hours=3)),
            model("Long/name:of-a-model", size=4_700_000_000, modified_at=ago(days=20)),
        ]
    }
    expected = """\
NAME                    ID              SIZE      MODIFIED
smollm2:135m            0123456789ab    92 MB     3 hours ago
Long/name:of-a-model    0123456789ab    4.7 GB    2 weeks ago
"""
    assert puna("list").out == puna("ls").out == expected
    assert puna("list", "LONG").out.splitlines()[1].startswith("Long/name")
    assert len(puna("list", "LONG").out.splitlines()) == 2


def test_json(server, puna):
    models = [model("a:1", modified_at=ago(days=1)), model("b:1", modified_at=ago(days=1))]
    server.answers["GET", "/api/tags"] = server.answers["GET", "/api/ps"] = {"models": models}
    server.answers["GET", "/api/sessions"] = {"sessions": [{"name": "s", "model": "a:1"}]}
    for command in (["list"], ["ps"]):
        assert json.loads(puna(*command, "--json", "B").out) == {"models": models[1:]}
    assert json.loads(puna("session", "list", "--json").out)["sessions"][0]["name"] == "s"
    assert json.loads(puna("show", "m", "--json").out) == server.answers["POST", "/api/show"]


def test_list_of_nothing(server, puna):
    server.answers["GET", "/api/tags"] = {"models": []}
    assert puna("list").out == "NAME    ID    SIZE    MODIFIED\n"


def test_ps(server, puna):
    server.answers["GET", "/api/ps"] = {
        "models": [
            model(
                "a:1",
                size_vram=0,
                context_length=2048,
                expires_at=ago(minutes=-4, seconds=-30),
                kv={"committed": 5_900_000, "used": 1_100_000, "cached": 4_700_000},
            ),
            model("b:1", size_vram=0, context_length=4096, expires_at="2318-01-01T00:00:00.123456789Z"),
        ],
        "processes": [{"name": "worker", "pid": 17, "cage": "Landlock 7, seccomp"}],
    }
    assert (
        puna("ps").out
        == """\
NAME    ID              SIZE     PROCESSOR    CONTEXT    KV          CACHED      UNTIL
a:1     0123456789ab    92 MB    100% CPU     2048       5.63 MiB    4.48 MiB    4 minutes from now
b:1     0123456789ab    92 MB    100% CPU     4096                               Forever
"""
    )
    held = ["PROCESS    PID    HELD BY", "worker     17     Landlock 7, seccomp"]
    assert puna("ps", "--verbose").out.splitlines()[-2:] == held


def test_rm_unloads_deletes_and_stops_at_the_first_error(server, puna):
    server.answers["POST", "/api/generate"] = lambda body: (
        (404, {"error": f"model '{body['model']}' not found"}) if body["model"] == "b" else {"done": True}
    )
    server.answers["DELETE", "/api/delete"] = lambda body: (
        (404, {"error": "model 'b' not found"}) if body["model"] == "b" else (200, None)
    )
    result = puna("rm", "a", "b", "c")
    assert (result.out, result.err, result.status) == ("deleted 'a'\n", "Error: model 'b' not found\n", 1)
    assert server.bodies("/api/generate")[0] == {"model": "a", "keep_alive": 0, "stream": False}
    assert server.bodies("/api/delete") == [{"model": "a"}, {"model": "b"}]


def test_rm_of_a_damaged_model(server, puna):
    server.answers["POST", "/api/generate"] = lambda _: (500, {"error": 'blob "sha256:0" not found'})
    server.answers["DELETE", "/api/delete"] = lambda _: (200, None)
    assert puna("rm", "a").out == "deleted 'a'\n"


def test_stop(server, puna):
    server.answers["POST", "/api/generate"] = {"done": True, "done_reason": "unload"}
    assert puna("stop", "m").status == 0
    server.answers["POST", "/api/generate"] = (404, {"error": "model 'm' not found"})
    result = puna("stop", "m")
    assert (result.err, result.status) == ('Error: couldn\'t find model "m" to stop\n', 1)


def test_show(server, puna):
    server.answers["POST", "/api/show"] |= {
        "parameters": 'stop                           "<|im_end|>"\ntemperature                    0.5',
        "license": "Apache\n\n  Version 2\nmore\n",
        "system": "Be brief.",
        "projector_info": {
            "general.architecture": "clip",
            "general.parameter_count": 423610880,
            "clip.vision.embedding_length": 1152,
            "clip.vision.image_size": 896,
        },
    }
    assert (
        puna("show", "m").out
        == """\
  Model
    architecture        llama
    parameters          134.52M
    context length      2048
    embedding length    576
    quantization        Q4_1

  Capabilities
    completion

  Projector
    architecture        clip
    parameters          423.61M
    embedding length    1152

  Parameters
    stop           "<|im_end|>"
    temperature    0.5

  System
    Be brief.

  License
    Apache
    Version 2
    ...
"""
    )


def test_show_verbose(server, puna):
    server.answers["POST", "/api/show"] = lambda body: {
        "model_info": {"general.architecture": "llama", "tokens": ["a", "b", "c", "d"], "eps": 1e-05},
        "tensors": [{"name": "w", "type": "Q4_1", "shape": [576, 64]}] if body["verbose"] else None,
    }
    out = puna("show", "-v", "m").out
    assert "  Metadata\n    eps                     1e-05\n" in out
    assert "tokens                  [a, b, c, ...+1 more]" in out
    assert "  Tensors\n    w    Q4_1    [576, 64]" in out


def test_show_one_field(server, puna):
    server.answers["POST", "/api/show"] |= {"template": "{{ .Prompt }}", "modelfile": "FROM x"}
    assert puna("show", "m", "--template").out == "{{ .Prompt }}\n"
    assert puna("show", "--modelfile", "m").out == "FROM x\n"
    result = puna("show", "m", "--template", "--system")
    assert result.status == 1
    assert result.err.startswith("Error: only one of '--license', ")


def test_server_errors_are_shown(server, puna):
    server.answers["POST", "/api/show"] = (404, {"error": "model 'm:latest' not found"})
    result = puna("show", "m")
    assert (result.out, result.err, result.status) == ("", "Error: model 'm:latest' not found\n", 1)


def test_pull_prints_plain_lines_without_a_terminal(server, puna):
    server.answers["POST", "/api/pull"] = [
        {"status": "pulling manifest"},
        {"status": "pulling x", "total": 92_000_000},
        *({"status": "pulling x", "total": 92_000_000, "completed": n * 9_200_000} for n in range(11)),
        {"status": "success"},
    ]
    result = puna("pull", "m")
    assert result.status == 0
    lines = result.err.splitlines()
    assert lines[:3] == ["pulling manifest", "pulling x: 0% of 92 MB", "pulling x: 10% of 92 MB"]
    assert lines[-2:] == ["pulling x: 100% of 92 MB", "success"]
    assert len(lines) == 13
    assert server.bodies("/api/pull") == [{"model": "m", "insecure": False}]


def test_pull_that_fails_midway(server, puna):
    server.answers["POST", "/api/pull"] = [
        {"status": "pulling manifest"},
        {"error": "pull model manifest: file does not exist"},
    ]
    result = puna("pull", "m")
    assert result.status == 1
    assert result.err == "pulling manifest\nError: pull model manifest: file does not exist\n"


@pytest.mark.parametrize(
    ("model", "ending"),
    [
        ("me/m:t", "You can find your model at:\n\n\thttps://ollama.com/me/m\n"),
        ("host.example/me/m", ""),
    ],
)
def test_push_says_where_the_model_is_to_be_found(server, puna, model, ending):
    server.answers["POST", "/api/push"] = [{"status": "retrieving manifest"}, {"status": "success"}]
    result = puna("push", model, "--insecure")
    assert (result.out.strip("\n"), result.status) == (ending.strip("\n"), 0)
    assert result.err == "retrieving manifest\nsuccess\n"
    assert server.bodies("/api/push") == [{"model": model, "insecure": True}]


def test_sign_in_shows_the_key(puna, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = puna("signin")
    assert result.status == 1
    assert result.err.endswith("run 'puna serve' to make one\n")
    (tmp_path / ".ollama").mkdir(exist_ok=True)
    (tmp_path / ".ollama" / "id_ed25519.pub").write_text("ssh-ed25519 AAAA\n")
    assert puna("login").out.endswith("\n\nssh-ed25519 AAAA\n")
    assert "so nobody is signed in" in puna("signout").out


def test_models_of_other_programs(server, puna):
    model = {
        "size": 92_000_000,
        "modified_at": "2020-01-02T03:04:05Z",
        "source": "Hugging Face",
        "files": ["/f"],
    }
    names = ["hf.co/u/r:Q8_0", "lmstudio/p/r:Q4_0"]
    server.answers["GET", "/api/local"] = {"models": [{"name": name, **model} for name in names]}
    header, row = puna("list", "--local", "HF.co").out.splitlines()
    assert header.split() == ["NAME", "SIZE", "MODIFIED", "SOURCE"]
    assert row.startswith("hf.co/u/r:Q8_0    92 MB   ")
    assert row.endswith(" years ago    Hugging Face")


def test_version(server, puna):
    assert puna("--version").out.startswith("puna version is 9.9.9\nWarning: client version is ")
    server.answers["GET", "/api/version"] = {"version": "0.22.0", "puna": "8.8.8"}
    assert puna("--version").out.startswith("puna version is 8.8.8\n")
    server.close()
    assert puna("-v").out.startswith("Warning: could not connect to a running puna instance\n")


@pytest.mark.parametrize(
    "command", [["list"], ["ps"], ["pull", "m"], ["push", "m"], ["show", "m"], ["rm", "m"], ["stop", "m"]]
)
def test_no_server(server, puna, command):
    server.close()
    result = puna(*command)
    assert result.status == 1
    assert result.err == "Error: could not connect to puna server, run 'puna serve' to start it\n"


def test_something_else_at_the_address(server, puna):
    server.answers["GET", "/api/tags"] = lambda _: (500, None)
    result = puna("list")
    assert result.err == "Error: 500 Internal Server Error\n"
    server.answers["GET", "/api/tags"] = ["not", "an object"]
    assert puna("list").err.startswith("Error: the server's answer cannot be understood: ")


@pytest.mark.parametrize("arguments", [["frob"], ["run"], ["list", "--frob"], ["rm"]])
def test_wrong_usage(puna, arguments):
    result = puna(*arguments)
    assert result.status == 1
    assert "Error: " in result.err


def test_help_imports_nothing_heavy():
    """What --help must not wait for."""
    code = (
        "import sys; sys.argv = ['puna', '--help']\n"
        "from puna.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'httpx', 'prompt_toolkit', 'msgspec', 'numpy', 'starlette', 'puna._native'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert all(f"  {verb} " in out for verb in ("serve", "run", "pull", "list", "ps", "show", "rm", "stop"))
