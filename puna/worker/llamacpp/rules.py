"""The cage of the worker itself: what it reads is the server's word, and the head of a model's file."""

from __future__ import annotations

from pathlib import Path

from puna.worker.cage.rules import CageRules


def worker_rules(directory: str) -> CageRules:
    """directory: where the server's socket appears, which is then removed."""
    return CageRules(writable=(Path(directory),), sockets="connects")
