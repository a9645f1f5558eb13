"""What is set about puna arrives in what a worker is started with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from puna.config.settings import Settings
from puna.daemon.worker.settings import worker_settings
from puna.engine import EngineSettings
from puna.worker.engine.messages import WorkerSettings

pytestmark = pytest.mark.unit

KEY = bytes(32)


def settings_of(**settings: Any) -> WorkerSettings:
    return worker_settings(Settings(models=Path("/nowhere"), **settings), KEY)


def test_defaults_are_the_engines():
    settings = settings_of(kv_dir=Path("/kv"), sessions=Path("/s"))
    assert settings == WorkerSettings(
        engine=EngineSettings(kv_dir="/kv", sessions_dir="/s", max_queue=512, state_key=KEY)
    )


def test_everything_arrives():
    settings = settings_of(
        num_threads=5,
        kv_type="q8_0",
        kv_limit_bytes=1 << 40,
        memory_limit_bytes=1 << 41,
        elastic=False,
        context_length=4096,
        kv_idle_s=7.5,
        kv_dir=Path("/kv with = and ü"),
        kv_disk_bytes=1 << 42,
        sessions=Path("/sessions"),
        cache_policy="slots",
        multi_user_cache=True,
        max_running=6,
        max_queue=7,
    )
    assert (settings.num_threads, settings.kv_type) == (5, "q8_0")
    assert settings.engine == EngineSettings(
        kv_limit_bytes=1 << 40,
        memory_limit_bytes=1 << 41,
        elastic=False,
        static_context=4096,
        kv_idle_s=7.5,
        kv_dir="/kv with = and ü",
        kv_disk_bytes=1 << 42,
        sessions_dir="/sessions",
        cache_policy="slots",
        multi_user_cache=True,
        max_running=6,
        max_queue=7,
        state_key=KEY,
    )


def test_without_disk_there_is_no_directory():
    assert settings_of(kv_disk_bytes=0).engine.kv_dir is None


def test_kv_kept_for_ever_is_what_a_lock_can_wait():
    assert 1e6 < settings_of(kv_idle_s=math.inf).engine.kv_idle_s < math.inf
