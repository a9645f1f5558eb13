"""A small store, tiny GGUF files, and wheels that pip finds without a network."""

from __future__ import annotations

import base64
import errno
import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import msgspec
import numpy as np
import pytest

from puna.registry import Layer, Manifest, ModelName, Store
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A valid file, though no engine could run it: one F16 tensor, one F32 tensor."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    random = np.random.default_rng(1)
    writer.add_tensor("token_embd.weight", random.standard_normal((64, 32)).astype(np.float16))
    writer.add_tensor("output_norm.weight", random.standard_normal(32).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def add_model() -> Callable[..., Manifest]:
    """add_model(store, "name", model=b"weights", template=b"..."): writes layers as Ollama does."""

    def add(store: Store, name: str, config: dict | None = None, **layers: bytes) -> Manifest:
        layers = {"model": b"weights of " + name.encode(), **layers}
        config_data = msgspec.json.encode({"model_format": "gguf", "model_family": "llama", **(config or {})})
        manifest = Manifest(
            config=Layer(CONFIG_TYPE, store.add_blob([config_data]), len(config_data)),
            layers=[
                Layer(LAYER_TYPE + kind, store.add_blob([data]), len(data)) for kind, data in layers.items()
            ],
        )
        store.write_manifest(ModelName.parse(name), manifest)
        return manifest

    return add


@pytest.fixture
def files_of() -> Callable[[Path], set[str]]:
    def files(root: Path) -> set[str]:
        return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}

    return files


@pytest.fixture
def make_wheel() -> Callable[..., Path]:
    """make_wheel(directory, "some-package", {"data/x": b"..."}, requires=["other==1.0"]) -> the wheel."""

    def make(
        directory: Path, package: str, files: dict[str, bytes], requires: list[str] | None = None
    ) -> Path:
        module = package.replace("-", "_")
        info = f"{module}-1.0.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires or [])
        contents = {f"{module}/{name}": data for name, data in files.items()}
        contents[f"{info}/METADATA"] = metadata.encode()
        contents[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        record = ""
        for name, data in contents.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            record += f"{name},sha256={digest},{len(data)}\n"
        contents[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
        path = directory / f"{module}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in contents.items():
                archive.writestr(name, data)
        return path

    return make


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of pip's world."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


@pytest.fixture
def full_disk() -> Callable[..., None]:
    """Stands in for any writing call once no block is free."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    return fail
