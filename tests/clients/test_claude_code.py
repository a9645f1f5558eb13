"""Claude Code, unmodified: a tool round trip, that is a call, its result, and an answer."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.clients.agent_model import NAME
from tests.clients.conftest import MCP_ENVIRON, MCP_SERVER, NPM, Home, call
from tests.clients.mcp_server import ANIMALS

pytestmark = pytest.mark.e2e

CLAUDE = NPM / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
TOOL = "mcp__zoo__animal"
SECRET = "The marmot is called Ludmilla."


def messages(home: Home, url: str, *options: str) -> list[dict[str, Any]]:
    """What Claude Code reports of a conversation about a file."""
    note = home.path / "work" / "note.txt"
    note.write_text(SECRET + "\n")
    output = home.run(
        [
            CLAUDE,
            *("--print", f"What does {note} say?", "--model", NAME),
            *("--output-format", "stream-json", "--verbose", "--max-turns", "4", "--allowedTools", "Read"),
            *options,
        ],
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_API_KEY="unused",
        ANTHROPIC_SMALL_FAST_MODEL=NAME,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        CLAUDE_CODE_MAX_OUTPUT_TOKENS="256",
    )
    return [json.loads(line) for line in output.splitlines()]


def blocks(said: list[dict[str, Any]], role: str, kind: str) -> list[dict[str, Any]]:
    contents = [m["message"]["content"] for m in said if m["type"] == role]
    return [block for content in contents for block in content if block["type"] == kind]


def test_a_scripted_round_trip(home, scripted):
    read = call("Read", file_path=str(home.path / "work" / "note.txt"))
    url = scripted(
        [
            {"has": "Ludmilla", "reply": "It names the marmot."},
            {"has": "<tools>", "reply": "I'll read it." + read},
            {"reply": "A note"},
        ]
    )
    said = messages(home, url)
    (used,) = blocks(said, "assistant", "tool_use")
    assert used["name"] == "Read"
    (result,) = blocks(said, "user", "tool_result")
    assert SECRET in json.dumps(result)
    assert [block["text"] for block in blocks(said, "assistant", "text")] == [
        "I'll read it.",
        "It names the marmot.",
    ]
    assert said[-1]["result"] == "It names the marmot."


def test_a_round_trip_with_a_model(home, forced):
    servers = {
        "mcpServers": {"zoo": {"command": sys.executable, "args": list(MCP_SERVER), "env": MCP_ENVIRON}}
    }
    options = [
        "--tools",
        "",
        "--allowedTools",
        TOOL,
        "--mcp-config",
        json.dumps(servers),
        "--strict-mcp-config",
    ]
    said = messages(home, forced(TOOL), *options)
    (used,) = blocks(said, "assistant", "tool_use")
    assert used["name"] == TOOL
    (result,) = blocks(said, "user", "tool_result")
    assert ANIMALS[used["input"]["kind"]] in json.dumps(result)
    assert set(json.loads(said[-1]["result"])) == {"answer"}
