"""The commands of completion."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Optional

import typer

completion_app = typer.Typer()


class Shell(StrEnum):
    """Those that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@completion_app.command()
def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", show_default=False)]) -> None:
    """Print the script of completion for a shell.

    In ~/.bashrc: eval "$(puna completion bash)". In ~/.zshrc, after compinit: eval "$(puna completion zsh)".
    For fish: puna completion fish > ~/.config/fish/completions/puna.fish.
    """
    from puna.cli.completion.scripts import SCRIPTS

    print(SCRIPTS[shell], end="")


@completion_app.command(
    "__complete",
    hidden=True,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def complete(
    context: typer.Context,
    words: Annotated[Optional[list[str]], typer.Argument(show_default=False)] = None,  # noqa: UP045
) -> None:
    """What scripts of completion ask."""
    from puna.cli.completion.words import completions

    for word in completions(context.find_root().command, words or []):
        print(word)  # without any, nothing, not an empty line: then shells complete names of files
