"""The matrix unit is asked for by those who compute with it, and by nobody else."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.native

ASKS = """
import ctypes, json
from puna import _native

def may_use():
    permitted = ctypes.c_uint64()
    ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(permitted))  # arch_prctl, ARCH_GET_XCOMP_PERM
    return bool(permitted.value >> 18 & 1)

print(json.dumps([may_use(), _native.ask_for_matrix_unit(), may_use()]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have none that is asked for")
def test_importing_the_module_asks_for_nothing():
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, cwd=root, check=True)
    at_first, granted, at_last = json.loads(done.stdout)
    assert not at_first
    assert at_last == granted
