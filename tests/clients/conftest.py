"""Clients that people bring, as they come from their registries: `make test-clients` installs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.clients.agent_model import NAME, write_agent_model
from tests.clients.scripted_engine import SCRIPT
from tests.descriptions import GEMMA3_WEIGHTS
from tests.e2e.launching import address_of

CHECKOUT = Path(__file__).parents[2]
MCP_SERVER = ("-m", "tests.clients.mcp_server")
MCP_ENVIRON = {"PYTHONPATH": str(CHECKOUT)}
NPM = CHECKOUT / "build" / "clients" / "node_modules"
collect_ignore_glob = [] if os.environ.get("PUNA_TEST_CLIENTS") else ["test_*.py"]

Rules = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Home:
    """A directory in which an agent works, with nothing of the user's."""

    path: Path

    def run(self, command: Sequence[str | Path], **variables: str) -> str:
        """What the agent writes. Fails if it does."""
        environ = {
            "HOME": str(self.path),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.path),
            **variables,
        }
        done = subprocess.run(
            [str(part) for part in command],
            env=environ,
            cwd=self.path / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "work").mkdir()
    return Home(tmp_path)


@pytest.fixture(scope="session")
def agent_models(tmp_path_factory: pytest.TempPathFactory, gemma3_path: Path) -> Path:
    """A store with the agents' model."""
    directory = tmp_path_factory.mktemp("models")
    write_agent_model(gemma3_path, directory / "agent.gguf")
    store = Store(directory / "store")
    with (directory / "agent.gguf").open("rb") as file:
        digest = store.add_blob(iter(lambda: file.read(1 << 20), b""))
    create_from_gguf(store, ModelName.parse(NAME), digest, GEMMA3_WEIGHTS)
    (directory / "agent.gguf").unlink()
    return store.root


@contextmanager
def _daemon(models: Path, kv: Path, *options: str) -> Iterator[str]:
    environ = {
        **os.environ,
        "OLLAMA_HOST": "127.0.0.1:0",
        "OLLAMA_MODELS": str(models),
        "PUNA_KV_DIR": str(kv),
        "PUNA_STATE_KEY": str(kv / "state.key"),
        "PYTHONPATH": str(CHECKOUT),
    }
    command = [sys.executable, "-m", "tests.clients.daemon", *options]
    process = subprocess.Popen(command, env=environ, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True)
    try:
        yield f"http://{address_of(process)}"
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="session")
def url(agent_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a daemon with the agents' model."""
    with _daemon(agent_models, tmp_path_factory.mktemp("kv")) as address:
        yield address


@pytest.fixture
def scripted(agent_models: Path, tmp_path: Path) -> Iterator[Callable[[Rules], str]]:
    """Starts a daemon whose engine says what these rules say."""
    with _started(agent_models, tmp_path) as start:
        yield lambda rules: start("--scripted", rules=rules)


@pytest.fixture
def forced(agent_models: Path, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts a daemon at which conversations begin with a call of this tool."""
    with _started(agent_models, tmp_path) as start:
        yield lambda tool: start("--force-call", tool)


@contextmanager
def _started(models: Path, directory: Path) -> Iterator[Callable[..., str]]:
    with ExitStack() as stack:

        def start(*options: str, rules: Rules = ()) -> str:
            kv = directory / "kv"
            kv.mkdir()
            (kv / SCRIPT).write_text(json.dumps(rules))
            return stack.enter_context(_daemon(models, kv, *options))

        yield start


def call(name: str, **arguments: Any) -> str:
    """A tool call as the agents' model writes it."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"
