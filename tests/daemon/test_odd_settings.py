"""What a daemon says about settings at its start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from puna.config.settings import Settings
from puna.daemon import odd_settings as module
from puna.daemon.odd_settings import odd_limits, odd_settings
from puna.daemon.runtime import Runtime
from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.daemon.fake_worker import Workshop
from tests.descriptions import TINY_WEIGHTS
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

GIB = 1 << 30


def said(root: Path, **settings) -> list[str]:
    settings = {"kv_dir": root / "kv"} | settings
    found = Settings(models=root / "models", **settings)
    return odd_settings(found, Store(found.models))


def test_nothing_is_odd_about_the_defaults(tmp_path):
    assert said(tmp_path) == []


def test_limits_beyond_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "total_bytes", lambda: 24 * GIB)
    of_kv = "the limit of KV, 25 GiB, is more than this machine has: 24 GiB"
    of_all = "the limit of all memory, 2 TiB, is more than this machine has: 24 GiB"
    assert odd_limits(25 * GIB, 2048 * GIB) == [of_kv, of_all]
    assert said(tmp_path, kv_limit_bytes=25 * GIB) == [of_kv]
    assert said(tmp_path, memory_limit_bytes=2048 * GIB) == [of_all]
    assert odd_limits(24 * GIB, None) == []


def test_nothing_is_said_where_the_system_does_not_tell_its_memory(monkeypatch):
    monkeypatch.setattr(module, "total_bytes", lambda: 0)
    assert odd_limits(1 << 60, 1 << 60) == []


def test_a_directory_that_cannot_be_one(tmp_path):
    file = tmp_path / "file"
    file.touch()
    missing = Path("/proc/nothing/kv")
    begin = "PUNA_KV_DIR: no prefix is kept on disk: "
    assert said(tmp_path, kv_dir=file) == [f"{begin}{file} is not a directory"]
    assert said(tmp_path, kv_dir=file / "kv") == [f"{begin}{file / 'kv'}: Not a directory"]
    assert said(tmp_path, kv_dir=missing) == [f"{begin}{missing}: No such file or directory"]


def test_a_directory_that_may_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module.os, "access", lambda *_: False)  # root may do everything
    assert said(tmp_path) == [f"PUNA_KV_DIR: no prefix is kept on disk: {tmp_path / 'kv'}: Permission denied"]


@pytest.mark.parametrize("settings", [{"kv_disk_bytes": 0}, {"cache_policy": "slots"}, {"elastic": False}])
def test_a_directory_that_nobody_uses_is_not_made(tmp_path, settings):
    assert said(tmp_path, kv_dir=tmp_path / "a" / "b", **settings) == []
    assert not (tmp_path / "a").exists()


def test_a_directory_is_for_its_owner(tmp_path):
    assert said(tmp_path, kv_dir=tmp_path / "a" / "b") == []
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_names_of_no_model(tmp_path):
    store = Store(tmp_path / "models")
    gguf = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])
    for name in ("local/q4_0", "qwen3:0.6b"):
        create_from_gguf(store, ModelName.parse(name), store.add_blob([gguf.read_bytes()]), TINY_WEIGHTS)
    guarantees = (("local/Q4_0", 1), ("q4_0", 1), ("qwen3", 1), ("qwen3:8b", 1))
    begin = "PUNA_MODEL_KV_MIN: there is no model"
    assert said(tmp_path, kv_guarantees=guarantees) == [
        f"{begin} q4_0:latest yet (do you mean local/q4_0:latest?)",
        f"{begin} qwen3:latest yet (do you mean qwen3:0.6b?)",
        f"{begin} qwen3:8b yet",
    ]
    assert said(tmp_path, model_shares=(("llama3.2", 2.0),)) == [
        "PUNA_MODEL_SHARES: there is no model llama3.2:latest yet"
    ]


def test_a_daemon_says_it_at_its_start(tmp_path, caplog):
    async def main() -> None:
        settings = Settings(
            models=tmp_path / "models",
            sessions=tmp_path / "s",
            state_key=tmp_path / "key",
            kv_dir=Path("/dev/null"),
        )
        runtime = Runtime(settings, spawn=Workshop().spawn)
        await runtime.start()
        await runtime.close()

    asyncio.run(main())
    assert "PUNA_KV_DIR: no prefix is kept on disk: /dev/null is not a directory" in caplog.messages
