from __future__ import annotations

from collections.abc import Iterator

import pytest

from puna._native import ThreadPool


@pytest.fixture(scope="session")
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(2)
    yield pool
    pool.close()
