"""Reading the user's messages: line editing, history, and multi-line text."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from puna.cli.errors import CliError
from puna.cli.repl.editor import edit

MAX_HISTORY = 100
QUOTES = '"""'


class LineHistory(History):
    """One entry a line, oldest first, at most MAX_HISTORY of them: the file that Ollama keeps, too."""

    def __init__(self, path: Path, *, enabled: bool) -> None:
        super().__init__()
        self._path = path
        self.enabled = enabled
        """Whether entries are written to the file."""

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        return reversed(self._read()) if self.enabled else []

    def store_string(self, string: str) -> None:
        """Appends an entry, dropping the oldest."""
        if not self.enabled:
            return
        lines = [*self._read(), " ".join(string.splitlines())][-MAX_HISTORY:]
        # A history that cannot be kept is no reason to end a conversation.
        try:
            self._replace("".join(line + "\n" for line in lines))
        except OSError:
            self.enabled = False

    def _read(self) -> list[str]:
        try:
            return [line for line in self._path.read_text(errors="replace").splitlines() if line]
        except OSError:
            return []

    def _replace(self, text: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix="history-")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)


def prompt_reader(
    history: LineHistory, completer: Completer | None = None, editor: str = ""
) -> Callable[[str], str]:
    """A function that shows a prompt and returns the line typed.

    It raises EOFError for Ctrl+D, and KeyboardInterrupt for Ctrl+C in an empty line (in another, Ctrl+C
    clears the line).
    """
    keys = KeyBindings()

    @keys.add("c-j")
    def _newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    @keys.add("c-g")
    async def _edit(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        try:
            text = await run_in_terminal(lambda: edit(buffer.text, editor), in_executor=True)
        except CliError as error:
            message = f"Error: {error}"
            await run_in_terminal(lambda: print(message, file=sys.stderr))
        else:
            buffer.document = Document(text)

    session: PromptSession[str] = PromptSession(
        history=history, key_bindings=keys, completer=completer, complete_while_typing=False
    )

    def read(prompt: str) -> str:
        hint = "Send a message (/? for help)" if prompt == ">>> " else ""
        return session.prompt(prompt, placeholder=FormattedText([("ansibrightblack", hint)]))

    return read


def read_message(read: Callable[[str], str]) -> str:
    """One line, or what stands between triple quotes on several; `read` shows a prompt and reads a line.

    Quotes may also follow a command (`/set system \"\"\"`), which is then kept in front.
    """
    line = read(">>> ")
    before, quotes, text = line.partition(QUOTES)
    if not quotes or (before.strip() and not before.lstrip().startswith("/set system")):
        return line.strip()
    while QUOTES not in text:
        text += "\n" + read("... ")
    return before.lstrip() + text.partition(QUOTES)[0]
