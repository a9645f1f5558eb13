"""Making models: what they inherit and reuse, what is refused, and that nothing stays of what failed."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import gguf
import msgspec
import numpy as np
import pytest

import puna.api.ollama.pull as pull_route
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertJob, ConvertProgress
from puna.convert.quantization import QUANTIZATIONS as QUANTIZATION_TYPES
from puna.daemon.converting import Converter
from puna.registry import ModelName
from puna.registry.creation.recipe import QUANTIZATIONS, quantization
from puna.registry.local.local_models import LocalModels
from puna.registry.modelfile.modelfile import parse_modelfile
from puna.registry.progress import Progress
from tests.api.ggufs import write_gguf

pytestmark = pytest.mark.native

ALL = {
    "template": "{{ .System }}|{{ .Prompt }}|<&>",
    "system": "Be kind.",
    "license": ["MIT", "BSD"],
    "parameters": {"stop": ["<|end|>", "&"], "temperature": 0.7, "top_k": 5, "top_p": 1.0},
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<ho>"}],
    "requires": "v0.14.0",
    "parser": "qwen3",
}
NO_DIGEST = "0" * 19


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def upload(client):
    """upload(bytes or path) -> digest"""

    def post(content):
        data = content if isinstance(content, bytes) else content.read_bytes()
        assert client.post(f"/api/blobs/{digest_of(data)}", data).status_code in (200, 201)
        return digest_of(data)

    return post


@pytest.fixture
def weights(upload, gguf_files) -> str:
    return upload(gguf_files["bare"])


@pytest.fixture
def make(client):
    """make(**request) -> the statuses"""

    def create(**body):
        lines = client.lines("/api/create", {"model": "mine", **body})
        assert "error" not in lines[-1], lines
        return [line["status"] for line in lines]

    return create


@pytest.fixture
def refused(client):
    """refused(**request) -> (status, text)"""

    def create(**body):
        response = client.post("/api/create", {"model": "mine", "stream": False, **body})
        return response.status_code, response.json().get("error")

    return create


@pytest.fixture
def stored(runtime):
    """stored("name") -> the model"""
    return lambda name: runtime.store.find(ModelName.parse(name))


def layers(model):
    return [(layer.kind, layer.digest) for layer in model.manifest.layers]


def blobs(runtime):
    return {path.name for path in runtime.store.blobs.iterdir()}


def small_gguf(path, kind="adapter", architecture="llama", **extra):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(kind)
    for key, value in extra.items():
        writer.add_uint16(key.replace("_", ".", 1), value)
    writer.add_tensor("x", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def conversions(monkeypatch, gguf_files):
    """What the converter is asked for; it gives `caller`."""
    asked = []

    async def convert(_, files, output, job):
        asked.append((sorted(files), job))
        yield ConvertProgress("x", 1, 2)
        if job.kind == "adapter":
            raise ConversionError("no adapter at all")
        os.write(output, gguf_files["caller"].read_bytes())
        yield ConvertProgress("x", 2, 2)

    monkeypatch.setattr(Converter, "convert", convert)
    return asked


def test_of_an_uploaded_file(client, make, weights):
    statuses = make(files={"model.gguf": weights})
    assert statuses[:2] == ["parsing GGUF", f"using existing layer {weights}"]
    assert statuses[2].startswith("creating new layer sha256:")
    assert statuses[3:] == ["writing manifest", "success"]
    shown = client.post("/api/show", {"model": "mine"}).json()
    assert shown["origin"] == {"source": "file:model.gguf", "digest": weights}
    details = shown["details"]
    assert (details["family"], details["parameter_size"], details["quantization_level"]) == (
        "llama",
        "160",
        "F32",
    )
    assert client.lines("/api/generate", {"model": "mine", "prompt": "hi"})[-1]["done"]


def test_not_streamed_is_the_last_status(client, weights):
    response = client.post("/api/create", {"name": "mine", "files": {"m": weights}, "stream": False})
    assert response.json() == {"status": "success"}


def test_of_a_file_with_all_that_can_be_said(runtime, make, weights, stored):
    statuses = make(files={"m.gguf": weights}, **ALL)
    model = stored("mine")
    assert (model.template, model.system) == (ALL["template"], ALL["system"])
    assert (model.params, model.licenses) == (ALL["parameters"], ALL["license"])
    assert [(m.role, m.content) for m in model.messages] == [("user", "hi"), ("assistant", "<ho>")]
    assert (model.config.requires, model.config.parser) == ("0.14.0", "qwen3")
    new = [status for status in statuses if status.startswith("creating new layer")]
    assert len(new) == len(model.manifest.layers)  # its config, too, but for the weights
    params = next(layer.digest for layer in model.manifest.layers if layer.kind == "params")
    assert runtime.store.blob_path(params).read_bytes() == (
        b'{"stop":["\\u003c|end|\\u003e","\\u0026"],"temperature":0.7,"top_k":5,"top_p":1}\n'
    )


def test_a_derived_model_inherits_what_is_not_said_again(client, make, weights, stored):
    make(files={"m.gguf": weights}, **ALL)
    statuses = make(model="child", **{"from": "Mine"})
    parent, child = stored("mine"), stored("child")
    assert layers(child) == layers(parent)
    assert child.config == parent.config
    assert {layer.origin for layer in child.manifest.layers} == {"mine:latest"}
    assert client.post("/api/show", {"model": "child"}).json()["details"]["parent_model"] == "mine:latest"
    assert [status[:20] for status in statuses] == ["using existing layer"] * (len(layers(parent)) + 1) + [
        "writing manifest",
        "success",
    ]
    make(
        model="child",
        **{"from": "mine"},
        system="Be brief.",
        template="",
        license="Apache",
        parameters={"top_k": 9, "stop": "one"},
        messages=[{"role": "user", "content": "hello"}],
        info={"model_family": "other", "context_length": 77, "capabilities": ["vision"]},
    )
    child = stored("child")
    assert (child.template, child.system) == (ALL["template"], "Be brief.")
    assert child.licenses == ["MIT", "BSD", "Apache"]
    assert child.params == {"stop": ["one"], "temperature": 0.7, "top_k": 9, "top_p": 1}
    assert [m.content for m in child.messages] == ["hello"]
    assert (child.config.family, child.config.context_length) == ("other", 77)
    assert child.config.capabilities == ["vision"]


def test_what_the_replaced_model_had_goes_unless_nothing_is_to_be_pruned(runtime, make, weights, stored):
    make(files={"m.gguf": weights}, system="old")
    old = layers(stored("mine"))
    make(files={"m.gguf": weights}, system="new")
    assert not runtime.store.has_blob(old[1][1])
    runtime.settings = replace(runtime.settings, no_prune=True)
    kept = layers(stored("mine"))
    make(files={"m.gguf": weights}, system="newest")
    assert runtime.store.has_blob(kept[1][1])


def test_an_absent_base_is_pulled(make, add_model, monkeypatch):
    async def pull(_, name, *__):
        yield Progress("pulling manifest")
        add_model(name.short)
        yield Progress("success")

    monkeypatch.setattr(pull_route, "pull_model", pull)
    statuses = make(**{"from": "base:1b"})
    assert statuses[0] == "pulling manifest"
    assert statuses.count("success") == 1


def test_a_file_of_another_program_is_copied_and_a_split_one_joined(
    tmp_path, runtime, make, gguf_files, conversions, stored
):
    studio = tmp_path / "studio/maker"
    for name in ("whole/whole.gguf", "split/s-00001-of-00002.gguf", "split/s-00002-of-00002.gguf"):
        path = studio / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "whole" in name:
            path.write_bytes(gguf_files["bare"].read_bytes())
        else:
            small_gguf(path, "model", split_count=2)
    runtime.store.local = LocalModels(lm_studio=studio.parent)
    names = {model.name.model: model.name.short for model in runtime.store.local.find_all()}
    make(**{"from": names["whole"]}, system="S")
    assert stored("mine").model_path.read_bytes() == gguf_files["bare"].read_bytes()
    assert (stored("mine").system, stored("mine").config.family) == ("S", "llama")
    make(**{"from": names["split"]})
    files = ["s-00001-of-00002.gguf", "s-00002-of-00002.gguf"]
    assert conversions == [(files, ConvertJob("gguf"))]


def test_projectors_adapters_and_drafts_are_layers(tmp_path, upload, make, weights, stored):
    projector = upload(small_gguf(tmp_path / "p", "mmproj", "clip"))
    adapter = upload(small_gguf(tmp_path / "a"))
    draft = upload(write_gguf(tmp_path / "d"))
    make(
        files={"m.gguf": weights, "p.gguf": projector, "README.txt": upload(b"text")},
        adapters={"a.gguf": adapter},
        draft_files={"d": draft},
    )
    assert sorted(layers(stored("mine"))) == sorted(
        [("model", weights), ("projector", projector), ("adapter", adapter), ("draft", draft)]
    )
    assert stored("mine").config.families == ["llama", "clip"]
    other = upload(small_gguf(tmp_path / "b", general_file_type=1))
    make(model="child", **{"from": "mine"}, adapters={"b.gguf": other})
    assert [digest for kind, digest in layers(stored("child")) if kind == "adapter"] == [other]
    assert [digest for kind, digest in layers(stored("child")) if kind == "draft"] == [draft]


def test_safetensors_are_converted_and_their_uploads_removed(runtime, client, upload, conversions, stored):
    files = {name: upload(name.encode()) for name in ("config.json", "model.safetensors")}
    before = {layer.digest for layer in stored("m").manifest.blobs}
    lines = client.lines("/api/create", {"model": "mine", "files": files, "quantize": "q4_k"})
    assert conversions == [(sorted(files), ConvertJob("safetensors", "Q4_K_M"))]
    progress = {"status": "quantizing F16 model to Q4_K_M", "digest": NO_DIGEST, "total": 2}
    assert lines[:4] == [
        {"status": "converting model"},
        {**progress, "completed": 1},
        {**progress, "completed": 2},
        {"status": "verifying conversion"},
    ]
    assert lines[-1] == {"status": "success"}
    used = {layer.digest for layer in stored("mine").manifest.blobs} | before
    assert blobs(runtime) == {digest.replace(":", "-") for digest in used}


def test_split_files_are_merged_and_weights_quantized(tmp_path, make, upload, weights, conversions, stored):
    names = [f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    parts = {
        name: upload(small_gguf(tmp_path / name, "model", split_count=2, split_no=number))
        for number, name in enumerate(names)
    }
    statuses = make(files=parts)
    assert statuses[:3] == ["parsing GGUF", "parsing GGUF", "merging GGUF files"]
    make(**{"from": "m"}, quantize="Q8_0")
    make(files={"m.gguf": weights}, quantize="f32")
    assert [job for _, job in conversions] == [ConvertJob("gguf"), ConvertJob("gguf", "Q8_0")]
    assert stored("mine").weights_id == weights.replace(":", "-")


@pytest.mark.parametrize("fails", ["conversion", "template", "writing"])
def test_nothing_stays_of_what_failed(runtime, refused, upload, weights, conversions, monkeypatch, fails):
    adapter = upload(b"{}")
    before = blobs(runtime)
    body = {"files": {"m.gguf": weights}, "system": "S"}
    if fails == "conversion":
        answer = refused(**body, quantize="Q8_0", adapters={"adapter_model.safetensors": adapter})
        assert answer == (400, "no adapter at all")
        assert conversions[-1][0] == ["adapter_model.safetensors", "base.gguf"]
    elif fails == "template":
        status, text = refused(**body, template="{{ if }}")
        assert status == 400
        assert text.startswith("template error: ")
    else:
        monkeypatch.setattr(
            "puna.registry.store.store.write_atomically", lambda *_: (_ for _ in ()).throw(OSError("full"))
        )
        assert refused(**body)[0] == 500
    assert blobs(runtime) == before
    assert [model.name.short for model in runtime.store.list()] == ["m:latest"]


def test_all_quantizations_of_the_converter_can_be_asked_for():
    assert set(QUANTIZATIONS) == QUANTIZATION_TYPES.keys()
    assert {quantization(name.lower()) for name in QUANTIZATION_TYPES} == QUANTIZATION_TYPES.keys()


def test_a_bad_template_is_an_answer_before_any_status(client, weights):
    response = client.post("/api/create", {"model": "x", "files": {"m": weights}, "template": "{{ .a"})
    assert response.status_code == 400
    assert response.json()["error"].startswith("template error: ")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "neither 'from' or 'files' was specified"),
        ({"from": "../x"}, 400, "is no name of a model"),
        ({"from": "m", "remote_host": "https://ollama.com"}, 400, "not supported"),
        (
            {"from": "m", "quantize": "Q3"},
            500,
            "unsupported quantization type Q3 - supported types are F32, F16",
        ),
        ({"from": "m", "renderer": "nobody"}, 400, 'template error: unknown renderer "nobody"'),
        ({"from": "m", "requires": "new"}, 400, "requires must be a valid semver (e.g. 0.14.0)"),
        ({"from": "m", "info": {"model_family": 1}}, 400, 'info field "model_family" must be a string'),
        ({"from": "m", "info": {"context_length": -1}}, 400, "non-negative integer"),
        ({"from": "m", "parameters": {"top_k": "many"}}, 400, 'option "top_k" must be of type integer'),
        ({"from": "m", "messages": [{"role": "x", "content": ""}]}, 400, "invalid role"),
        ({"from": "m", "system": "x" * (5 << 20)}, 400, "the system has"),
        ({"from": "m", "license": [str(n) for n in range(101)]}, 400, "more than a model may have"),
        ({"files": {"/etc/passwd": "DIGEST"}}, 400, "file path must be relative"),
        ({"files": {"../a": "DIGEST"}}, 400, "file path must be relative"),
        ({"files": {"a": "sha256:1"}}, 400, "invalid digest format"),
        ({"files": {"a": "sha256:" + "0" * 64}}, 400, "not found"),
        ({"files": {"a": 1}}, 400, "Expected `str`"),
        ({"files": {"a": "TEXT"}}, 400, "unknown type"),
        ({"files": {"a.json": "TEXT"}}, 400, "unknown type"),
        ({"files": {"a.gguf": "TEXT"}}, 400, "supplied file was not in GGUF format"),
        ({"files": {"a.bin": "PICKLE"}}, 400, "PyTorch"),
        ({"files": {"a": "DIGEST", "b": "DIGEST"}}, 400, "2 GGUF files, where one model has 1"),
        ({"files": {"a": "ADAPTER"}}, 400, "none of the files is a GGUF model"),
        (
            {"files": {"a": "QUANTIZED"}, "quantize": "Q8_0"},
            500,
            "only supported for F16, BF16 and F32 models",
        ),
        ({"from": "m", "adapters": {"a": "DIGEST"}}, 400, "cannot be used as adapter"),
        ({"from": "m", "adapters": {"a": "ADAPTER", "b": "ADAPTER"}}, 400, "only one adapter is currently"),
        ({"from": "m", "model": "../x"}, 400, "invalid model name"),
        ({"from": "m", "model": ""}, 400, "invalid model name"),
    ],
)
def test_what_is_refused(tmp_path, refused, upload, weights, runtime, body, status, text):
    quantized = small_gguf(tmp_path / "q", "model", general_file_type=2)
    known = {
        "DIGEST": weights,
        "TEXT": upload(b"no gguf at all"),
        "PICKLE": upload(b"PK\x03\x04"),
        "ADAPTER": upload(small_gguf(tmp_path / "a")),
        "QUANTIZED": upload(quantized),
    }
    for field in {"files", "adapters"} & body.keys():
        body = {**body, field: {path: known.get(digest, digest) for path, digest in body[field].items()}}
    before = blobs(runtime)
    answered, error = refused(**body)
    assert (answered, text in error) == (status, True), error
    assert blobs(runtime) == before


def test_a_shown_modelfile_makes_the_same_layers(client, make, weights, stored):
    make(files={"m.gguf": weights}, **ALL)
    made = parse_modelfile(client.post("/api/show", {"model": "mine"}).json()["modelfile"].encode())
    (source,) = made.sources
    assert source.endswith(weights.replace(":", "-"))
    make(
        model="again",
        files={"model.gguf": weights},
        template=made.template,
        system=made.system,
        parser=made.parser,
        requires=made.requires,
        license=made.licenses,
        parameters=made.parameters,
        messages=[msgspec.structs.asdict(message) for message in made.messages],
    )
    assert layers(stored("again")) == layers(stored("mine"))
    assert stored("again").config == stored("mine").config
