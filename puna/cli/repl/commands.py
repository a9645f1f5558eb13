"""The commands of a conversation: what a line that begins with a slash does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from puna.cli.client import Client, Json
from puna.cli.models.listing import list_models
from puna.cli.models.show import describe
from puna.cli.output.terminal import print_text
from puna.cli.repl.line_input import LineHistory
from puna.cli.run.options import RunOptions, parse_think
from puna.cli.run.reply import spinner
from puna.registry.modelfile.parameters import parse_parameter

HELP = {
    "": '''Available Commands:
  /set            Set session variables
  /show           Show model information
  /load <model>   Load a model and begin anew
  /list           List stored models
  /clear          Clear session context
  /bye            Exit
  /?, /help       Help for a command
  /? shortcuts    Help for keyboard shortcuts

Use """ to begin a multi-line message.''',
    "set": """Available Commands:
  /set parameter ...     Set a parameter
  /set system <string>   Set system message
  /set history           Enable history
  /set nohistory         Disable history
  /set wordwrap          Enable wordwrap
  /set nowordwrap        Disable wordwrap
  /set format json       Enable JSON mode
  /set noformat          Disable formatting
  /set verbose           Show LLM stats
  /set quiet             Disable LLM stats
  /set think [level]     Enable thinking
  /set nothink           Disable thinking""",
    "show": """Available Commands:
  /show info         Show details for this model
  /show license      Show model license
  /show modelfile    Show Modelfile for this model
  /show parameters   Show parameters for this model
  /show system       Show system message
  /show template     Show prompt template""",
    "shortcuts": """Available keyboard shortcuts:
  Ctrl + a            Move to the beginning of the line (Home)
  Ctrl + e            Move to the end of the line (End)
   Alt + b            Move back (left) one word
   Alt + f            Move forward (right) one word
  Ctrl + k            Delete the sentence after the cursor
  Ctrl + u            Delete the sentence before the cursor
  Ctrl + w            Delete the word before the cursor
  Ctrl + j            Begin a new line

  Ctrl + l            Clear the screen
  Ctrl + c            Stop the model from responding
  Ctrl + d            Exit""",
}


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What was said so far, and how it goes on."""

    model: str
    options: RunOptions
    history: LineHistory
    messages: list[Json] = field(default_factory=list)
    system: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    def request(self) -> Json:
        """The body of `/api/chat` for the messages so far."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.options.request(
            model=self.model, messages=system + self.messages, options=self.parameters
        )


class Commands:
    """Carries out commands on one conversation. Their output goes to standard output."""

    def __init__(self, client: Client, conversation: Conversation) -> None:
        self._client = client
        self._conversation = conversation
        self._commands: dict[str, Callable[[str], None]] = {
            "/set": self._set,
            "/show": self._show,
            "/load": self._load,
            "/list": lambda prefix: list_models(client, prefix),
            "/clear": self._clear,
            "/help": self._help,
            "/?": self._help,
        }

    def run(self, line: str) -> None:
        """Carries out the command in `line`, which begins with a slash."""
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            print(f"Unknown command '{name}'. Type /? for help")
        else:
            command(rest.strip())

    def _help(self, topic: str) -> None:
        print(HELP.get(topic.removeprefix("/"), HELP[""]) + "\n")

    def _clear(self, _: str) -> None:
        self._conversation.messages.clear()
        print("Cleared session context")

    def _load(self, model: str) -> None:
        if not model:
            print("Usage:\n  /load <modelname>")
            return
        print(f"Loading model '{model}'")
        self._client.post("/api/show", {"model": model})  # the reason, if there is no such model
        with spinner():
            self._client.post("/api/generate", {"model": model, "stream": False})
        self._conversation.model = model
        self._conversation.messages.clear()

    def _set(self, rest: str) -> None:
        what, _, value = rest.partition(" ")
        value = value.strip()
        if what == "parameter":
            self._set_parameter(value)
        elif what == "system" and value:
            self._conversation.system = value
            print("Set system message.")
        elif what in ("history", "nohistory"):
            self._conversation.history.enabled = what == "history"
        elif (change := _option_change(what, value)) is not None:
            options, text = change
            self._conversation.options = replace(self._conversation.options, **options)
            print(text)
        else:
            print(HELP["set"])

    def _set_parameter(self, text: str) -> None:
        name, *values = text.split()
        try:
            parsed = parse_parameter(name, values)
        except ValueError as error:
            print(f"Couldn't set parameter: {error}")
            return
        self._conversation.parameters[name] = parsed
        print(f"Set parameter '{name}' to '{', '.join(values)}'")

    def _show(self, what: str) -> None:
        answer = self._client.post("/api/show", {"model": self._conversation.model})
        if what == "info":
            print_text(describe(answer) + "\n")
        elif what == "parameters":
            self._show_parameters(answer.get("parameters", ""))
        elif what == "system" and self._conversation.system:
            print(self._conversation.system + "\n")
        elif what in ("license", "modelfile", "system", "template"):
            print_text((answer.get(what) or f"No {what} was specified for this model.") + "\n")
        else:
            print(HELP["show"] + "\n")

    def _show_parameters(self, of_model: str) -> None:
        print_text(
            f"Model defined parameters:\n{of_model}\n" if of_model else "No parameters of the model.\n"
        )
        if parameters := self._conversation.parameters:
            print("User defined parameters:")
            for name, value in parameters.items():
                print(f"{name:<30} {value}")
            print()


def _option_change(what: str, value: str) -> tuple[dict[str, Any], str] | None:
    """(changed fields of RunOptions, what to tell the user), or None if `what` is no such setting."""
    if what == "think":
        level = parse_think(value or "true")
        return {"think": level}, "Set 'think' mode" + (f" to '{level}'" if value else "") + "."
    if what == "format" and value == "json":
        return {"format": "json"}, "Set format to 'json' mode."
    changes: dict[str, tuple[dict[str, Any], str]] = {
        "nothink": ({"think": False}, "Set 'nothink' mode."),
        "noformat": ({"format": None}, "Disabled format."),
        "wordwrap": ({"word_wrap": True}, "Set 'wordwrap' mode."),
        "nowordwrap": ({"word_wrap": False}, "Set 'nowordwrap' mode."),
        "verbose": ({"verbose": True}, "Set 'verbose' mode."),
        "quiet": ({"verbose": False}, "Set 'quiet' mode."),
    }
    return changes.get(what)
