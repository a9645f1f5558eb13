"""The conversation: what is sent, what is remembered, and what its commands do."""

from __future__ import annotations

import pytest

from puna.cli.repl.help import HELP
from puna.cli.repl.repl import Repl
from puna.cli.run.options import RunOptions
from puna.config.settings import Settings
from puna.registry.modelfile.parameters import parse_parameter

pytestmark = pytest.mark.unit


def chat_answer(body):
    words = ["You ", "said ", body["messages"][-1]["content"]]
    return [
        *({"message": {"role": "assistant", "content": word}, "done": False} for word in words),
        {"message": {"role": "assistant", "content": ""}, "done": True, "eval_count": 3},
    ]


@pytest.fixture
def converse(server, client, capsys):
    """converse("line", ...) types the lines; returns (what was printed, the conversation)."""
    server.answers.setdefault(("POST", "/api/chat"), chat_answer)

    def run(*lines, embedded=(), capabilities=("completion",), **flags):
        remaining = list(lines)
        prompts = []

        def read(prompt):
            prompts.append(prompt)
            if not remaining:
                raise EOFError
            line = remaining.pop(0)
            if isinstance(line, BaseException):
                raise line
            return line

        repl = Repl(client, "m", RunOptions(**flags), Settings.from_environment(), read)
        repl.run({"messages": list(embedded), "capabilities": list(capabilities)})
        captured = capsys.readouterr()
        return captured.out + captured.err, repl.conversation

    return run


def test_every_turn_is_sent_with_those_before_it(server, converse):
    printed, _ = converse("hi", "and?", "/bye", "never read")
    first, second = server.bodies("/api/chat")
    assert first == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "options": {}}
    assert [message["content"] for message in second["messages"]] == ["hi", "You said hi", "and?"]
    assert "You said hi\n\nYou said and?\n" in printed


def test_every_turn_names_the_session(server, converse):
    converse("hi", "and?", session="work")
    assert [body["session"] for body in server.bodies("/api/chat")] == ["work", "work"]


def test_multi_line_messages(server, converse):
    converse('"""first', "second", 'third"""', '"""one line"""', '  """', "", '"""')
    contents = [body["messages"][-1]["content"] for body in server.bodies("/api/chat")]
    assert contents == ["first\nsecond\nthird", "one line", "\n\n"]


def test_quotes_inside_a_message_are_text(server, converse):
    converse('what does """ mean?')
    assert server.bodies("/api/chat")[0]["messages"][-1]["content"] == 'what does """ mean?'


def test_empty_lines_are_not_sent(server, converse):
    converse("", "   ")
    assert server.bodies("/api/chat") == []


@pytest.mark.parametrize("leave", ["/bye", "/exit"])
def test_leaving(converse, leave):
    printed, _ = converse(leave, "never read")
    assert printed == ""


def test_ctrl_c_at_the_prompt_tells_how_to_leave(converse):
    printed, _ = converse(KeyboardInterrupt(), "hi")
    assert "Use Ctrl + d or /bye to exit.\nYou said hi" in printed


def test_ctrl_c_stops_the_reply_and_keeps_what_was_said(converse, client, monkeypatch):
    def interrupted(*_):
        yield {"message": {"role": "assistant", "content": "You sa"}}
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "stream", interrupted)
    printed, conversation = converse("hi")
    assert "You sa\n" in printed
    assert conversation.messages[-1] == {"role": "assistant", "content": "You sa"}


def test_an_error_is_shown_and_the_message_forgotten(server, converse):
    server.answers["POST", "/api/chat"] = (500, {"error": "model runner has unexpectedly stopped"})
    printed, conversation = converse("hi", "again")
    assert printed.count("Error: model runner has unexpectedly stopped") == 2
    assert conversation.messages == []


def test_thinking_is_remembered(server, converse):
    server.answers["POST", "/api/chat"] = [
        {"message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {"message": {"role": "assistant", "content": "yes"}, "done": True},
    ]
    printed, conversation = converse("hi")
    assert "Thinking...\nhm\n...done thinking.\n\nyes\n" in printed
    assert conversation.messages[-1] == {"role": "assistant", "content": "yes", "thinking": "hm"}


def test_embedded_messages_are_shown_first(converse):
    printed, _ = converse(embedded=[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])
    assert printed.startswith(">>> q\na\n")


# Commands


def test_set_parameter(server, converse):
    printed, _ = converse(
        "/set parameter temperature 0.5",
        "/set parameter num_ctx 4096",
        "/set parameter stop <a> <b>",
        "/set parameter draft_model small:1b",
        "hi",
    )
    assert "Set parameter 'temperature' to '0.5'" in printed
    assert server.bodies("/api/chat")[0]["options"] == {
        "temperature": 0.5,
        "num_ctx": 4096,
        "stop": ["<a>", "<b>"],
        "draft_model": "small:1b",
    }


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("nonsense", ["1"], "unknown parameter 'nonsense'"),
        ("num_ctx", ["many"], r"invalid int value \[many\]"),
        ("temperature", ["warm"], r"invalid float value \[warm\]"),
        ("use_mmap", ["maybe"], r"invalid bool value \[maybe\]"),
    ],
)
def test_bad_parameters(converse, name, values, text):
    with pytest.raises(ValueError, match=text):
        parse_parameter(name, values)
    printed, conversation = converse(f"/set parameter {name} {' '.join(values)}")
    assert printed.startswith("Couldn't set parameter: ")
    assert conversation.parameters == {}


def test_set_system(server, converse):
    converse("/set system Be brief.", "hi", '/set system """Be', 'very brief."""', "hi")
    systems = [body["messages"][0] for body in server.bodies("/api/chat")]
    assert systems == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be\nvery brief."},
    ]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        *(
            ("/set verbose", "verbose", True),
            ("/set wordwrap", "word_wrap", True),
            ("/set think", "think", True),
        ),
        *(
            ("/set think high", "think", "high"),
            ("/set nothink", "think", False),
            ("/set format json", "format", "json"),
        ),
    ],
)
def test_set_options(converse, line, field, value):
    printed, conversation = converse(line)
    assert printed.startswith("Set ")
    assert getattr(conversation.options, field) == value


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("/set quiet", "verbose", False),
        ("/set nowordwrap", "word_wrap", False),
        ("/set noformat", "format", None),
    ],
)
def test_unset_options(converse, line, field, value):
    _, conversation = converse(line, verbose=True, word_wrap=True, format="json")
    assert getattr(conversation.options, field) == value


def test_set_history(converse):
    _, conversation = converse("/set nohistory")
    assert not conversation.history.enabled
    _, conversation = converse("/set nohistory", "/set history")
    assert conversation.history.enabled


def test_settings_that_there_are_not(converse):
    assert converse("/set frob")[0] == "Unknown command '/set frob'. Type /? for help\n\n"
    assert converse("/set format xml")[0].startswith("Invalid or missing format. For 'json' mode use ")
    assert converse("/set parameter seed")[0].startswith(HELP["parameter"])


def test_images_are_sent_with_the_message(server, converse, tmp_path):
    image = tmp_path / "a picture.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n")
    path = str(image).replace(" ", "\\ ")
    printed, _ = converse(f"{path} what is it?", f"{path} again", capabilities=["completion", "vision"])
    assert f"Added image '{image}'" in printed
    first = server.bodies("/api/chat")[0]["messages"][0]
    assert first == {"role": "user", "content": "what is it?", "images": ["iVBORw0KGgo="]}
    assert "Use /path/to/file to include" in converse("/?", capabilities=["vision"])[0]
    assert converse(f"{path} what is it?")[0].startswith("Unknown command")


def test_a_bad_think_level_is_an_error_not_the_end(converse):
    printed, _ = converse("/set think maybe", "hi")
    assert "Error: invalid value for --think" in printed
    assert "You said hi" in printed


def test_thinking_that_a_model_cannot_is_told_at_once(converse):
    warning = 'warning: model "m" does not support thinking output'
    assert warning in converse("/set think")[0]
    assert warning not in converse("/set think", capabilities=["completion", "thinking"])[0]


def test_clear_forgets(server, converse):
    printed, _ = converse("hi", "/clear", "again")
    assert "Cleared session context" in printed
    assert len(server.bodies("/api/chat")[1]["messages"]) == 1


def test_load_switches_the_model(server, converse):
    server.answers["POST", "/api/generate"] = {"done": True, "done_reason": "load"}
    converse("hi", "/load other", "hi")
    assert server.bodies("/api/generate") == [{"model": "other", "stream": False}]
    body = server.bodies("/api/chat")[1]
    assert (body["model"], len(body["messages"])) == ("other", 1)


def test_load_of_an_unknown_model_changes_nothing(server, converse):
    server.answers["POST", "/api/show"] = (404, {"error": "model 'other:latest' not found"})
    printed, conversation = converse("hi", "/load other", "/load")
    assert "Couldn't find model 'other'" in printed
    assert "Usage:\n  /load <modelname>" in printed
    assert (conversation.model, len(conversation.messages)) == ("m", 2)


def test_load_shows_what_was_said_and_save_keeps_it(server, converse):
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    server.answers["POST", "/api/show"] = {"messages": said}
    server.answers["POST", "/api/generate"] = {"done": True, "done_reason": "load"}
    server.answers["POST", "/api/create"] = [{"status": "success"}]
    printed, _ = converse("/load saved", "hi", "/save saved", "/save", "/save two words")
    assert "Loading model 'saved'\n>>> q\na\n" in printed
    assert "Created new model 'saved'\n" in printed
    assert printed.count("Usage:\n  /save <modelname>") == 2
    answer = {"role": "assistant", "content": "You said hi"}
    assert server.bodies("/api/create") == [
        {"model": "saved", "from": "saved", "messages": [*said, {"role": "user", "content": "hi"}, answer]}
    ]


def test_save_keeps_settings_and_leaves_the_models_own_messages_alone(server, converse):
    server.answers["POST", "/api/create"] = [{"status": "success"}]
    converse(
        "/set system S", "/set parameter stop <a> <b>", "/save x", embedded=[{"role": "user", "content": "q"}]
    )
    assert server.bodies("/api/create") == [
        {"model": "x", "from": "m", "system": "S", "parameters": {"stop": ["<a>", "<b>"]}}
    ]


def test_save_under_an_invalid_name(server, converse):
    server.answers["POST", "/api/create"] = (400, {"error": "invalid model name"})
    assert "error: The model name '../x' is invalid\n" in converse("/save ../x")[0]


def test_show(server, converse):
    server.answers["POST", "/api/show"] |= {"template": "{{ .Prompt }}", "parameters": "stop  x"}
    printed, _ = converse("/show info", "/show template", "/show license", "/show nonsense", "/show")
    assert "architecture        llama" in printed
    assert "{{ .Prompt }}\n" in printed
    assert "No license was specified for this model." in printed
    assert "Unknown command '/show nonsense'. Type /? for help\n" in printed
    assert HELP["show"] in printed
    printed, _ = converse("/set parameter seed 1", "/set parameter stop a b", "/show parameters")
    assert "Model defined parameters:\n  stop  x\n" in printed
    assert f'User defined parameters:\n  {"seed":<30} 1\n  {"stop":<30} "a"\n' in printed


def test_show_has_what_was_set(server, converse):
    server.answers["POST", "/api/show"] = lambda body: {"system": body.get("system")}
    assert "S\n" in converse("/set system S", "/show system")[0]
    assert "No system message was specified for this model." in converse("/show system")[0]


def test_list(server, converse):
    server.answers["GET", "/api/tags"] = {"models": []}
    assert converse("/list")[0].startswith("NAME    ID    SIZE    MODIFIED\n")


def test_help(converse):
    for line in ("/?", "/help", "/help nonsense"):
        assert converse(line)[0].startswith(HELP[""])
    assert converse("/help set")[0].startswith(HELP["set"])
    assert converse("/? /show")[0].startswith(HELP["show"])
    assert converse("/? shortcuts")[0].startswith(HELP["shortcuts"])
    assert converse("/set")[0].startswith(HELP["set"])


def test_unknown_commands(server, converse):
    assert converse("/frob x")[0] == "Unknown command '/frob'. Type /? for help\n\n"
    assert server.bodies("/api/chat") == []
