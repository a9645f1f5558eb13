"""What the daemon tells a worker on its command line arrives in the engine's settings."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import pytest

from puna.settings import Settings
from puna.worker.__main__ import engine_settings, parse_arguments
from puna.worker.process import arguments_of

pytestmark = pytest.mark.unit


def parsed(**settings: Any) -> argparse.Namespace:
    return parse_arguments(arguments_of(3, Settings(models=Path("/nowhere"), **settings)))


def test_defaults_are_the_engines():
    arguments = parsed(kv_dir=Path("/kv"))
    assert (arguments.socket_fd, arguments.threads, arguments.kv_type) == (3, None, "f16")
    settings = engine_settings(arguments)
    assert (settings.kv_limit_bytes, settings.memory_limit_bytes, settings.elastic) == (None, None, True)
    assert (settings.kv_dir, settings.kv_disk_bytes, settings.static_context) == ("/kv", None, None)
    assert (settings.kv_idle_s, settings.max_queue) == (3.0, 512)


def test_everything_arrives():
    arguments = parsed(
        num_threads=5,
        kv_type="q8_0",
        kv_limit_bytes=1 << 40,
        memory_limit_bytes=1 << 41,
        elastic=False,
        context_length=4096,
        kv_idle_s=7.5,
        kv_dir=Path("/kv with = and ü"),
        kv_disk_bytes=1 << 42,
        cache_policy="slots",
        multi_user_cache=True,
        max_running=6,
        max_queue=7,
    )
    assert (arguments.threads, arguments.kv_type) == (5, "q8_0")
    settings = engine_settings(arguments)
    assert (settings.kv_limit_bytes, settings.memory_limit_bytes) == (1 << 40, 1 << 41)
    assert (settings.elastic, settings.static_context, settings.kv_idle_s) == (False, 4096, 7.5)
    assert (settings.kv_dir, settings.kv_disk_bytes) == ("/kv with = and ü", 1 << 42)
    assert (settings.cache_policy, settings.multi_user_cache) == ("slots", True)
    assert (settings.max_running, settings.max_queue) == (6, 7)


def test_without_disk_there_is_no_directory():
    assert engine_settings(parsed(kv_disk_bytes=0)).kv_dir is None


def test_kv_kept_for_ever_is_what_a_lock_can_wait():
    assert 1e6 < engine_settings(parsed(kv_idle_s=math.inf)).kv_idle_s < math.inf
