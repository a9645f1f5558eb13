"""Models come from a registry on loopback, whatever it does."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from contextlib import aclosing, suppress

import msgspec
import pytest

from puna.registry import ModelName, Origin, PullError, StoreError
from puna.registry.errors import InsecureProtocol, RemoteError
from puna.registry.progress import Progress
from puna.registry.pull import pull as pull_model
from puna.registry.remote import bodies, client
from puna.registry.remote.download import Patience
from puna.registry.remote.registry_pull import RegistryAccess, pull_from_registry
from puna.registry.remote.signing_key import make_key
from puna.registry.store import partial_blob
from puna.registry.store.partial_blob import PartialBlob
from tests.registry.loopback.contents import Contents
from tests.registry.loopback.faults import Fault
from tests.registry.loopback.server import Registry

pytestmark = pytest.mark.unit

WEIGHTS = b"GGUF" + hashlib.shake_256(b"weights").digest(1_000_000)
PART = 1 << 16
LIST_TYPE = "application/vnd.oci.image.index.v1+json"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Sixteen parts of a million bytes, as of a thousand times as many."""
    monkeypatch.setattr(partial_blob, "_MIN_PART_BYTES", PART)


@pytest.fixture
def registry(tmp_path):
    with Registry(Contents(tmp_path / "registry")) as registry:
        yield registry


def name_at(registry, text="library/m"):
    return ModelName.parse(f"{registry.host}/{text}")


def access(store, stall_s=1.0, **arguments):
    patience = Patience(after_nothing=(0.01,) * 3, after_some=0.01)
    return RegistryAccess(store.root / "no-key", True, patience=patience, stall_s=stall_s, **arguments)


def pull(store, registry, text="library/m", **arguments):
    return pull_model(store, name_at(registry, text), None, access(store, **arguments))


def pull_all(store, registry, text="library/m", **arguments):
    async def collect():
        return [progress async for progress in pull(store, registry, text, **arguments)]

    return asyncio.run(collect())


def parts_requested(registry):
    """Of blobs of several parts."""
    asked = [headers for _, path, headers in registry.requests if path.startswith("/direct")]
    return [headers["range"] for headers in asked if "range" in headers]


def test_a_model_comes_layer_by_layer(store, registry):
    manifest = registry.contents.add_model("library/m", model=WEIGHTS, template=b"{{ .Prompt }}")
    statuses = pull_all(store, registry)
    pulling = [f"pulling {layer.digest[7:19]}" for layer in (*manifest.layers, manifest.config)]
    assert list(dict.fromkeys(progress.status for progress in statuses)) == [
        *("pulling manifest", *pulling, "verifying sha256 digest", "writing manifest", "success")
    ]
    weights = [progress for progress in statuses if progress.status == pulling[0]]
    assert {(progress.digest, progress.total) for progress in weights} == {
        (manifest.layers[0].digest, len(WEIGHTS))
    }
    completed = [progress.completed or 0 for progress in weights]
    assert completed == sorted(completed)
    assert completed[-1] == len(WEIGHTS)
    assert msgspec.json.decode(msgspec.json.encode(weights[0])).keys() == {"status", "digest", "total"}
    model = store.find(name_at(registry))
    assert (model.model_path.read_bytes(), model.template) == (WEIGHTS, "{{ .Prompt }}")
    assert model.origin == Origin(f"registry:{model.name}", url=f"http://{registry.host}")
    path = store.root / "manifests" / registry.host / "library/m/latest"
    assert path.read_bytes() == registry.contents.manifests["library/m", "latest"][0]
    assert not list(store.blobs.glob("*partial*"))
    assert len(parts_requested(registry)) == 16


def test_a_second_pull_fetches_nothing(store, registry):
    manifest = registry.contents.add_model("library/m", model=WEIGHTS)
    pull_all(store, registry)
    registry.requests.clear()
    statuses = pull_all(store, registry)
    assert registry.blob_requests() == []
    size = manifest.config.size
    assert [progress for progress in statuses if progress.digest] == [
        Progress(f"pulling {digest[7:19]}", digest, total, total)
        for digest, total in ((manifest.layers[0].digest, len(WEIGHTS)), (manifest.config.digest, size))
    ]


def test_what_the_replaced_model_had_is_removed(store, registry):
    old = registry.contents.add_model("library/m", model=b"GGUF old")
    pull_all(store, registry)
    registry.contents.add_model("library/m", model=WEIGHTS)
    assert [progress.status for progress in pull_all(store, registry)][-3:] == [
        "writing manifest",
        "removing unused layers",
        "success",
    ]
    assert not store.has_blob(old.layers[0].digest)
    registry.contents.add_model("library/m", model=b"GGUF newest")
    assert "removing unused layers" not in [
        progress.status for progress in pull_all(store, registry, prunes=False)
    ]


@pytest.mark.parametrize("is_listed_first", [True, False])
def test_a_list_of_manifests(store, registry, is_listed_first):
    contents = registry.contents
    contents.add_model("library/m", "ours", model=WEIGHTS)
    contents.add_model("library/m", "other", model=b"GGUF other")
    digests = {
        tag: "sha256:" + hashlib.sha256(contents.manifests["library/m", tag][0]).hexdigest()
        for tag in ("ours", "other")
    }
    entries = [
        {"digest": digests["ours"], "platform": {"architecture": "amd64", "os": "linux"}},
        {"digest": digests["other"], "platform": {"architecture": "arm64", "os": "plan9"}},
    ]
    entries = entries if is_listed_first else entries[::-1]
    data = json.dumps({"schemaVersion": 2, "mediaType": LIST_TYPE, "manifests": entries}).encode()
    contents.add_manifest("library/m", "latest", data, LIST_TYPE)
    pull_all(store, registry)
    assert store.find(name_at(registry)).model_path.read_bytes() == WEIGHTS
    contents.manifests["library/m", digests["ours"]] = (b"{}", "")
    with pytest.raises(PullError, match="pull model manifest: digest mismatch: want sha256:"):
        pull_all(store, registry)


@pytest.mark.parametrize("redirects", [True, False])
@pytest.mark.parametrize(
    "fault",
    ["refuse", "drop", "stall", "short", "long length", "other total", "other range", "long", "gone", "slow"],
)
def test_faults_that_pass(store, registry, fault, redirects):
    registry.behaviour.redirects = redirects
    faults = iter([Fault(fault)] * 6)
    registry.behaviour.fault = lambda: next(faults, None)
    registry.contents.add_model("library/m", model=WEIGHTS)
    pull_all(store, registry, stall_s=0.3)
    assert store.find(name_at(registry)).model_path.read_bytes() == WEIGHTS
    assert not list(store.blobs.glob("*partial*"))


def test_a_registry_that_knows_no_ranges(store, registry):
    registry.behaviour.fault = lambda: Fault("no range")
    registry.contents.add_model("library/m", model=WEIGHTS)
    pull_all(store, registry)
    assert store.find(name_at(registry)).model_path.read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("refuse", "max retries exceeded: 500: "),
        ("gone", "max retries exceeded: 403: Forbidden$"),
        ("other total", r"max retries exceeded: asked for bytes from \d+ on of 1000004, got \d+ of 1000005$"),
    ],
)
def test_faults_that_stay(store, registry, fault, reason):
    registry.contents.add_model("library/m", model=WEIGHTS)
    registry.behaviour.fault = lambda: Fault(fault)
    with pytest.raises(PullError, match=reason):
        pull_all(store, registry)
    assert store.list() == []


def test_another_blob_than_announced_is_deleted(store, registry, files_of):
    manifest = registry.contents.add_model("library/m", model=WEIGHTS)
    digest = manifest.layers[0].digest
    registry.contents.blob(digest).write_bytes(WEIGHTS[:-1] + b"!")
    with pytest.raises(PullError) as caught:
        pull_all(store, registry)
    assert str(caught.value) == (
        f"digest mismatch, file must be downloaded again: want {digest}, got sha256:"
        + hashlib.sha256(WEIGHTS[:-1] + b"!").hexdigest()
    )
    assert files_of(store.root) == set()


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"<html>", "the registry sends no manifest: JSON is malformed"),
        (b"[" * 100_000, "the registry sends no manifest: "),
        (b" " * (5 << 20), "the registry's answer is longer than"),
        (b'{"config":{"mediaType":"","digest":"../x","size":1},"layers":[]}', "invalid digest format"),
        (b'{"config":{"mediaType":"","digest":"","size":-1},"layers":[]}', "the registry sends no manifest"),
        (b'{"mediaType":"%s","manifests":[]}' % LIST_TYPE.encode(), "the list of manifests is empty"),
    ],
)
def test_manifests_that_are_none(store, registry, manifest, reason, files_of):
    registry.contents.add_manifest("library/m", "latest", manifest)
    with pytest.raises(PullError, match=f"^pull model manifest: {reason}"):
        pull_all(store, registry)
    assert files_of(store.root) == set()


def test_a_model_of_tensors_is_refused_before_it_is_fetched(store, registry):
    registry.contents.add_model("library/m", tensor=b"1")
    with pytest.raises(PullError, match="a layer for each tensor, where puna needs one GGUF file"):
        pull_all(store, registry)
    assert registry.blob_requests() == []


def test_a_blob_that_the_registry_does_not_have(store, registry):
    manifest = registry.contents.add_model("library/m", model=WEIGHTS)
    registry.contents.blob(manifest.layers[0].digest).unlink()
    with pytest.raises(PullError, match=f"blob {manifest.layers[0].digest}: file does not exist"):
        pull_all(store, registry)


def test_registries_without_tls(store, registry):
    """Are spoken to only if the request says so, whatever the name says."""
    registry.contents.add_model("library/m", model=WEIGHTS)
    name = ModelName.parse(f"http://{registry.host}/library/m")

    async def collect(name, **changes):
        settings = access(store)._replace(**changes)
        return [progress.status async for progress in pull_model(store, name, None, settings)]

    with pytest.raises(InsecureProtocol, match="insecure protocol http"):
        asyncio.run(collect(name, insecure=False))
    with pytest.raises(PullError, match=r"pull model manifest: cannot connect to .* --insecure "):
        asyncio.run(collect(name_at(registry), insecure=False))  # TLS with one who knows none
    assert asyncio.run(collect(name))[-1] == "success"


def test_a_mirror_is_asked_first(store, registry, tmp_path):
    registry.contents.add_model("library/m", model=WEIGHTS)
    with Registry(Contents(tmp_path / "mirror")) as mirror:
        mirror.contents.add_model("library/m", model=b"GGUF of the mirror")
        for path, served in (("", b"GGUF of the mirror"), ("/nowhere", WEIGHTS)):
            mirrors = ((registry.host, f"http://{mirror.host}{path}"),)
            pull_all(store, registry, mirrors=mirrors)
            assert store.find(name_at(registry)).model_path.read_bytes() == served


def test_nobody_listens(store):
    async def collect():
        name = ModelName.parse("127.0.0.1:1/library/m")
        return [progress async for progress in pull_model(store, name, None, access(store))]

    with pytest.raises(PullError, match=r"pull model manifest: cannot connect to 127\.0\.0\.1: "):
        asyncio.run(collect())


def test_a_pull_goes_on_where_it_was_left(store, registry):
    manifest = registry.contents.add_model("library/m", model=WEIGHTS)
    registry.behaviour.bytes_per_s = 2e6

    async def leave():
        async with aclosing(pull(store, registry)) as statuses:
            async for progress in statuses:
                if (progress.completed or 0) > 300_000:
                    return

    asyncio.run(leave())
    partial = store.blob_path(manifest.layers[0].digest)
    records = [json.loads(path.read_text()) for path in store.blobs.glob(f"{partial.name}-partial-*")]
    assert sum(record["Size"] for record in records) == len(WEIGHTS)
    completed = sum(record["Completed"] for record in records)
    assert completed > 300_000
    registry.behaviour.bytes_per_s = None
    registry.requests.clear()
    first = next(progress for progress in pull_all(store, registry, stall_s=30.0) if progress.digest)
    assert first.completed == completed
    asked = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in parts_requested(registry)]
    assert sum(end + 1 - start for start, end in asked) == len(WEIGHTS) - completed
    assert store.find(name_at(registry)).model_path.read_bytes() == WEIGHTS


def test_what_ollama_began_is_gone_on_with(store, registry):
    """Its parts are larger, in files without padding; one of them was being written when it was killed."""
    manifest = registry.contents.add_model("library/m", model=WEIGHTS)
    partial = store.blob_path(manifest.layers[0].digest)
    store.blobs.mkdir(parents=True)
    data = bytearray(len(WEIGHTS))
    size = 300_000
    for number, completed in enumerate((size, 1000, 0, 0)):
        offset = number * size
        data[offset : offset + completed] = WEIGHTS[offset : offset + completed]
        record = {
            "N": number,
            "Offset": offset,
            "Size": min(size, len(WEIGHTS) - offset),
            "Completed": completed,
        }
        path = partial.with_name(f"{partial.name}-partial-{number}")
        path.write_text("" if number == 2 else json.dumps(record) + "\n")
    partial.with_name(f"{partial.name}-partial").write_bytes(data)
    pull_all(store, registry)
    asked = parts_requested(registry)
    assert {"bytes=301000-599999", "bytes=900000-1000003"} <= set(asked)
    assert "bytes=600000-665535" in asked
    assert not any(text.startswith("bytes=0-") for text in asked)
    assert store.find(name_at(registry)).model_path.read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    "records",
    [
        [{"N": 0, "Offset": 0, "Size": 1 << 60, "Completed": 5}],
        [{"N": 0, "Offset": 0, "Size": 2_000_000, "Completed": 2_000_000}],
        [{"N": 0, "Offset": 0, "Size": 1_000_004, "Completed": 1_000_004}],
        [{"N": n, "Offset": 0, "Size": 10, "Completed": 10} for n in range(3)],
        [
            {"N": 0, "Offset": 0, "Size": 10, "Completed": 11},
            {"N": 1, "Offset": -1, "Size": 0, "Completed": 0},
        ],
        ["nonsense", None, []],
    ],
)
def test_records_that_cannot_be_true(store, registry, records):
    """The file that they are about is not there, or what they say of it cannot be."""
    manifest = registry.contents.add_model("library/m", model=WEIGHTS)
    partial = store.blob_path(manifest.layers[0].digest)
    store.blobs.mkdir(parents=True)
    for number, record in enumerate(records):
        partial.with_name(f"{partial.name}-partial-{number}").write_text(json.dumps(record))
    pull_all(store, registry)
    assert store.find(name_at(registry)).model_path.read_bytes() == WEIGHTS
    assert not list(store.blobs.glob("*partial*"))


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("file:///etc/passwd", "redirected to nowhere"),
        ("http://", "redirected to nowhere"),
        ("http://127.0.0.1:1/elsewhere", r"cannot connect to 127\.0\.0\.1"),
    ],
)
def test_redirects_that_lead_nowhere(store, registry, location, reason):
    registry.behaviour.location = location
    registry.contents.add_model("library/m", model=WEIGHTS)
    with pytest.raises(PullError, match=f"max retries exceeded: .*({reason})"):
        pull_all(store, registry)
    assert store.list() == []


def test_no_token_goes_to_another_host(store, registry, tmp_path):
    registry.behaviour.token = "secret"
    registry.contents.add_model("library/m", model=WEIGHTS)
    make_key(tmp_path / "key")

    async def collect():
        settings = access(store)._replace(key=tmp_path / "key")
        return [progress async for progress in pull_model(store, name_at(registry), None, settings)]

    assert asyncio.run(collect())[-1] == Progress("success")
    hosts = {
        (headers["host"], headers.get("authorization"))
        for _, path, headers in registry.requests
        if path.startswith(("/v2/library/m/blobs", "/direct"))
    }
    assert hosts == {(registry.host, "Bearer secret"), (f"localhost:{registry.port}", None)}


def test_proxies_of_the_environment(store, registry, monkeypatch):
    """The registry stands in for a proxy: it is asked for whole URLs."""
    name = ModelName.parse("registry.example/library/m")

    async def collect():
        return [progress async for progress in pull_model(store, name, None, access(store))]

    monkeypatch.setenv("HTTP_PROXY", f"http://{registry.host}")
    with pytest.raises(PullError, match="file does not exist"):
        asyncio.run(collect())
    assert [path for _, path, _ in registry.requests] == [
        "http://registry.example/v2/library/m/manifests/latest"
    ]
    monkeypatch.setenv("NO_PROXY", "registry.example")
    with pytest.raises(PullError, match=r"cannot connect to registry\.example"):
        asyncio.run(collect())
    assert len(registry.requests) == 1
    registry.contents.add_model("library/m", model=WEIGHTS)
    pull_all(store, registry)  # what this machine calls 127.0.0.1 is no place for a proxy


def test_two_pulls_of_one_layer_share_it(store, registry):
    registry.behaviour.bytes_per_s = 3e6
    for tag in ("a", "b", "c"):
        registry.contents.add_model("library/m", tag, model=WEIGHTS, system=tag.encode())

    async def collect(tag):
        return [progress async for progress in pull(store, registry, f"library/m:{tag}")]

    async def together():
        return await asyncio.gather(*map(collect, "abc"))

    for tag, statuses in zip("abc", asyncio.run(together()), strict=True):
        assert statuses[-1] == Progress("success")
        assert store.find(name_at(registry, f"library/m:{tag}")).model_path.read_bytes() == WEIGHTS
    weights = max(registry.sent, key=lambda sent: sent.end).digest
    assert sum(sent.end - sent.start for sent in registry.sent if sent.digest == weights) == len(WEIGHTS)


def test_who_waits_for_a_pull_that_is_left_goes_on_with_it(store, registry):
    registry.behaviour.bytes_per_s = 2e6
    registry.contents.add_model("library/m", "a", model=WEIGHTS)

    async def first():
        async with aclosing(pull(store, registry, "library/m:a")) as statuses:
            async for progress in statuses:
                if (progress.completed or 0) > 200_000:
                    return

    async def second():
        return [progress async for progress in pull(store, registry, "library/m:a")]

    async def together():
        return (await asyncio.gather(first(), second()))[1]

    assert asyncio.run(together())[-1] == Progress("success")
    assert store.find(name_at(registry, "library/m:a")).model_path.read_bytes() == WEIGHTS


def test_who_leaves_while_a_download_is_opened_does_not_keep_it(store, registry, monkeypatch):
    registry.contents.add_model("library/m", model=WEIGHTS)
    is_opening, may_open, open_partial = threading.Event(), threading.Event(), PartialBlob.open

    def open_slowly(*arguments):
        is_opening.set()
        may_open.wait()
        return open_partial(*arguments)

    async def leave():
        pulling = asyncio.create_task(anext(pull_from_registry(store, name_at(registry), access(store))))
        await asyncio.to_thread(is_opening.wait)
        pulling.cancel()
        await asyncio.sleep(0)
        may_open.set()
        await asyncio.wait({pulling})

    with monkeypatch.context() as patch:
        patch.setattr(PartialBlob, "open", open_slowly)
        asyncio.run(leave())
    assert asyncio.run(asyncio.wait_for(last_of(pull(store, registry)), 10)) == Progress("success")


async def last_of(statuses):
    return [progress async for progress in statuses][-1]


@pytest.mark.parametrize("drips", ["manifest", "head"])
def test_a_registry_that_sends_a_byte_now_and_then(store, monkeypatch, drips):
    monkeypatch.setattr(
        client if drips == "head" else bodies, "_ANSWER_S" if drips == "head" else "_PATIENCE_S", 0.2
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n" + (b"\r\n" if drips == "manifest" else b"X: ")

    async def drip(_, writer):
        writer.write(head)
        with suppress(OSError):
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)

    async def run():
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        name = ModelName.parse(f"127.0.0.1:{server.sockets[0].getsockname()[1]}/library/m")
        async with server:
            await asyncio.wait_for(last_of(pull_model(store, name, None, access(store))), 10)

    with pytest.raises(PullError, match=r"127\.0\.0\.1 does not answer"):
        asyncio.run(run())


def test_a_proxy_that_cannot_be(store, registry, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "ftp://proxy.example")
    with pytest.raises(RemoteError, match="environment: Unknown scheme for proxy"):
        pull_all(store, registry)


def test_a_full_disk_ends_the_pull_and_keeps_what_is_there(store, registry, full_disk, monkeypatch):
    registry.contents.add_model("library/m", model=WEIGHTS)
    registry.behaviour.bytes_per_s = 4e6
    writes = iter(range(4))
    pwrite = os.pwrite

    def write(descriptor, data, position):
        if len(data) > 1000 and next(writes, None) is None:
            full_disk()
        return pwrite(descriptor, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        with pytest.raises(StoreError, match="cannot write to the store: No space left on device"):
            pull_all(store, registry)
    assert store.list() == []
    assert next(progress for progress in pull_all(store, registry) if progress.digest).completed
    assert store.find(name_at(registry)).model_path.read_bytes() == WEIGHTS
