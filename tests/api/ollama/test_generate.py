"""POST /api/generate."""

from __future__ import annotations

import pytest

from puna.backends.base import ModelLoadError
from puna.daemon.busy import ServerBusy
from puna.engine.request import GenerationError
from puna.registry.sources.gemma import GEMMA_LAYERS
from puna.worker.call_client import WorkerDied
from tests.api.fake_runtime import Script

pytestmark = pytest.mark.native

COUNTS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)


def prompt_text(runtime) -> str:
    """The prompt of the latest generation."""
    return runtime.tokenizer.decode(runtime.requests[-1].prompt)


def test_streams_lines_and_counts_in_the_last(client):
    *deltas, final = client.lines("/api/generate", {"model": "m", "prompt": "hi"})
    assert [delta["response"] for delta in deltas] == ["Hel", "lo"]
    assert not any(delta["done"] or "done_reason" in delta or "total_duration" in delta for delta in deltas)
    assert all(delta["model"] == "m" and delta["created_at"].endswith("Z") for delta in deltas)
    assert (final["done"], final["done_reason"], final["response"]) == (True, "stop", "")
    assert all(isinstance(final[count], int) and final[count] > 0 for count in COUNTS)
    assert final["eval_count"] == 2


def test_not_streamed_is_one_object(client):
    response = client.post("/api/generate", {"model": "m", "prompt": "hi", "stream": False})
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    reply = response.json()
    assert (reply["response"], reply["done"], reply["done_reason"]) == ("Hello", True, "stop")
    assert all(isinstance(reply[count], int) for count in COUNTS)


def test_prompt_is_rendered_with_the_models_template(client, runtime):
    client.post("/api/generate", {"model": "m", "prompt": "hi"})
    assert prompt_text(runtime) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_system_of_the_request_goes_before_that_of_the_model(client, runtime, add_model):
    add_model("wise", system="Be wise.")
    client.post("/api/generate", {"model": "wise", "prompt": "hi"})
    assert "<|im_start|>system\nBe wise.<|im_end|>" in prompt_text(runtime)
    client.post("/api/generate", {"model": "wise", "prompt": "hi", "system": "Be brief."})
    assert "Be brief." in prompt_text(runtime)
    assert "Be wise." not in prompt_text(runtime)


def test_messages_of_the_model_come_first_unless_there_is_a_context(client, runtime, add_model):
    add_model(
        "told", messages=[{"role": "user", "content": "once"}, {"role": "assistant", "content": "told"}]
    )
    client.post("/api/generate", {"model": "told", "prompt": "hi"})
    assert prompt_text(runtime).startswith("<|im_start|>user\nonce<|im_end|>\n<|im_start|>assistant\ntold")
    client.post("/api/generate", {"model": "told", "prompt": "hi", "context": [65, 66]})
    assert "once" not in prompt_text(runtime)


def test_context_continues_the_conversation(client, runtime):
    first = client.post("/api/generate", {"model": "m", "prompt": "hi", "stream": False}).json()
    assert first["context"] == [*runtime.requests[-1].prompt, 0, 1]
    client.post("/api/generate", {"model": "m", "prompt": "more", "context": first["context"]})
    assert runtime.requests[-1].prompt[: len(first["context"])] == first["context"]
    assert prompt_text(runtime).endswith("<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("token", [-1, 10**6, 2**62])
def test_context_with_a_token_that_does_not_exist_is_400(client, token):
    response = client.post("/api/generate", {"model": "m", "prompt": "hi", "context": [token]})
    assert response.status_code == 400
    assert str(token) in response.json()["error"]


def test_raw_is_verbatim_and_gives_no_context(client, runtime):
    reply = client.post("/api/generate", {"model": "m", "prompt": "hi", "raw": True, "stream": False}).json()
    assert prompt_text(runtime) == "hi"
    assert "context" not in reply


@pytest.mark.parametrize("field", [{"system": "x"}, {"template": "x"}, {"context": [1]}])
def test_raw_with_what_it_leaves_out_is_400(client, field):
    response = client.post("/api/generate", {"model": "m", "prompt": "hi", "raw": True, **field})
    assert response.status_code == 400
    assert response.json()["error"] == "raw mode does not support template, system, or context"


def test_without_a_template_the_prompt_is_all_there_is(client, runtime, add_model):
    add_model("bare", "bare")
    client.post("/api/generate", {"model": "bare", "prompt": "hi", "system": "ignored"})
    assert prompt_text(runtime) == "hi"


def test_a_go_template_is_rendered(client, runtime, add_model):
    add_model("gemma", "bare", template=GEMMA_LAYERS["template"])
    client.post("/api/generate", {"model": "gemma", "prompt": "hi", "system": "Be brief."})
    assert prompt_text(runtime) == (
        "<start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n<start_of_turn>model\n"
    )


def test_template_of_the_request_renders_the_prompt(client, runtime):
    body = {"model": "m", "prompt": "hi", "system": "S", "template": "{{ .System }}: {{ .Prompt }}!"}
    client.post("/api/generate", body)
    assert prompt_text(runtime) == "S: hi!"
    response = client.post("/api/generate", {**body, "template": "{{ .Nonsense"})
    assert (response.status_code, response.json()["error"]) == (
        500,
        "line 1 of the chat template: unclosed action",
    )


def test_what_a_model_fills_in(client, runtime, add_model):
    add_model("go", template="{{ if .Suffix }}<{{ .Prompt }}|{{ .Suffix }}>{{ else }}{{ .Prompt }}{{ end }}")
    add_model("tokens", "filler")
    for model in ("go", "tokens"):
        client.post("/api/generate", {"model": model, "prompt": "a(", "suffix": ")b"})
        assert prompt_text(runtime) == "<a(|)b>"
        assert "insert" in client.post("/api/show", {"model": model}).json()["capabilities"]
    client.post("/v1/completions", {"model": "go", "prompt": "x", "suffix": "y"})
    assert prompt_text(runtime) == "<x|y>"
    response = client.post("/api/generate", {"model": "m", "prompt": "a", "suffix": "b"})
    assert (response.status_code, response.json()["error"]) == (
        400,
        "registry.ollama.ai/library/m:latest does not support insert",
    )


def test_debug_shows_the_prompt_and_generates_nothing(client, runtime):
    response = client.post("/api/generate", {"model": "m", "prompt": "hi", "_debug_render_only": True})
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    rendered = response.json()["_debug_info"]["rendered_template"]
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert not runtime.requests


@pytest.mark.parametrize("stream", [True, False])
def test_empty_prompt_loads(client, runtime, stream):
    reply = client.post("/api/generate", {"model": "m", "stream": stream})
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    created_at = reply.json().pop("created_at")
    assert reply.json() == {
        "model": "m",
        "created_at": created_at,
        "response": "",
        "done": True,
        "done_reason": "load",
    }
    assert "m:latest" in runtime.resident_models
    assert [model["name"] for model in client.get("/api/ps").json()["models"]] == ["m:latest"]


@pytest.mark.parametrize("zero", [0, 0.0, "0", "0s"])
def test_empty_prompt_and_no_keep_alive_unloads_and_never_loads(client, runtime, zero):
    client.post("/api/generate", {"model": "m"})
    for _ in range(2):
        reply = client.post("/api/generate", {"model": "M", "keep_alive": zero}).json()
        assert (reply["done"], reply["done_reason"]) == (True, "unload")
        assert client.get("/api/ps").json()["models"] == []
    assert runtime.num_loads == 1
    assert client.post("/api/generate", {"model": "none", "keep_alive": 0}).status_code == 404


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0.5, 0.5),
        (60, 60),
        (-1, float("inf")),
        ("5m", 300),
        ("1h30m", 5400),
        ("-1s", float("inf")),
    ],
)
def test_keep_alive_forms(client, runtime, value, seconds):
    client.post("/api/generate", {"model": "m", "prompt": "hi", "keep_alive": value})
    assert runtime.resident_models["m:latest"].keep_alive == seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("300", 'time: missing unit in duration "300"'),
        (True, "Unsupported type: 'bool'"),
        ([], "Unsupported type: 'array'"),
        ("soon", "invalid duration"),
    ],
)
def test_other_keep_alives_are_400_even_for_an_unknown_model(client, value, text):
    response = client.post("/api/generate", {"model": "none", "prompt": "hi", "keep_alive": value})
    assert response.status_code == 400
    assert text in response.json()["error"]


def test_model_is_echoed_as_requested(client):
    assert client.lines("/api/generate", {"model": "M", "prompt": "hi"})[-1]["model"] == "M"


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("", 404, "model '' not found"),
        ("None:X", 404, "model 'None:X' not found"),
        ("../../etc/passwd", 400, "invalid model name"),
        ("a/b/c/d:", 400, "invalid model name"),
        ("x@sha256:abc", 400, "invalid model name"),
        (":tag", 400, "invalid model name"),
        ("m:local:cloud", 400, 'use either :local or :cloud, not both: "m:local:cloud"'),
        ("m:cloud", 403, "ollama cloud is disabled: remote model is unavailable"),
    ],
)
def test_names_that_lead_nowhere(client, name, status, text):
    response = client.post("/api/generate", {"model": name, "prompt": "hi"})
    assert (response.status_code, response.json()) == (status, {"error": text})


def test_local_suffix_is_what_models_here_are_anyway(client):
    assert client.lines("/api/generate", {"model": "m:local", "prompt": "hi"})[-1]["done"]


def test_num_predict_1_ends_with_length(client):
    body = {"model": "m", "prompt": "hi", "stream": False, "options": {"num_predict": 1}}
    reply = client.post("/api/generate", body).json()
    assert (reply["done_reason"], reply["eval_count"], reply["response"]) == ("length", 1, "Hel")


def test_without_num_predict_a_reply_ends_after_ten_contexts(client, runtime):
    for options in ({"num_ctx": 100}, {"num_ctx": 100, "num_predict": 5000}):
        client.post("/api/generate", {"model": "m", "prompt": "hi", "options": options})
        assert runtime.requests[-1].max_tokens == 1000


def test_num_thread_limits_the_threads_of_the_request(client, runtime):
    for options, expected in (({"num_thread": 3}, 3), ({"num_thread": 0}, None), ({}, None)):
        client.post("/api/generate", {"model": "m", "prompt": "hi", "options": options})
        assert runtime.requests[-1].num_threads == expected


def test_logprobs_come_with_their_tokens_if_asked_for(client):
    lines = client.lines("/api/generate", {"model": "m", "prompt": "hi", "logprobs": True, "top_logprobs": 2})
    assert lines[0]["logprobs"] == [
        {
            "token": "Hel",
            "logprob": -0.5,
            "bytes": [72, 101, 108],
            "top_logprobs": [
                {"token": "other", "logprob": -1.0, "bytes": [111, 116, 104, 101, 114]},
                {"token": "other", "logprob": -2.0, "bytes": [111, 116, 104, 101, 114]},
            ],
        }
    ]
    body = {"model": "m", "prompt": "hi", "logprobs": True, "stream": False}
    whole = client.post("/api/generate", body).json()["logprobs"]
    assert [entry["token"] for entry in whole] == ["Hel", "lo"]
    assert not any("top_logprobs" in entry for entry in whole)
    plain = client.lines("/api/generate", {"model": "m", "prompt": "hi", "top_logprobs": 2})
    assert not any("logprobs" in line for line in plain)


@pytest.mark.parametrize("count", [-1, 21])
def test_top_logprobs_out_of_range_is_400_even_for_an_unknown_model(client, count):
    response = client.post("/api/generate", {"model": "none", "prompt": "hi", "top_logprobs": count})
    assert (response.status_code, response.json()["error"]) == (400, "top_logprobs must be between 0 and 20")


def test_suffix_and_images_need_models_that_can(client):
    response = client.post("/api/generate", {"model": "m", "prompt": "a", "suffix": "b", "images": ["aGk="]})
    assert response.status_code == 400
    name = "registry.ollama.ai/library/m:latest"
    assert response.json()["error"] == f"{name} does not support insert\n{name} does not support vision"


@pytest.mark.parametrize(
    ("wanted", "status", "text"),
    [
        ("xml", 500, 'invalid format: "xml"; expected "json" or a valid JSON Schema object'),
        (10**30, 500, "invalid format: 1e+30"),
    ],
)
def test_formats_are_refused_rather_than_ignored(client, wanted, status, text):
    response = client.post("/api/generate", {"model": "m", "prompt": "hi", "format": wanted})
    assert response.status_code == status
    assert text in response.json()["error"]


@pytest.mark.parametrize("wanted", [None, ""])
def test_no_format_is_free_text(client, wanted):
    assert client.lines("/api/generate", {"model": "m", "prompt": "hi", "format": wanted})[-1]["done"]


def test_embedding_model_does_not_generate(client, add_model):
    add_model("embedder", "embedder")
    response = client.post("/api/generate", {"model": "embedder", "prompt": "hi"})
    assert (response.status_code, response.json()["error"]) == (400, '"embedder" does not support generate')


@pytest.mark.parametrize(
    ("error", "status"),
    [(ModelLoadError("no such architecture"), 500), (ServerBusy(), 503), (WorkerDied("it stopped"), 500)],
)
def test_errors_before_the_first_object_have_their_status(client, runtime, error, status):
    runtime.script = Script(load_error=error)
    response = client.post("/api/generate", {"model": "m", "prompt": "hi"})
    assert (response.status_code, response.json()) == (status, {"error": str(error)})


def test_error_of_the_first_step_has_its_status_and_is_in_the_log(client, runtime, caplog):
    runtime.script = Script(pieces=[], error=GenerationError("it was too much"))
    response = client.post("/api/generate", {"model": "m", "prompt": "hi"})
    assert (response.status_code, response.json()) == (500, {"error": "it was too much"})
    assert "a request failed: it was too much" in caplog.text


def test_error_after_the_first_object_is_the_last_line(client, runtime):
    runtime.script = Script(error=WorkerDied("it stopped"))
    lines = client.lines("/api/generate", {"model": "m", "prompt": "hi"})
    assert [line.get("response") for line in lines] == ["Hel", "lo", None]
    assert lines[-1] == {"error": "it stopped"}
    response = client.post("/api/generate", {"model": "m", "prompt": "hi", "stream": False})
    assert (response.status_code, response.json()) == (500, {"error": "it stopped"})
    assert runtime.num_held == runtime.num_generating == 0


def test_long_prompt_loses_its_middle(client, runtime, add_model):
    add_model("small", "small")
    prompt = "".join(chr(97 + n % 26) for n in range(300))
    client.post(
        "/api/generate", {"model": "small", "prompt": prompt, "raw": True, "options": {"num_keep": 5}}
    )
    text = prompt_text(runtime)
    assert len(runtime.requests[-1].prompt) < 64
    assert text.startswith(prompt[:5])
    assert text.endswith(prompt[-20:])


@pytest.mark.parametrize("field", ["shift", "truncate"])
def test_long_prompt_that_may_not_be_cut_is_400(client, add_model, field):
    add_model("small", "small")
    for raw in (True, False):
        body = {"model": "small", "prompt": "a b c " * 100, "raw": raw, field: False}
        response = client.post("/api/generate", body)
        assert response.status_code == 400
        assert response.json()["error"] == (
            "the prompt is longer than the context length currently available to the model; shorten the "
            "prompt, adjust the context length in settings, or use a model with a longer context length"
        )


@pytest.mark.parametrize(
    ("option", "value"), [("repeat_penalty", 1e-38), ("frequency_penalty", -101), ("presence_penalty", 3e38)]
)
def test_option_beyond_which_logits_are_not_finite_is_400(client, runtime, option, value):
    body = {"model": "m", "prompt": "hi", "options": {option: value}}
    response = client.post("/api/generate", body)
    assert (response.status_code, option in response.json()["error"]) == (400, True)
    assert not runtime.requests
