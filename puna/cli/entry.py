"""Where the command line starts, before anything is imported that the current directory could replace."""

from __future__ import annotations

from puna.interpreter import forget_current_directory


def main() -> None:
    forget_current_directory()
    from puna.cli.main import main as run

    run()
