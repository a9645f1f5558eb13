"""`python -m tests.clients.mcp_server`: one tool, for agents, over stdin and stdout."""

from __future__ import annotations

from typing import Literal

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

ANIMALS = {"marmot": "The marmot is called Ludmilla.", "llama": "The llama is called Ruprecht."}
server = MCPServer("zoo")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))  # agents then call it without asking
def animal(kind: Literal["marmot", "llama"]) -> str:
    """The name of an animal in the zoo."""
    return ANIMALS[kind]


if __name__ == "__main__":
    server.run()
