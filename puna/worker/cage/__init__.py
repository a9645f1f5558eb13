"""Cages for processes that read what strangers wrote: Landlock, seccomp, no new privileges, no capabilities.

Linux's own means by direct system calls, so that no other code has to be trusted. See docs/security.md.
"""

from puna.worker.cage.enter import enter as enter
from puna.worker.cage.rules import CageLevel as CageLevel
from puna.worker.cage.rules import CageRules as CageRules
