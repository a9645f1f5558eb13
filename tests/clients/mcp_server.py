"""`python -m tests.clients.mcp_server`: one tool, for agents, over stdin and stdout."""

from __future__ import annotations

from typing import Literal

from mcp.server.mcpserver import MCPServer

ANIMALS = {"marmot": "The marmot is called Ludmilla.", "llama": "The llama is called Ruprecht."}
server = MCPServer("zoo")


@server.tool()
def animal(kind: Literal["marmot", "llama"]) -> str:
    """The name of an animal in the zoo."""
    return ANIMALS[kind]


if __name__ == "__main__":
    server.run()
