"""The settings that concern an engine worker."""

from __future__ import annotations

import threading
from typing import cast

from puna.config.settings import Settings
from puna.engine.settings import CachePolicy, EngineSettings
from puna.worker.engine.messages import WorkerSettings


def worker_settings(settings: Settings, state_key: bytes | None) -> WorkerSettings:
    """Arguments of a new worker. state_key: None: it keeps nothing on disk."""
    return WorkerSettings(
        engine=EngineSettings(
            kv_limit_bytes=settings.kv_limit_bytes,
            memory_limit_bytes=settings.memory_limit_bytes,
            elastic=settings.elastic,
            static_context=settings.context_length or None,
            kv_idle_s=min(settings.kv_idle_s, threading.TIMEOUT_MAX),
            kv_dir=None if settings.kv_disk_bytes == 0 else str(settings.kv_dir),
            sessions_dir=str(settings.sessions),
            kv_disk_bytes=settings.kv_disk_bytes,
            kv_bytes_per_day=settings.kv_bytes_per_day,
            write_behind=settings.write_behind,
            state_key=state_key,
            cache_policy=cast(CachePolicy, settings.cache_policy),
            multi_user_cache=settings.multi_user_cache,
            max_running=settings.max_running,
            max_queue=settings.max_queue,
        ),
        num_threads=settings.num_threads,
        kv_type=settings.kv_type,
    )
