"""Codex, unmodified, with its provider for local models: a tool round trip: a call, its result, and an
answer.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.clients.agent_model import NAME
from tests.clients.conftest import MCP_ENVIRON, MCP_SERVER, NPM, Home, call
from tests.clients.mcp_server import ANIMALS

pytestmark = pytest.mark.e2e

CODEX = NPM / ".bin" / "codex"


def events(home: Home, url: str, prompt: str, *options: str) -> list[dict[str, Any]]:
    """What Codex reports of a conversation."""
    output = home.run(
        [
            CODEX,
            *("exec", "--oss", "--local-provider", "ollama", "--model", NAME, "--json"),
            *("--skip-git-repo-check", "--sandbox", "read-only"),
            *options,
            prompt,
        ],
        CODEX_OSS_BASE_URL=f"{url}/v1",
        CODEX_HOME=str(home.path),
    )
    return [json.loads(line) for line in output.splitlines()]


def items(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    done = [event["item"] for event in said if event["type"] == "item.completed"]
    return [item for item in done if item["type"] == kind]


def test_a_round_trip_with_a_model(home, forced):
    zoo: dict[str, Any] = {"command": sys.executable, "args": list(MCP_SERVER)}
    zoo |= {f"env.{name}": value for name, value in MCP_ENVIRON.items()}
    zoo["required"] = True  # without it, Codex asks before the server is ready
    options = [f"--config=mcp_servers.zoo.{name}={json.dumps(value)}" for name, value in zoo.items()]
    said = events(home, forced("mcp__zoo__animal"), "Which animal is in the zoo?", *options)
    (called,) = items(said, "mcp_tool_call")
    assert called["tool"] == "animal"
    assert ANIMALS[called["arguments"]["kind"]] in json.dumps(called["result"])
    (answer,) = items(said, "agent_message")
    assert set(json.loads(answer["text"])) == {"answer"}


def test_a_scripted_round_trip(home, scripted):
    url = scripted(
        [
            {"has": '"target": "nobody"', "reply": "There was a zebra."},
            {"has": "exited with code 0", "reply": call("multi_agent_v1__close_agent", target="nobody")},
            {"reply": "Let me look." + call("exec_command", cmd="echo zebra")},
        ]
    )
    said = events(home, url, "Look around.")
    assert [item["text"] for item in items(said, "agent_message")] == ["Let me look.", "There was a zebra."]
    (command,) = items(said, "command_execution")
    assert (command["aggregated_output"], command["exit_code"]) == ("zebra\n", 0)
