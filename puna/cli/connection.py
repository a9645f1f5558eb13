"""Finding the server, or starting one in the background."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from puna.cli.client import Client, is_local
from puna.cli.errors import CliError, NotRunning
from puna.config.settings import Settings
from puna.interpreter import python_command, with_absolute_paths

_SERVE = python_command("puna.cli", "serve")
_NAMES = {
    *("HOME", "USER", "LOGNAME", "PATH", "LANG", "TZ", "TMPDIR", "NETRC"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES"),
}
_PREFIXES = ("OLLAMA_", "PUNA_", "PIP_", "PYTHON", "LC_", "XDG_", "MALLOC_", "ASAN_", "LSAN_", "UBSAN_")
_START_TIMEOUT_S = 60.0
_POLL_S = 0.05
_MAX_LOG_BYTES = 4096


def connect(settings: Settings) -> Client:
    """A client of the running server. Raises NotRunning."""
    client = Client(settings.host)
    if not client.is_running():
        raise NotRunning
    return client


def connect_or_start(settings: Settings) -> Client:
    """A client of the running server; if none answers and it would be on this machine, starts it.

    The server outlives this command. Raises NotRunning, or CliError with the reason from the log.
    """
    client = Client(settings.host)
    if client.is_running():
        return client
    if not is_local(settings.host) or settings.host.port == 0:
        raise NotRunning
    log_path = Path.home() / ".ollama" / "logs" / "puna.log"
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                _SERVE,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=server_environment(os.environ),
            )
    except OSError as error:
        raise CliError(f"could not start puna server: {error}") from error
    _wait_until_running(client, process, log_path, log_start)
    return client


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Its settings, and what downloads need. The rest is the shell's, which the server will outlive."""
    kept = {
        name: value for name, value in environ.items() if name.upper() in _NAMES or name.startswith(_PREFIXES)
    }
    return with_absolute_paths(kept)


def _wait_until_running(
    client: Client, process: subprocess.Popen[bytes], log_path: Path, log_start: int
) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        # Asked before the question whether it answers: another command may have started a server at the same
        # moment, which took the address from ours.
        status = process.poll()
        if client.is_running():
            return
        if status is not None:
            raise CliError(f"could not start puna server: {_reason(log_path, log_start)}")
        time.sleep(_POLL_S)
    process.terminate()
    process.wait()
    raise CliError(f"puna server did not answer within {_START_TIMEOUT_S:.0f} s, see {log_path}")


def _reason(log_path: Path, log_start: int) -> str:
    """The last line that the server logged, which says why it gave up."""
    with log_path.open("rb") as log:
        log.seek(max(log_start, log_path.stat().st_size - _MAX_LOG_BYTES))
        lines = log.read().decode(errors="replace").strip().splitlines()
    return f"{lines[-1].strip().removeprefix('Error: ')} (see {log_path})" if lines else f"see {log_path}"
