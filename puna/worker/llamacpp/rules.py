"""The cage of the worker itself: what it reads is the server's word, and the head of a model's file."""

from __future__ import annotations

from pathlib import Path

from puna.worker.cage.rules import CageRules

_NEWEST_WITHOUT_SIGNALS = 5
"""Newer ones keep the system from ending the server, which is in another cage, when this process is killed.
seccomp lets it send no signals, anyway.
"""


def worker_rules(directory: str) -> CageRules:
    """directory: where the server's socket appears, which is then removed."""
    return CageRules(writable=(Path(directory),), sockets="connects", newest_landlock=_NEWEST_WITHOUT_SIGNALS)
