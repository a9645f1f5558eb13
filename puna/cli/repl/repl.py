"""The conversation of `puna run`: reads messages and commands, shows replies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from puna.cli.client import Client, Json
from puna.cli.errors import CliError
from puna.cli.output.terminal import printable
from puna.cli.repl.commands import Commands, show_messages
from puna.cli.repl.completion import CommandCompleter
from puna.cli.repl.conversation import Conversation
from puna.cli.repl.line_input import LineHistory, prompt_reader, read_message
from puna.cli.run.attachments import attach_files, starts_with_file
from puna.cli.run.options import RunOptions
from puna.cli.run.reply import ReplyDisplay, statistics, with_spinner
from puna.config.settings import Settings


class Repl:
    """One conversation in the terminal. `read` shows a prompt and returns a line (default: line editing)."""

    def __init__(
        self,
        client: Client,
        model: str,
        options: RunOptions,
        settings: Settings,
        read: Callable[[str], str] | None = None,
    ) -> None:
        self._client = client
        history = LineHistory(Path.home() / ".ollama" / "history", enabled=not settings.no_history)
        self._read = read or prompt_reader(history, CommandCompleter(), settings.editor)
        self.conversation = Conversation(model=model, options=options, history=history)
        self._commands = Commands(client, self.conversation)

    def run(self, information: Json) -> None:
        """Until the user leaves; first shows the messages that the model brings along.

        information: what the server says about the model.
        """
        self.conversation.begin(self.conversation.model, information)
        show_messages(self.conversation)
        while True:
            try:
                text = read_message(self._read)
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print("\nUse Ctrl + d or /bye to exit.")
                continue
            if text in ("/bye", "/exit"):
                return
            try:
                self._handle(text)
            except CliError as error:
                print(f"Error: {printable(str(error))}", file=sys.stderr)

    def _handle(self, text: str) -> None:
        if text.startswith("/") and not starts_with_file(text, self.conversation.capabilities):
            self._commands.run(text)
        elif text:
            self._say(text)

    def _say(self, text: str) -> None:
        conversation = self.conversation
        text, images = attach_files(text, conversation.capabilities)
        message: Json = {"role": "user", "content": text} | ({"images": images} if images else {})
        conversation.messages.append(message)
        try:
            reply = self._show_reply()
        except CliError:
            conversation.messages.pop()
            raise
        conversation.messages.append(reply)

    def _show_reply(self) -> Json:
        """Streams the reply to the terminal and returns it as a message; Ctrl+C ends it early."""
        conversation, options = self.conversation, self.conversation.options
        display = ReplyDisplay(
            sys.stdout,
            wrap=options.word_wrap and sys.stdout.isatty(),
            hide_thinking=options.hide_thinking,
        )
        pieces: dict[str, str] = {"thinking": "", "content": ""}
        final: Json = {}
        try:
            with closing(self._client.stream("/api/chat", conversation.request())) as stream:
                for final in with_spinner(stream):
                    message = final.get("message") or {}
                    for key in pieces:
                        pieces[key] += message.get(key, "")
                    display.show(message.get("thinking", ""), message.get("content", ""))
        except KeyboardInterrupt:
            pass  # closing the stream has told the server to stop; what was said so far stays said
        finally:
            display.finish()
        if options.verbose and final.get("done"):
            print(statistics(final), file=sys.stderr)
        print()
        return {"role": "assistant"} | {key: text for key, text in pieces.items() if text or key == "content"}
