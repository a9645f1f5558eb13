"""Models go to a registry on loopback, whatever it does with their parts."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random

import msgspec
import pytest

from puna.registry import Manifest, ModelName, ModelNotFound
from puna.registry.errors import InsecureProtocol, PushError
from puna.registry.progress import Progress
from puna.registry.remote import upload
from puna.registry.remote.download import Patience
from puna.registry.remote.registry_pull import RegistryAccess
from puna.registry.remote.registry_push import push
from puna.registry.remote.signing_key import make_key
from tests.registry.loopback.contents import Contents
from tests.registry.loopback.server import Registry
from tests.registry.loopback.uploads import UPLOAD_FAULTS

pytestmark = pytest.mark.unit

PART = 1 << 20
WEIGHTS = b"GGUF" + hashlib.shake_256(b"weights").digest(5 * PART)
DIGEST = "sha256:" + hashlib.sha256(WEIGHTS).hexdigest()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(upload, "_MIN_PART_BYTES", PART)
    monkeypatch.setattr(upload, "_PIECE_BYTES", PART // 4)


@pytest.fixture
def registry(tmp_path):
    with Registry(Contents(tmp_path / "registry")) as registry:
        yield registry


@pytest.fixture
def uploads(registry):
    return registry.behaviour.uploads


@pytest.fixture
def add(store, registry, add_model):
    """add(): a model of the registry, in the store."""
    return lambda **layers: add_model(store, f"{registry.host}/me/m:t", model=WEIGHTS, **layers)


def push_all(store, name, *, insecure=True) -> list[Progress]:
    patience = Patience(after_nothing=(0.0,) * 6)
    access = RegistryAccess(store.root / "key", insecure, patience=patience, stall_s=2.0)

    async def collect():
        return [progress async for progress in push(store, ModelName.parse(name), access)]

    return asyncio.run(collect())


def steps(statuses):
    return [status for status, _ in itertools.groupby(progress.status for progress in statuses)]


@pytest.mark.parametrize("redirects", [False, True])
def test_a_model_is_pushed_byte_for_byte(store, registry, uploads, add, redirects):
    uploads.redirects = redirects
    manifest = add(template=b"{{ .Prompt }}")
    statuses = push_all(store, f"{registry.host}/me/m:t")
    shown = [f"pushing {layer.digest[7:19]}" for layer in (*manifest.layers, manifest.config)]
    assert steps(statuses) == ["retrieving manifest", *shown, "pushing manifest", "success"]
    sent = [progress.completed or 0 for progress in statuses if progress.digest == DIGEST]
    assert sent[-1] == len(WEIGHTS)
    data, kind = registry.contents.manifests["me/m", "t"]
    assert data == store.read_manifest(ModelName.parse(f"{registry.host}/me/m:t")).data
    assert kind == "application/vnd.docker.distribution.manifest.v2+json"
    assert registry.contents.blob(DIGEST).read_bytes() == WEIGHTS
    parts = [WEIGHTS[start : start + PART] for start in range(0, len(WEIGHTS), PART)]
    sums = b"".join(hashlib.md5(part).digest() for part in parts)
    assert uploads.etags[0] == f"{hashlib.md5(sums).hexdigest()}-6"


@pytest.mark.parametrize("redirects", [False, True])
def test_tokens_are_for_the_registry_alone(store, registry, uploads, add, redirects):
    uploads.redirects, registry.behaviour.token = redirects, "t1"
    faults = iter([None, "change"])

    def fault():
        if next(faults, None):
            registry.behaviour.token = "t2"  # the first one has expired

    uploads.fault = fault
    add()
    make_key(store.root / "key")
    push_all(store, f"{registry.host}/me/m:t")
    assert registry.contents.blob(DIGEST).read_bytes() == WEIGHTS
    sent = {path.split("/")[1]: headers.get("authorization") for _, path, headers in registry.requests}
    assert sent["v2"] == sent["uploads"] == "Bearer t2"
    assert sent.get("elsewhere") is None
    assert ("elsewhere" in sent) == redirects


def test_what_is_there_is_not_sent_again(store, registry, uploads, add):
    add()
    push_all(store, f"{registry.host}/me/m:t")
    num_bytes = uploads.num_bytes
    statuses = push_all(store, f"{registry.host}/me/m:t")
    assert uploads.num_bytes == num_bytes
    assert {status.completed for status in statuses if status.digest == DIGEST} <= {None, len(WEIGHTS)}
    assert steps(statuses)[-1] == "success"


def test_layers_of_a_parent_are_not_sent(store, registry, uploads, add):
    manifest = add()
    weights = msgspec.structs.replace(manifest.layers[0], origin="someone/base:x")
    name = ModelName.parse(f"{registry.host}/me/m:t")
    store.write_manifest(name, Manifest(config=manifest.config, layers=[weights]))
    uploads.mountable["someone/base", DIGEST] = WEIGHTS
    push_all(store, str(name))
    assert uploads.num_bytes == manifest.config.size
    assert registry.contents.blob(DIGEST).read_bytes() == WEIGHTS


@pytest.mark.parametrize("fault", UPLOAD_FAULTS)
@pytest.mark.parametrize("redirects", [False, True])
def test_uploads_go_on_after_a_fault(store, registry, uploads, add, fault, redirects):
    uploads.redirects = redirects
    faults = iter([None, fault, None, fault])
    uploads.fault = lambda: next(faults, None)
    add()
    push_all(store, f"{registry.host}/me/m:t")
    assert registry.contents.blob(DIGEST).read_bytes() == WEIGHTS
    if not redirects and fault in ("drop", "lost answer"):
        assert uploads.num_bytes < len(WEIGHTS) + PART // 4  # and the config


def test_a_registry_that_does_not_say_what_it_has_gets_the_part_again(store, registry, uploads, add):
    uploads.knows_positions = False
    faults = iter([None, "refuse"])
    uploads.fault = lambda: next(faults, None)
    add()
    push_all(store, f"{registry.host}/me/m:t")
    assert registry.contents.blob(DIGEST).read_bytes() == WEIGHTS


@pytest.mark.parametrize("seed", range(3))
def test_many_faults(store, registry, uploads, add, seed):
    generator = random.Random(seed)
    uploads.redirects = generator.random() < 0.5
    uploads.fault = lambda: generator.choice([None, None, None, *UPLOAD_FAULTS[:3]])
    add()
    push_all(store, f"{registry.host}/me/m:t")
    assert registry.contents.blob(DIGEST).read_bytes() == WEIGHTS
    assert ("me/m", "t") in registry.contents.manifests


def test_a_registry_that_never_takes_it(store, registry, uploads, add):
    uploads.fault = lambda: "refuse"
    add()
    with pytest.raises(PushError, match=r"500: not now|ReadError"):  # which comes too late at times
        push_all(store, f"{registry.host}/me/m:t")
    assert ("me/m", "t") not in registry.contents.manifests


def test_a_registry_that_is_not_there_is_told_at_once(store, registry, add):
    add()
    access = RegistryAccess(
        store.root / "key", patience=Patience(after_nothing=(60.0,))
    )  # with TLS, here none

    async def main():
        async for _ in push(store, ModelName.parse(f"{registry.host}/me/m:t"), access):
            pass

    with pytest.raises(PushError, match=r"cannot connect to 127\.0\.0\.1"):
        asyncio.run(asyncio.wait_for(main(), 30))


def test_who_goes_away_ends_the_push(store, registry, uploads, add):
    add()
    patience = Patience(after_nothing=(60.0,))
    access = RegistryAccess(store.root / "key", True, patience=patience)
    uploads.fault = lambda: "refuse"

    async def main():
        statuses = push(store, ModelName.parse(f"{registry.host}/me/m:t"), access)
        async for progress in statuses:
            if progress.digest:
                break
        await statuses.aclose()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_models_and_registries_that_cannot_be(store, registry, add):
    with pytest.raises(ModelNotFound):
        push_all(store, f"{registry.host}/me/unknown")
    add()
    with pytest.raises(InsecureProtocol, match="insecure protocol http"):
        push_all(store, f"http://{registry.host}/me/m:t", insecure=False)
    push_all(store, f"http://{registry.host}/me/m:t")


def test_a_damaged_blob_is_not_pushed(store, registry, add):
    add()
    store.blob_path(DIGEST).write_bytes(WEIGHTS[:-1])
    with pytest.raises(PushError, match="is damaged"):
        push_all(store, f"{registry.host}/me/m:t")
    assert registry.contents.manifests == {}


def test_a_media_type_that_no_header_can_have(store, registry, add):
    add()
    name = ModelName.parse(f"{registry.host}/me/m:t")
    store.write_manifest(
        name, msgspec.structs.replace(store.read_manifest(name).manifest, media_type="\u00e9")
    )
    with pytest.raises(PushError):
        push_all(store, f"{registry.host}/me/m:t")
