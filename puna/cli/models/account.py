"""`puna signin` and `puna signout`: there are no accounts here, only the key that registries know."""

from __future__ import annotations

from puna.cli.errors import CliError
from puna.cli.output.terminal import print_text
from puna.config.settings import Settings

_KEYS_PAGE = "https://ollama.com/settings/keys"
_MAX_CHARS = 4096


def show_key(settings: Settings) -> None:
    """Prints the key's public half, and what to do with it. Raises CliError if there is none."""
    path = settings.registry_key.with_name(settings.registry_key.name + ".pub")
    try:
        with path.open() as file:
            key = file.read(_MAX_CHARS).strip()
    except (OSError, UnicodeDecodeError):
        raise CliError(f"there is no key in {path}, run 'puna serve' to make one") from None
    print_text(
        "puna has no account service; registries know this machine by its key.\n"
        f"To push to ollama.com, or to pull private models, add it to your account at {_KEYS_PAGE}:\n\n{key}"
    )


def say_how_to_sign_out() -> None:
    """Prints what a user can do."""
    print_text(
        "puna has no account service, so nobody is signed in.\n"
        f"To have ollama.com forget this machine, remove its key at {_KEYS_PAGE}."
    )
