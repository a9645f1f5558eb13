"""What both faces take beyond their protocols, and the options that concern the context."""

from __future__ import annotations

import pytest

from puna.daemon.busy import ServerBusy
from tests.api.fake_runtime import Script

pytestmark = pytest.mark.native

MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
FACES = [
    ("/api/chat", MESSAGES),
    ("/api/generate", {"prompt": "hi"}),
    ("/v1/chat/completions", MESSAGES),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi"}),
]
OLLAMA = FACES[:2]
on_all_faces = pytest.mark.parametrize(("path", "body"), FACES)


def error_text(response) -> str:
    error = response.json()["error"]
    return error if isinstance(error, str) else error["message"]


@on_all_faces
def test_extensions_reach_the_job(client, runtime, path, body):
    wanted = {
        "cache_prompt": False,
        "cache_salt": "tenant",
        "cache_to_disk": False,
        "priority": -10,
        "session": "talk",
    }
    assert client.post(path, {"model": "m", **body, **wanted}).status_code == 200
    assert {name: getattr(runtime.requests[-1], name) for name in wanted} == wanted


@on_all_faces
def test_without_extensions_prompts_are_cached_and_shared(client, runtime, path, body):
    assert client.post(path, {"model": "m", **body}).status_code == 200
    job = runtime.requests[-1]
    assert (job.cache_prompt, job.cache_salt, job.cache_to_disk) == (True, "", True)
    assert (job.priority, job.session) == (0, None)
    assert job.shift
    assert job.num_draft is None


@on_all_faces
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ({"priority": 11}, "priority must be between -10 and 10"),
        ({"priority": -11}, "priority must be between -10 and 10"),
        ({"priority": 1.5}, "$.priority"),
        ({"cache_salt": 7}, "$.cache_salt"),
        ({"cache_salt": "x" * 257}, "cache_salt may have 256 characters at most"),
        ({"cache_prompt": "yes"}, "$.cache_prompt"),
        ({"session": 7}, "$.session"),
    ],
)
def test_what_makes_no_sense_is_400(client, runtime, path, body, field, text):
    response = client.post(path, {"model": "m", **body, **field})
    assert response.status_code == 400
    assert text in error_text(response)
    assert not runtime.requests


@pytest.mark.parametrize(("path", "body"), OLLAMA)
@pytest.mark.parametrize("shift", [True, False])
def test_shift_is_the_requests(client, runtime, path, body, shift):
    client.post(path, {"model": "m", **body, "shift": shift})
    assert runtime.requests[-1].shift is shift


@pytest.mark.parametrize(("num_keep", "kept"), [(None, 4), (0, 0), (9, 9), (63, 63), (1000, 63)])
def test_num_keep_is_what_stays_and_leaves_room_for_a_token(client, runtime, add_model, num_keep, kept):
    add_model("small", "small")
    client.post("/api/generate", {"model": "small", "prompt": "hi", "options": {"num_keep": num_keep}})
    assert runtime.requests[-1].num_keep == kept


def test_negative_num_keep_is_the_whole_prompt(client, runtime):
    client.post("/api/generate", {"model": "m", "prompt": "hi", "options": {"num_keep": -1}})
    assert runtime.requests[-1].num_keep == len(runtime.requests[-1].prompt) > 4


def test_reply_may_be_ten_contexts_long(client, runtime):
    client.post("/api/generate", {"model": "m", "prompt": "hi", "options": {"num_ctx": 64}})
    assert runtime.requests[-1].max_tokens == 640


@pytest.mark.parametrize("num_draft", [0, 4])
def test_number_of_drafts(client, runtime, add_model, num_draft):
    options = {"draft_num_predict": num_draft}
    client.post("/api/generate", {"model": "m", "prompt": "hi", "options": options})
    assert runtime.requests[-1].num_draft == num_draft
    add_model("drafty", params={"draft_num_predict": 7})
    client.post("/api/generate", {"model": "drafty", "prompt": "hi"})
    assert runtime.requests[-1].num_draft == 7


def test_a_draft_model_is_held_with_the_model(client, runtime, add_model):
    add_model("quick")
    client.post("/api/generate", {"model": "m", "prompt": "hi", "options": {"draft_model": "Quick"}})
    assert "quick" in runtime.resident_models["m:latest"].draft_model.lower()
    client.post("/api/generate", {"model": "m", "prompt": "hi"})
    assert runtime.resident_models["m:latest"].draft_model is None


def test_a_draft_model_that_is_not_there_is_404(client):
    reply = client.post("/api/generate", {"model": "m", "prompt": "hi", "options": {"draft_model": "nope"}})
    assert (reply.status_code, reply.json()) == (404, {"error": "model 'nope' not found"})


@on_all_faces
@pytest.mark.parametrize("stream", [True, False])
def test_full_queue_is_503_in_ollamas_words(client, runtime, path, body, stream):
    runtime.script = Script(pieces=[], error=ServerBusy())
    response = client.post(path, {"model": "m", **body, "stream": stream})
    assert response.status_code == 503
    assert error_text(response) == "server busy, please try again.  maximum pending requests exceeded"


def test_prompt_tokens_include_cached_ones_in_both_faces(client, runtime):
    runtime.script = Script(cached_tokens=5)
    reply = client.post("/api/generate", {"model": "m", "prompt": "hi", "stream": False}).json()
    num_prompt = len(runtime.requests[-1].prompt)
    assert reply["prompt_eval_count"] == num_prompt > 5
    assert reply["prompt_eval_cached_count"] == 5
    usage = client.post("/v1/completions", {"model": "m", "prompt": "hi"}).json()["usage"]
    assert usage["prompt_tokens"] == num_prompt
    assert usage["prompt_tokens_details"] == {"cached_tokens": 5}
