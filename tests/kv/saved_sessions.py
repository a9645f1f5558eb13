"""Sessions in files, by path."""

from __future__ import annotations

from pathlib import Path

from puna.engine.offload.session_files import SessionSave
from puna.kv.checkpoint import Checkpoint
from puna.kv.checkpoint_files import CheckpointFiles

KEY = bytes(32)


def write_session(path: Path, save: SessionSave) -> None:
    """Runs the save."""
    draft = CheckpointFiles(path.parent).begin(path.name)
    try:
        save.run(draft.descriptor, KEY)
    except BaseException:
        draft.discard()
        raise
    draft.publish()


def open_session(path: Path) -> Checkpoint:
    return Checkpoint(CheckpointFiles(path.parent).open(path.name), KEY, str(path))
