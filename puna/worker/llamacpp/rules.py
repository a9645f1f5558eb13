"""The cage of the worker itself: what it reads is the server's word, and the head of a model's file. It opens
nothing by name, and others connect for it.
"""

from __future__ import annotations

from puna.worker.cage.rules import CageRules

_NEWEST_WITHOUT_SIGNALS = 5
"""Newer ones keep the system from ending the server, which is in another cage, when this process is killed.
seccomp lets it send no signals, anyway.
"""

WORKER_RULES = CageRules(newest_landlock=_NEWEST_WITHOUT_SIGNALS)
