"""Files of other programs are found by name, and used where they are."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from puna.registry import ModelName, ModelNotFound, ReadOnlyModel, Store, StoreError, UnsupportedModel
from puna.registry.local.linked import link
from puna.registry.local.local_models import LocalModels

pytestmark = pytest.mark.unit

COMMIT, OLDER = "a" * 40, "b" * 40


def name(text):
    return ModelName.parse(text)


def cache_file(cache: Path, repository: str, file: str, data: bytes = b"GGUF", commit: str = COMMIT) -> Path:
    """As Hugging Face's programs write it: a link to a blob."""
    root = cache / ("models--" + repository.replace("/", "--"))
    blob = root / "blobs" / os.urandom(32).hex()
    path = root / "snapshots" / commit / file
    for directory in (blob.parent, path.parent, root / "refs"):
        directory.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    path.symlink_to(os.path.relpath(blob, path.parent))
    (root / "refs" / "main").write_text(COMMIT)
    return path


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "hub"


@pytest.fixture
def studio(tmp_path):
    return tmp_path / "lmstudio"


@pytest.fixture
def local(cache, studio):
    return LocalModels(cache, studio)


def studio_file(studio: Path, text: str) -> Path:
    path = studio / text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return path


def listed(local):
    return [model.name.short for model in local.find_all()]


def test_without_the_programs_there_is_nothing(local):
    assert LocalModels().find_all() == local.find_all() == []
    assert local.find(name("hf.co/u/r:Q8_0")) is None


def test_files_are_named_by_repository_and_quantization(local, cache, studio):
    cache_file(cache, "user/Repo.1-GGUF", "Repo.1-Q4_K_M.gguf")
    cache_file(cache, "user/Repo.1-GGUF", "Repo.1-UD-Q2_K_XL.gguf")
    cache_file(cache, "user/Repo.1-GGUF", "mmproj-Repo-f16.gguf")
    cache_file(cache, "user/Repo.1-GGUF", "README.md")
    cache_file(cache, "user/two", "a-F16.gguf")
    cache_file(cache, "user/two", "b-F16.gguf")
    cache_file(cache, "user/two", "it's plain.gguf")
    studio_file(studio, "some.publisher/repo/sub/model-IQ4_XS.gguf")
    assert listed(local) == [
        "hf.co/user/Repo.1-GGUF:Q4_K_M",
        "hf.co/user/Repo.1-GGUF:UD-Q2_K_XL",
        "hf.co/user/two:a-F16",
        "hf.co/user/two:b-F16",
        "hf.co/user/two:it-s-plain",
        "lmstudio/some-publisher/repo:IQ4_XS",
    ]
    assert [model.source for model in local.find_all()][-2:] == ["Hugging Face", "LM Studio"]


@pytest.mark.parametrize(
    "text",
    [
        *("hf.co/user/Repo:Q4_K_M", "HuggingFace.co/USER/repo:q4_k_m", "hf.co/user/repo"),
        "hf.co/user/repo:repo-Q4_K_M.gguf",
    ],
)
def test_names_that_mean_a_file(local, cache, text):
    path = cache_file(cache, "user/Repo", "repo-Q4_K_M.gguf")
    cache_file(cache, "user/Repo", "repo-Q8_0.gguf")
    assert local.find(name(text)).model_path == path


@pytest.mark.parametrize(
    "text", ["hf.co/user/repo:Q5_0", "hf.co/user/other", "user/repo", "h.example/user/repo"]
)
def test_names_that_mean_none(local, cache, text):
    cache_file(cache, "user/repo", "repo-Q4_0.gguf")
    cache_file(cache, "user/repo", "repo-Q8_0.gguf")
    assert local.find(name(text)) is None
    assert local.find(name("hf.co/user/repo")) is None  # which of both is not said


def test_of_several_revisions_the_branch_counts(local, cache):
    cache_file(cache, "u/r", "m-Q8_0.gguf", b"GGUF old", OLDER)
    cache_file(cache, "u/r", "m-Q4_0.gguf", b"GGUF", OLDER)
    newest = cache_file(cache, "u/r", "m-Q8_0.gguf", b"GGUF new")
    assert local.find(name("hf.co/u/r:Q8_0")).model_path == newest
    assert listed(local) == ["hf.co/u/r:Q4_0", "hf.co/u/r:Q8_0"]


def test_split_files_are_one_model_that_cannot_be_loaded_as_it_is(local, cache):
    for part in (1, 2):
        cache_file(cache, "u/r", f"Q8_0/m-Q8_0-0000{part}-of-00002.gguf")
    cache_file(cache, "u/r", "m-Q4_0-00001-of-00002.gguf")  # the other is not there
    (model,) = local.find_all()
    assert (model.name.tag, model.size, len(model.paths)) == ("Q8_0", 8, 2)
    with pytest.raises(UnsupportedModel, match="is split into 2 files"):
        model.check_loadable()


def test_split_files_have_a_header(in_place, cache, tmp_path):
    paths = [cache_file(cache, "u/r", f"Q8_0/m-Q8_0-0000{part}-of-00002.gguf") for part in (1, 2)]
    (found,) = in_place.find_all()
    found.check_loadable()
    assert [*found.open_files()] == [path.name for path in paths]
    own = [studio_file(tmp_path, f"mine/m-0000{part}-of-00003.gguf") for part in (1, 2)]
    link(in_place.links, "m-00001-of-00003", own[0])
    assert len(in_place.find_all()) == 1  # a part is missing
    own.append(studio_file(tmp_path, "mine/m-00003-of-00003.gguf"))
    link(in_place.links, "second", own[1])
    linked = in_place.find(name("local/m-00001-of-00003"))
    assert (linked.name.tag, linked.paths) == ("parts", tuple(own))
    assert listed(in_place) == ["hf.co/u/r:Q8_0", "local/m-00001-of-00003:parts"]
    store = Store(tmp_path / "store", local=in_place)
    assert store.delete(linked.name) == {linked.weights_id}
    assert [path.name for path in in_place.links.iterdir()] == ["second"]
    assert all(path.exists() for path in own)


def test_parts_whose_endings_are_in_capitals(local, studio, tmp_path):
    for part in (1, 2):
        studio_file(studio, f"u/r/m-0000{part}-of-00002.GGUF")
    (model,) = local._replace(in_place=tmp_path / "in-place").find_all()
    model.header.parent.mkdir(parents=True)
    model.header.write_bytes(b"GGUF")
    opened = model.open_weights()
    for descriptor in opened:
        os.close(descriptor)
    assert len(opened) == 3


def test_links_to_nothing_are_left_out(local, cache):
    path = cache_file(cache, "u/r", "m-Q8_0.gguf")
    path.resolve().unlink()
    os.mkfifo(cache / "models--u--r" / "snapshots" / COMMIT / "pipe-Q4_0.gguf")
    assert local.find_all() == []


def test_what_is_written_to_or_replaced_is_another_model(local, cache):
    path = cache_file(cache, "u/r", "m-Q8_0.gguf", b"GGUF1")
    blob = path.resolve()
    before = local.find(name("hf.co/u/r"))
    assert local.find(name("hf.co/u/r")).weights_id == before.weights_id
    os.close(before.open())
    times = (blob.stat().st_atime_ns, blob.stat().st_mtime_ns)
    blob.write_bytes(b"GGUF2")
    os.utime(blob, ns=times)  # as copying programs do
    after = local.find(name("hf.co/u/r"))
    assert after.weights_id != before.weights_id
    with pytest.raises(StoreError, match="has just been replaced"):
        before.open()
    blob.unlink()
    with pytest.raises(StoreError, match="cannot read"):
        after.open()


def test_the_store_finds_them_but_neither_lists_nor_deletes_nor_copies_them(
    tmp_path, cache, local, add_model
):
    path = cache_file(cache, "u/r", "m-Q8_0.gguf")
    store = Store(tmp_path / "store", local=local)
    assert store.find(name("hf.co/u/r:Q8_0")).model_path == path
    assert store.list() == []
    with pytest.raises(ModelNotFound):
        store.find_stored(name("hf.co/u/r:Q8_0"))
    with pytest.raises(ReadOnlyModel, match="is a file of Hugging Face, which puna only reads"):
        store.delete(name("hf.co/u/r:Q8_0"))
    assert path.read_bytes() == b"GGUF"
    add_model(store, "hf.co/u/r:Q8_0")
    assert store.find(name("hf.co/u/r:Q8_0")).model_path.parent == store.blobs


def directory_of(path: Path, *names: str) -> Path:
    for name in names or ("config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"{}")
    return path


@pytest.fixture
def in_place(tmp_path, cache):
    return LocalModels(cache, None, tmp_path / "in-place")


def test_directories_are_found_by_links_and_forgotten(in_place, tmp_path):
    directory = directory_of(tmp_path / "My model")
    link(in_place.links, "My-model", directory)
    link(in_place.links, "nothing", directory_of(tmp_path / "else", "config.json", "model.safetensors"))
    store = Store(tmp_path / "store", local=in_place)
    assert listed(in_place) == ["local/My-model:safetensors"]
    model = store.find(name("local/my-MODEL"))
    assert [model.relative(path) for path in model.paths] == [
        *("1_Pooling/config.json", "config.json", "model.safetensors", "tokenizer.json")
    ]
    with pytest.raises(FileNotFoundError):
        model.open_weights()
    model.header.parent.mkdir()
    model.header.write_bytes(b"GGUF")
    descriptors = model.open_weights()
    assert [os.pread(descriptor, 4, 0) for descriptor in descriptors] == [b"GGUF", b"{}"]
    for descriptor in descriptors:
        os.close(descriptor)
    assert store.delete(name("local/my-model")) == {model.weights_id}
    assert not model.header.exists()
    assert (directory / "config.json").exists()
    with pytest.raises(ModelNotFound):
        store.find(name("local/my-model"))


def test_a_link_to_what_is_gone_is_forgotten(in_place, tmp_path):
    directory = directory_of(tmp_path / "model")
    link(in_place.links, "model", directory)
    store = Store(tmp_path / "store", local=in_place)
    directory.rename(tmp_path / "elsewhere")
    for other in ("local/model:other", "other/model", "local/mode"):
        with pytest.raises(ModelNotFound):
            store.delete(name(other))
    assert store.delete(name("local/Model")) == set()
    assert list(in_place.links.iterdir()) == []
    with pytest.raises(ModelNotFound):
        store.delete(name("local/model"))


def test_headers_go_that_nobody_uses(in_place, tmp_path):
    """Another daemon finds other directories."""
    link(in_place.links, "model", directory_of(tmp_path / "model"))
    other = LocalModels(in_place=tmp_path / "other")
    link(other.links, "theirs", directory_of(tmp_path / "theirs"))
    ours = in_place.find(name("local/model"))
    theirs = replace(
        other.find(name("local/theirs")), header=ours.header.with_name("theirs.gguf")
    )  # in one directory with ours
    young = ours.header.with_name("young.gguf")
    ours.header.parent.mkdir(parents=True)
    for header in (ours.header, theirs.header, young):
        header.write_bytes(b"GGUF")
        if header != young:
            os.utime(header, (1, 1))
    gone = ours.header.with_name("gone.gguf")  # between listing and looking
    gone.symlink_to("nowhere")
    used = theirs.open_weights()
    in_place.remove_unused_headers()
    gone.unlink()
    assert sorted(ours.header.parent.iterdir()) == sorted([ours.header, theirs.header, young])
    for descriptor in used:
        os.close(descriptor)
    in_place.remove_unused_headers()
    assert sorted(ours.header.parent.iterdir()) == sorted([ours.header, young])


@pytest.mark.parametrize("changed", ["config.json", "model.safetensors"])
def test_a_directory_that_changes_is_another_model(in_place, tmp_path, changed):
    directory = directory_of(tmp_path / "model")
    link(in_place.links, "model", directory)
    model = in_place.find(name("local/model"))
    (directory / changed).write_bytes(b"[ ]")
    with pytest.raises(StoreError, match="just been changed"):
        model.open_files()
    other = in_place.find(name("local/model"))
    assert (other.weights_id, other.header) != (model.weights_id, model.header)


def test_snapshots_of_safetensors_are_models_too(in_place, cache):
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        cache_file(cache, "user/repo", file)
    assert in_place.find(name("hf.co/user/repo")).name.short == "hf.co/user/repo:safetensors"
    path = cache_file(cache, "user/repo", "repo-Q8_0.gguf")
    assert in_place.find(name("hf.co/user/repo")).model_path == path
    with pytest.raises(ReadOnlyModel, match="Hugging Face"):
        Store(cache, local=in_place).delete(name("hf.co/user/repo:safetensors"))
