"""Programs that can be launched: what each is told, by environment and flags, so that it asks this server.

Their own configuration files are neither read nor written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """How a program is started: environment variables on top of the user's, and flags before the user's."""

    environment: dict[str, str]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Integration:
    """A program, how it is installed, and (model, base URL of the server) to how it is started."""

    title: str
    program: str
    installed_by: str
    launch: Callable[[str, str], Launch]


def _claude(model: str, url: str) -> Launch:
    every_kind = ("OPUS", "SONNET", "HAIKU")
    environment = {
        "ANTHROPIC_BASE_URL": url,
        # A token rather than a key: it asks whether a key may be used.
        "ANTHROPIC_AUTH_TOKEN": "puna",
        "ANTHROPIC_API_KEY": "",
        **{f"ANTHROPIC_DEFAULT_{kind}_MODEL": model for kind in every_kind},
        "CLAUDE_CODE_SUBAGENT_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return Launch(environment, ("--model", model))


def _codex(model: str, url: str) -> Launch:
    flags = ("--oss", "--local-provider", "ollama", "--model", model)
    return Launch({"CODEX_OSS_BASE_URL": f"{url}/v1"}, flags)


def _opencode(model: str, url: str) -> Launch:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "puna",
        "options": {"baseURL": f"{url}/v1", "apiKey": "puna"},
        "models": {model: {"name": model}},
    }
    chosen = f"puna/{model}"
    config = {"provider": {"puna": provider}, "model": chosen, "small_model": chosen}
    return Launch({"OPENCODE_CONFIG_CONTENT": json.dumps(config)}, ())


INTEGRATIONS = {
    "claude": Integration("Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", _claude),
    "codex": Integration("Codex", "codex", "npm install -g @openai/codex", _codex),
    "opencode": Integration("OpenCode", "opencode", "npm install -g opencode-ai", _opencode),
}


def command_line(integration: Integration, launch: Launch, arguments: Sequence[str]) -> list[str]:
    """What is executed."""
    return [integration.program, *launch.flags, *arguments]
