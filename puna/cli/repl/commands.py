"""The commands of a conversation: what a line that begins with a slash does."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent

from puna.cli.client import Client
from puna.cli.errors import ServerError
from puna.cli.models.listing import list_models
from puna.cli.models.show import describe
from puna.cli.output.terminal import one_line, print_text
from puna.cli.repl.conversation import Conversation
from puna.cli.repl.help import HELP
from puna.cli.repl.settings import change_setting
from puna.cli.run.reply import spinner
from puna.registry.modelfile.parameters import parameters_text

_NOT_FOUND = 404
_BAD_REQUEST = 400


class Commands:
    """Carries out commands on one conversation. Their output goes to standard output."""

    def __init__(self, client: Client, conversation: Conversation) -> None:
        self._client = client
        self._conversation = conversation
        self._commands: dict[str, Callable[[str], None]] = {
            "/set": lambda rest: change_setting(conversation, rest),
            "/show": self._show,
            "/load": self._load,
            "/save": self._save,
            "/list": lambda prefix: list_models(client, prefix),
            "/ls": lambda prefix: list_models(client, prefix),
            "/clear": self._clear,
            "/help": self._help,
            "/?": self._help,
        }

    def run(self, line: str) -> None:
        """Carries out the command in `line`, which begins with a slash."""
        name, *rest = line.split(maxsplit=1)
        command = self._commands.get(name)
        if command is None:
            print(f"Unknown command '{one_line(name)}'. Type /? for help")
        else:
            command(rest[0].strip() if rest else "")

    def _help(self, topic: str) -> None:
        topic = {"shortcut": "shortcuts"}.get(topic, topic.removeprefix("/"))
        print(HELP.get(topic, HELP[""]))
        if not topic and "vision" in self._conversation.capabilities:
            print(HELP["images"])
        print()

    def _clear(self, _: str) -> None:
        self._conversation.messages.clear()
        print("Cleared session context")

    def _load(self, model: str) -> None:
        if len(model.split()) != 1:
            print("Usage:\n  /load <modelname>")
            return
        print(f"Loading model '{model}'")
        try:
            information = self._client.post("/api/show", {"model": model})
            with spinner():
                self._client.post("/api/generate", {"model": model, "stream": False})
        except ServerError as error:
            if error.status != _NOT_FOUND:
                raise
            print(f"Couldn't find model '{model}'")
            return
        self._conversation.begin(model, information)
        show_messages(self._conversation)

    def _save(self, model: str) -> None:
        if len(model.split()) != 1:
            print("Usage:\n  /save <modelname>")
            return
        try:
            with spinner():
                for _ in self._client.stream("/api/create", self._conversation.create_request(model)):
                    pass
        except ServerError as error:
            if error.status != _BAD_REQUEST or "invalid model name" not in str(error):
                raise
            print(f"error: The model name '{model}' is invalid")
            return
        print(f"Created new model '{model}'")

    def _show(self, what: str) -> None:
        if not what:
            print(HELP["show"] + "\n")
            return
        if what not in ("info", "license", "modelfile", "parameters", "system", "template"):
            print(f"Unknown command '/show {one_line(what)}'. Type /? for help")
            return
        conversation = self._conversation
        # Its Modelfile is that of the model which /save would make.
        overrides = {"system": conversation.system, "options": conversation.parameters}
        answer = self._client.post(
            "/api/show",
            {"model": conversation.model} | (overrides if what in ("modelfile", "system") else {}),
        )
        if what == "info":
            print_text(describe(answer) + "\n")
        elif what == "parameters":
            self._show_parameters(answer.get("parameters", ""))
        else:
            missing = {"system": "system message", "template": "prompt template"}.get(what, what)
            print_text((answer.get(what) or f"No {missing} was specified for this model.") + "\n")

    def _show_parameters(self, of_model: str) -> None:
        print("Model defined parameters:")
        lines = of_model.splitlines() or ["No additional parameters were specified for this model."]
        print_text("\n".join(f"  {line}" for line in lines) + "\n")
        if parameters := self._conversation.parameters:
            print("User defined parameters:")
            print_text(indent(parameters_text(parameters), "  ") + "\n")


def show_messages(conversation: Conversation) -> None:
    """Prints the messages that the model brings along."""
    for message in conversation.embedded:
        text = message["content"]
        print_text({"user": f">>> {text}", "assistant": f"{text}\n"}.get(message["role"], ""))
