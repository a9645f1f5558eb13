"""Room in the file system of the store, of which a part is left to others."""

from __future__ import annotations

import shutil
from pathlib import Path

from puna.config.sizes import human_size
from puna.registry.errors import StoreError
from puna.registry.store.files.reported import reported

RESERVE_BYTES = 256 << 20
"""A full disk hurts everything else on the machine: so much is never taken."""


def check_free_space(directory: Path, num_bytes: int) -> None:
    """Raises StoreError unless so much more can be written below `directory`, which exists."""
    with reported("cannot write to the store"):
        free = max(shutil.disk_usage(directory).free - RESERVE_BYTES, 0)
    if free < num_bytes:
        raise StoreError(
            "cannot write to the store: No space left on device "
            f"({human_size(num_bytes)} needed, {human_size(free)} free)"
        )
