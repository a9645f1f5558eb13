"""Cached prefixes and sessions are kept, found, limited and erased from inside a cage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

KEEPS_PREFIXES = """
import json, os, sys, time
from datetime import UTC, datetime
from pathlib import Path
import numpy as np
from puna.backends.base import KvGroup
from puna.kv.files.identity import KvIdentity
from puna.kv.files.prefix_store import PrefixStore
from puna.kv.files.saved_sessions import SavedSessions
from puna.kv.files.session_manifest import SessionHeader
from puna.worker.cage import enter
from puna.worker.cage.engine_rules import engine_rules

root = Path(sys.argv[1])
enter(engine_rules(str(root), str(root / 'sessions')))
said = []
store = PrefixStore(root, bytes(32), 10 * (256 + 1024))
store.report = lambda *arguments: said.append(str(arguments))
store.open()
kv = KvIdentity(model_id="m", kv_type="f16", groups=(KvGroup(num_layers=1, block_bytes=1024),))
files, content = store.files(kv, "cpu"), np.ones(1024, dtype=np.uint8)
blocks = [files.behind(files.root(""), np.full(16, i, np.int32).tobytes()) for i in range(12)]
for number, block in enumerate(blocks):
    future_ns = time.time_ns() + 10**15 if number % 2 else number
    said.append(files.write(block, content, b"", future_ns))
    said.append(store.added(files.file_bytes()))
said.append(files.write(blocks[11], content, b"", 1))
target = np.zeros(1024, dtype=np.uint8)
said += [files.read_or_remove(blocks[11], target), target.tobytes() == content.tobytes()]
said.append(files.read_or_remove(blocks[0], target))
store.erase("m")
said.append(os.listdir(root))
saved = SavedSessions(root / "sessions", lambda: bytes(32))
header = SessionHeader(
    kv=kv, kernels="", name="n", namespace="", num_tokens=40, created_at=datetime.now(UTC)
)
for _ in range(2):
    saved.write(header, bytes(160), lambda *_: content, lambda: None)
session = saved.open("m", "n")
for _, group, stored in session.blocks():
    session.read_block(stored, group, target)
said += [target.tobytes() == content.tobytes(), saved.remove("m", "n"), os.listdir(saved.path)]
print(json.dumps(said))
"""


def test_all_that_is_done_with_files_can_be_done_inside(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", KEEPS_PREFIXES, str(tmp_path / "kv")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True] * 24 + [False, True, True, False, ["sessions"], True, True, []]
