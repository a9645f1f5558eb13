"""tags, ps, show, delete, copy."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from puna.engine.observation.stats import ModelStats
from puna.registry import Layer, Manifest, ModelName
from puna.registry.store.manifest import LAYER_TYPE
from tests.api.ollama.test_generate import prompt_text
from tests.chat.go.pairs import PAIRS
from tests.tiny.projector import write_projector

pytestmark = pytest.mark.native


def test_tags_are_newest_first_with_names_digests_and_details(client, runtime, add_model):
    add_model("other/n:tag", "thinker")
    manifest = runtime.store.root / "manifests/registry.ollama.ai/library/m/latest"
    os.utime(manifest, (1, 1))
    new, old = client.get("/api/tags").json()["models"]
    assert (new["name"], new["model"], old["name"]) == ("other/n:tag", "other/n:tag", "m:latest")
    assert len(new["digest"]) == 64
    assert new["size"] == runtime.store.find(ModelName.parse("other/n:tag")).size
    assert new["capabilities"] == ["completion", "thinking"]
    assert old["capabilities"] == ["completion"]
    assert new["details"] == {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": new["details"]["parameter_size"],
        "quantization_level": "F32",
        "context_length": 2048,
        "embedding_length": 32,
    }
    assert client.request("HEAD", "/api/tags").status_code == 200


def test_tags_of_an_empty_store(client):
    client.request("DELETE", "/api/delete", {"model": "m"})
    assert client.get("/api/tags").json() == {"models": []}


def test_tags_survive_a_file_that_is_no_gguf(client, runtime, add_model):
    add_model("broken")
    blob = runtime.store.find(ModelName.parse("m")).model_path
    blob.write_bytes(b"x" * blob.stat().st_size)
    broken = client.get("/api/tags").json()["models"][0]
    assert "capabilities" not in broken
    response = client.post("/api/generate", {"model": "m", "prompt": "hi"})
    assert response.status_code == 500
    assert "not a GGUF" in response.json()["error"] or "magic" in response.json()["error"]


def test_tags_read_few_files_at_once_and_compile_no_template(client, runtime, add_model, monkeypatch):
    for number in range(12):
        add_model(f"n{number}")
    inspect, under_way, most = runtime.text.inspect, [], []

    async def slowly(source, templates):
        under_way.append(source)
        most.append(len(under_way))
        await asyncio.sleep(0.01)
        under_way.remove(source)
        return await inspect(source, templates)

    monkeypatch.setattr(runtime.text, "inspect", slowly)
    monkeypatch.setattr(runtime.text, "check_template", None)
    models = client.get("/api/tags").json()["models"]
    assert [model["capabilities"] for model in models] == [["completion"]] * 13
    assert max(most) <= 4


def test_a_template_that_cannot_be_compiled_is_tried_once(client, runtime, add_model, monkeypatch):
    add_model("wrong", "wrong")
    assert "capabilities" in client.get("/api/tags").json()["models"][0]
    for _ in range(2):
        response = client.post("/api/generate", {"model": "wrong", "prompt": "hi"})
        assert (response.status_code, "nonsense" in response.json()["error"]) == (500, True)
        monkeypatch.setattr(runtime.text, "check_template", None)


def test_ps_lists_what_is_loaded_last_to_expire_first(client, runtime, add_model):
    add_model("n")
    runtime.kv["m:latest"] = ModelStats("m", 0, 0, 0, 64, 128, 192, 384)
    client.post("/api/generate", {"model": "m", "options": {"num_ctx": 100}})
    client.post("/api/generate", {"model": "n"})
    reply = client.get("/api/ps").json()
    first, second = reply["models"]
    assert [first["name"], second["name"]] == ["n:latest", "m:latest"]
    assert (second["context_length"], second["size_vram"]) == (100, 0)
    assert second["size"] > 0
    assert "expires_at" in second
    assert "context_length" not in second["details"]
    assert second["kv"] == {"committed": 384, "used": 128, "cached": 192}
    assert "kv" not in first
    assert reply["processes"] == [{"name": "worker", "pid": 17, "cage": "Landlock 7, seccomp"}]


def test_show_tells_everything(client, add_model):
    params = {"stop": ["<a>", "<b>"], "temperature": 0.5, "num_ctx": 100}
    add_model("full", system='Say "hi"\ntwice.', params=params, license="MIT", template="{{ .Prompt }}")
    reply = client.post("/api/show", {"model": "full"}).json()
    assert reply["license"] == "MIT"
    assert reply["system"] == 'Say "hi"\ntwice.'
    assert (reply["template"], reply["template_source"]) == ("{{ .Prompt }}", "go_template")
    assert reply["parameters"].splitlines() == [
        'stop                           "<a>"',
        'stop                           "<b>"',
        "temperature                    0.5",
        "num_ctx                        100",
    ]
    lines = reply["modelfile"].splitlines()
    assert lines[0] == '# Modelfile generated by "ollama show"'
    assert "# FROM full:latest" in lines
    assert any(line.startswith("FROM /") for line in lines)
    assert {"TEMPLATE {{ .Prompt }}", "PARAMETER stop <a>", "PARAMETER temperature 0.5", "LICENSE MIT"} <= {
        *lines
    }
    assert 'SYSTEM """Say "hi"\ntwice."""' in reply["modelfile"]
    assert reply["capabilities"] == ["completion"]
    assert reply["modified_at"]
    assert "context_length" not in reply["details"]
    assert {"name": "token_embd.weight", "type": "F32", "shape": [32, 4]} in reply["tensors"]


def test_show_tells_which_template_is_in_use(client, add_model):
    add_model("jinja", "thinker", template="{{ .Prompt }}")
    reply = client.post("/api/show", {"model": "jinja"}).json()
    assert "<think>" in reply["template"]
    assert reply["template_source"] == "gguf_chat_template"
    assert reply["capabilities"] == ["completion", "thinking"]
    assert reply["thinking"] == {"values": [True, False, "low", "medium", "high"], "default": True}


def test_show_and_tags_know_what_the_configuration_names(client, add_model):
    config = {"renderer": "qwen3-coder", "parser": "harmony", "capabilities": ["audio", "nonsense"]}
    add_model("named", config=config, template="{{ .Prompt }}")
    reply = client.post("/api/show", {"model": "named"}).json()
    assert (reply["renderer"], reply["parser"]) == ("qwen3-coder", "harmony")
    assert (reply["template_source"], "<|im_start|>" in reply["template"]) == ("renderer_parser", True)
    assert reply["capabilities"] == ["completion", "tools", "thinking", "audio"]
    assert reply["thinking"]["values"] == [True, False, "low", "medium", "high"]
    assert {"RENDERER qwen3-coder", "PARSER harmony"} <= {*reply["modelfile"].splitlines()}
    listed = {model["name"]: model["capabilities"] for model in client.get("/api/tags").json()["models"]}
    assert listed == {"named:latest": reply["capabilities"], "m:latest": ["completion"]}


@pytest.mark.parametrize(
    ("config", "error"),
    [({"renderer": "x"}, 'unknown renderer "x"'), ({"parser": "y"}, 'unknown parser "y"')],
)
def test_what_the_configuration_names_must_be_known(client, add_model, config, error):
    add_model("odd", config=config)
    response = client.post("/api/chat", {"model": "odd", "messages": [{"role": "user", "content": "hi"}]})
    assert (response.status_code, response.json()["error"]) == (500, error)
    assert client.post("/api/show", {"model": "odd"}).json()["capabilities"] == ["completion"]


def test_go_templates_call_tools_and_think(client, runtime, add_model):
    add_model("go", template=PAIRS["chatml"].go)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    body = {"model": "go", "messages": [{"role": "user", "content": "hi"}], "tools": [tool], "think": False}
    assert client.post("/api/chat", body).status_code == 200
    assert '<tools>\n{"type":"function","function":{"name":"f",' in prompt_text(runtime)
    assert prompt_text(runtime).endswith("<think>\n\n</think>\n\n")
    assert "<tool_call>" in runtime.requests[-1].grammar
    capabilities = client.post("/api/show", {"model": "go"}).json()["capabilities"]
    assert capabilities == ["completion", "tools", "thinking"]


def test_a_model_that_sees_says_so(client, add_model):
    add_model("seer", "seer")
    assert client.post("/api/show", {"model": "seer"}).json()["capabilities"] == [
        "completion",
        "vision",
        "insert",
    ]


def test_show_tells_of_the_projector(client, runtime, add_model, tmp_path):
    add_model("eyes")
    file = write_projector(tmp_path / "projector.gguf").read_bytes()
    name = ModelName.parse("eyes")
    manifest = runtime.store.find(name).manifest
    layer = Layer(LAYER_TYPE + "projector", runtime.store.add_blob([file]), len(file))
    runtime.store.write_manifest(name, Manifest(config=manifest.config, layers=[*manifest.layers, layer]))
    reply = client.post("/api/show", {"model": "eyes"}).json()
    info = reply["projector_info"]
    assert (info["general.architecture"], info["clip.projector_type"]) == ("clip", "mlp")
    assert (info["clip.vision.image_mean"], info["general.parameter_count"] > 10_000) == (None, True)
    assert reply["capabilities"] == ["completion", "vision"]
    assert "llama.context_length" in reply["model_info"]
    assert len([line for line in reply["modelfile"].splitlines() if line.startswith("FROM /")]) == 2
    verbose = client.post("/api/show", {"model": "eyes", "verbose": True}).json()
    assert verbose["projector_info"]["clip.vision.image_mean"] == [0.5, 0.5, 0.5]


def test_a_template_that_is_gone_keeps_no_other_model_from_being_listed(client, runtime, add_model):
    template = "{{ .Prompt }} of this model alone"
    add_model("gone", template=template)
    digest = hashlib.sha256(template.encode()).hexdigest()
    (runtime.settings.models / "blobs" / f"sha256-{digest}").unlink()
    models = {model["name"]: model.get("capabilities") for model in client.get("/api/tags").json()["models"]}
    assert models == {"gone:latest": None, "m:latest": ["completion"]}


def test_an_editor_gets_the_name_it_asked_for(client):
    editor = {"User-Agent": "GitHubCopilotChat/0.30"}
    reply = client.post("/api/show", {"model": "M"}, **editor).json()
    assert reply["model_info"]["general.basename"] == "M"
    assert "general.basename" not in client.post("/api/show", {"model": "m"}).json()["model_info"]


def test_show_gives_arrays_only_if_verbose(client):
    info = client.post("/api/show", {"model": "m"}).json()["model_info"]
    assert info["general.architecture"] == "llama"
    assert info["general.parameter_count"] == 160
    assert info["tokenizer.ggml.tokens"] is None
    assert not {"general.name", "tokenizer.chat_template"} & set(info)
    info = client.post("/api/show", {"model": "m", "verbose": True}).json()["model_info"]
    assert len(info["tokenizer.ggml.tokens"]) == len(info["tokenizer.ggml.token_type"]) > 256


def test_show_lays_the_requests_system_and_options_over_the_models(client):
    reply = client.post("/api/show", {"name": "m", "system": "S", "options": {"top_k": 3}}).json()
    assert reply["system"] == "S"
    assert "PARAMETER top_k 3" in reply["modelfile"]


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("", 400, "model is required"),
        ("a/b/c/d/e", 400, "invalid model name"),
        ("None", 404, "model 'None:latest' not found"),
    ],
)
def test_show_errors(client, name, status, text):
    response = client.post("/api/show", {"model": name})
    assert (response.status_code, response.json()) == (status, {"error": text})


def test_names_match_in_any_case(client):
    assert client.post("/api/show", {"model": "M:LATEST"}).status_code == 200


def test_copies_share_blobs_until_the_last_is_deleted(client, runtime):
    blobs = {path.name for path in runtime.store.blobs.iterdir()}
    response = client.post("/api/copy", {"source": "m", "destination": "dir/copy:1"})
    assert (response.status_code, response.content) == (200, b"")
    assert client.post("/api/copy", {"source": "M", "destination": "m"}).status_code == 200
    assert {path.name for path in runtime.store.blobs.iterdir()} == blobs
    assert client.request("DELETE", "/api/delete", {"model": "m"}).status_code == 200
    assert {path.name for path in runtime.store.blobs.iterdir()} == blobs
    assert client.lines("/api/generate", {"model": "dir/copy:1", "prompt": "hi"})[-1]["done"]
    response = client.request("DELETE", "/api/delete", {"name": "dir/copy:1"})
    assert (response.status_code, response.content) == (200, b"")
    assert not list(runtime.store.blobs.iterdir())


@pytest.mark.parametrize(
    ("source", "destination", "status", "text"),
    [
        ("none", "n", 404, 'model "none" not found'),
        ("..", "n", 400, 'source ".." is invalid'),
        ("m", "../../n", 400, 'destination "../../n" is invalid'),
    ],
)
def test_copy_errors(client, source, destination, status, text):
    response = client.post("/api/copy", {"source": source, "destination": destination})
    assert (response.status_code, response.json()) == (status, {"error": text})


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("", 400, "model is required"),
        ("../m", 400, 'name "../m" is invalid'),
        ("None", 404, "model 'None' not found"),
    ],
)
def test_delete_errors(client, name, status, text):
    response = client.request("DELETE", "/api/delete", {"model": name})
    assert (response.status_code, response.json()) == (status, {"error": text})


def test_model_of_a_read_only_store_is_not_deleted(client, runtime, tmp_path: Path):
    other = tmp_path / "other"
    runtime.store.root.rename(other)
    runtime.store = type(runtime.store)(tmp_path / "own", [other])
    response = client.request("DELETE", "/api/delete", {"model": "m"})
    assert response.status_code == 403
    assert "only reads" in response.json()["error"]
    assert client.post("/api/show", {"model": "m"}).status_code == 200
