"""A small part of the fault campaign: each kind of process is killed once, under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.campaign.clients.load import Load
from tests.campaign.daemon import Daemon
from tests.campaign.kills import KILLS
from tests.campaign.store import make_store
from tests.campaign.under_load import SWITCHING, ended, inflict_all, learn_all

pytestmark = pytest.mark.e2e


def test_whatever_is_killed_all_is_as_before(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, make_store(tmp_path / "models", tmp_path), SWITCHING)

    async def main() -> list[str]:
        await daemon.start()
        load = Load(daemon, await learn_all(daemon), "load")
        rows = await inflict_all(daemon, load, KILLS, seed=0)
        wrong = [violation for row in rows for violation in row.violations]
        return wrong + load.violations + await ended(daemon, num_kills=len(KILLS))

    try:
        wrong = asyncio.run(main())
    finally:
        daemon.end()
    # How long it takes depends on what else the machine does; the campaign itself looks at that.
    assert [text for text in wrong if not text.startswith("normal again only after")] == []
