"""`puna launch`: an agent that is installed, with a model of this server."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from puna.cli.client import Client, Json
from puna.cli.errors import CliError
from puna.cli.launch.integrations import INTEGRATIONS, Integration, command_line
from puna.cli.output.terminal import one_line
from puna.cli.run.run import find_or_pull

_MIN_CONTEXT = 32_768
"""Tokens: the prompts of agents alone take 10,000 and more."""


def describe_integrations() -> str:
    """The programs, one a line."""
    rows = [(name, integration.title) for name, integration in INTEGRATIONS.items()]
    installed = [shutil.which(INTEGRATIONS[name].program) for name, _ in rows]
    return "\n".join(
        f"{name:<12}{title}{'' if path else ' (not installed)'}"
        for (name, title), path in zip(rows, installed, strict=True)
    )


def launch(client: Client, name: str, model: str, arguments: Sequence[str]) -> None:
    """Becomes the program. The model is pulled if it is not there; none: the newest that knows tools.

    Raises CliError.
    """
    integration = find_integration(name)
    program = shutil.which(integration.program)
    if program is None:
        raise CliError(
            f"{integration.title} is not installed ({integration.program} is not in PATH): "
            f"{integration.installed_by}"
        )
    model = model or newest_with_tools(client)
    _warn(model, find_or_pull(client, model))
    started = integration.launch(model, base_url(client))
    sys.stdout.flush()
    try:
        os.execve(program, command_line(integration, started, arguments), os.environ | started.environment)
    except OSError as error:
        raise CliError(f"{program}: {error.strerror}") from error


def show_config(client: Client, name: str, model: str, arguments: Sequence[str]) -> None:
    """Prints, as lines for a shell, what launch() would do."""
    integration = find_integration(name)
    started = integration.launch(model or newest_with_tools(client), base_url(client))
    for variable, value in started.environment.items():
        print(f"export {variable}={shlex.quote(value)}")
    print(shlex.join(command_line(integration, started, arguments)))


def find_integration(name: str) -> Integration:
    """Raises CliError for one that is not known."""
    if name not in INTEGRATIONS:
        raise CliError(f"unknown integration '{name}' (there are {', '.join(INTEGRATIONS)})")
    return INTEGRATIONS[name]


def base_url(client: Client) -> str:
    """Of the server, for programs that know TCP only. Raises CliError."""
    if client.host.socket is not None:
        raise CliError("other programs cannot use a Unix socket: let OLLAMA_HOST be an address")
    return client.host.base_url


def newest_with_tools(client: Client) -> str:
    """A model for agents. Raises CliError if there is none."""
    for model in client.get("/api/tags")["models"]:  # the newest comes first
        name = str(model["name"])
        if "tools" in _capabilities(client.post("/api/show", {"model": name})):
            return name
    raise CliError("no stored model knows tools, which agents need; choose one with --model")


def _capabilities(information: Json) -> list[str]:
    return information.get("capabilities") or []


def _warn(model: str, information: Json) -> None:
    """Of a model that agents cannot do much with."""
    name = one_line(model)
    if "tools" not in _capabilities(information):
        print(f"Warning: {name} does not know tools, which agents need", file=sys.stderr)
    facts = information.get("model_info") or {}
    length = facts.get(f"{facts.get('general.architecture')}.context_length")
    if isinstance(length, int) and length < _MIN_CONTEXT:
        print(
            f"Warning: {name} has a context of {length} tokens; agents need {_MIN_CONTEXT} and more",
            file=sys.stderr,
        )
