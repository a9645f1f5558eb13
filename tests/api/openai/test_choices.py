"""Several prompts, several replies to each, and the best of them."""

from __future__ import annotations

from collections import defaultdict

import pytest

from puna.daemon.busy import ServerBusy
from puna.engine.request import GenerationError
from tests.api.fake_runtime import Script

pytestmark = pytest.mark.native

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def _replies_differ_by_seed(runtime):
    runtime.script.by_seed = {
        7: Script(pieces=["sev", "en"], logprob=-2.0, cached_tokens=3),
        8: Script(pieces=["eight"], logprob=-0.25, cached_tokens=9),
        9: Script(pieces=["ni", "ne", "!"], logprob=-1.0, cached_tokens=9),
    }


def texts(reply) -> list[str]:
    choices = reply["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in choices]


def streamed(events) -> dict[int, list]:
    """The choices of a stream's chunks by their index."""
    choices = defaultdict(list)
    for event in events:
        for choice in event["choices"]:
            choices[choice["index"]].append(choice)
    return choices


def test_n_replies_of_a_chat_have_seeds_in_a_row_and_share_the_prompt(client, runtime):
    reply = client.post(CHAT, {"model": "m", "messages": HI, "n": 3, "seed": 7}).json()
    assert texts(reply) == ["seven", "eight", "nine!"]
    assert [job.sampling.seed for job in runtime.requests] == [7, 8, 9]
    assert len({tuple(job.prompt) for job in runtime.requests}) == 1
    num_prompt = len(runtime.requests[0].prompt)
    assert reply["usage"] == {
        "prompt_tokens": num_prompt,
        "completion_tokens": 6,
        "total_tokens": num_prompt + 6,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


def test_without_a_seed_none_is_given(client, runtime):
    client.post(CHAT, {"model": "m", "messages": HI, "n": 2})
    assert [job.sampling.seed for job in runtime.requests] == [None, None]


def test_n_replies_of_a_chat_stream(client):
    body = {"model": "m", "messages": HI, "n": 3, "seed": 7, "stream": True}
    *chunks, usage, done = client.events(CHAT, {**body, "stream_options": {"include_usage": True}})
    assert done == "[DONE]"
    choices = streamed(chunks)
    assert sorted(choices) == [0, 1, 2]
    for index, text in enumerate(["seven", "eight", "nine!"]):
        assert "".join(choice["delta"].get("content", "") for choice in choices[index]) == text
        assert [choice["delta"].get("role") for choice in choices[index]] == [
            "assistant",
            *[None] * (len(choices[index]) - 1),
        ]
        assert [choice["finish_reason"] for choice in choices[index]].count("stop") == 1
    order = [chunk["choices"][0]["index"] for chunk in chunks]
    assert order != sorted(order), "the replies come one after the other"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 6
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


def test_thoughts_of_replies_do_not_mix(client, runtime, add_model):
    add_model("thinker", "thinker")
    runtime.script.by_seed = {
        7: Script(pieces=["<think>a", "b</think>", "c"]),
        8: Script(pieces=["<thi", "nk>", "d</think>e"]),
    }
    body = {"model": "thinker", "messages": HI, "n": 2, "seed": 7}
    messages = [choice["message"] for choice in client.post(CHAT, body).json()["choices"]]
    assert [(message["reasoning"], message["content"]) for message in messages] == [("ab", "c"), ("d", "e")]


def test_prompts_times_n(client, runtime):
    body = {"model": "m", "prompt": ["one", "two"], "n": 2, "seed": 7}
    reply = client.post(TEXT, body).json()
    assert texts(reply) == ["seven", "eight", "seven", "eight"]
    first, second = (job.prompt for job in runtime.requests[::2])
    assert [job.prompt for job in runtime.requests] == [first, first, second, second]
    assert first != second
    assert reply["usage"]["prompt_tokens"] == len(first) + len(second)
    assert reply["usage"]["completion_tokens"] == 6
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 6}


def test_prompts_stream(client):
    body = {"model": "m", "prompt": ["one", "two"], "n": 2, "seed": 7, "stream": True}
    choices = streamed(client.events(TEXT, body)[:-1])
    whole = ["".join(choice["text"] for choice in choices[index]) for index in sorted(choices)]
    assert whole == ["seven", "eight", "seven", "eight"]
    assert all(choices[index][-1]["finish_reason"] == "stop" for index in range(4))


@pytest.mark.parametrize("prompt", [[5, 6, 7], [[5, 6, 7]]])
def test_tokens_are_taken_as_they_are(client, runtime, prompt):
    assert client.post(TEXT, {"model": "m", "prompt": prompt}).status_code == 200
    assert runtime.requests[-1].prompt == [5, 6, 7]


def test_texts_and_tokens_side_by_side(client, runtime):
    assert texts(client.post(TEXT, {"model": "m", "prompt": ["hi", [5, 6]], "seed": 8}).json()) == [
        "eight",
        "eight",
    ]
    assert runtime.requests[1].prompt == [5, 6]


def test_too_many_tokens_lose_their_middle_like_texts(client, runtime, add_model):
    add_model("small", "small")
    client.post(TEXT, {"model": "small", "prompt": list(range(100))})
    prompt = runtime.requests[-1].prompt
    assert len(prompt) < 64
    assert (prompt[:4], prompt[-1]) == ([0, 1, 2, 3], 99)


def test_prompt_in_a_list_of_one_is_that_prompt(client, runtime):
    client.post(TEXT, {"model": "m", "prompt": ["hi"]})
    client.post(TEXT, {"model": "m", "prompt": "hi"})
    assert runtime.requests[0].prompt == runtime.requests[1].prompt
    assert texts(client.post(TEXT, {"model": "m", "prompt": [""]}).json()) == [""]
    assert len(runtime.requests) == 2, "an empty prompt only loads"


@pytest.mark.parametrize(("n", "best"), [(1, ["eight"]), (2, ["eight", "nine!"])])
def test_best_are_those_of_the_highest_logprob_per_token(client, n, best):
    body = {"model": "m", "prompt": "hi", "seed": 7, "n": n, "best_of": 3}
    reply = client.post(TEXT, body).json()
    assert texts(reply) == best
    assert reply["usage"]["completion_tokens"] == 6
    assert "logprobs" not in reply["choices"][0]


def test_best_of_each_prompt(client, runtime):
    body = {"model": "m", "prompt": ["a", "b"], "seed": 7, "best_of": 2}
    reply = client.post(TEXT, body).json()
    assert texts(reply) == ["eight", "eight"]
    assert reply["usage"]["prompt_tokens"] == len(runtime.requests[0].prompt) + len(
        runtime.requests[2].prompt
    )


def test_reply_that_says_nothing_is_not_the_best(client, runtime):
    runtime.script.by_seed[8] = Script(pieces=[])
    body = {"model": "m", "prompt": "hi", "seed": 7, "best_of": 2}
    assert texts(client.post(TEXT, body).json()) == ["seven"]


def test_best_of_n_is_all_of_them_and_can_be_streamed(client):
    body = {"model": "m", "prompt": "hi", "seed": 7, "n": 2, "best_of": 2}
    assert texts(client.post(TEXT, body).json()) == ["seven", "eight"]
    assert sorted(streamed(client.events(TEXT, {**body, "stream": True})[:-1])) == [0, 1]


def test_logprobs_of_a_completion(client, runtime):
    runtime.script.by_seed = {7: Script(pieces=["Hé", "llo"]), 8: Script(pieces=["x"])}
    body = {"model": "m", "prompt": "hi", "seed": 7, "n": 2, "logprobs": 1}
    first, second = (choice["logprobs"] for choice in client.post(TEXT, body).json()["choices"])
    assert first == {
        "tokens": ["Hé", "llo"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"Hé": -0.5, "other": -1.0}, {"llo": -0.5, "other": -1.0}],
        "text_offset": [0, 2],
    }
    assert second["tokens"] == ["x"]
    chunks = streamed(client.events(TEXT, {**body, "stream": True})[:-1])[0]
    assert [chunk["logprobs"]["text_offset"] for chunk in chunks if "logprobs" in chunk] == [[0], [2]]


def test_logprobs_of_0_are_those_of_the_tokens_alone(client):
    reply = client.post(TEXT, {"model": "m", "prompt": "hi", "seed": 8, "logprobs": 0}).json()
    assert reply["choices"][0]["logprobs"]["top_logprobs"] == [{"eight": -0.25}]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ({"n": 0}, "n must be between 1 and 128"),
        ({"n": 129}, "n must be between 1 and 128"),
        ({"n": "two"}, "$.n"),
        ({"best_of": 129}, "best_of must be between 1 and 128"),
        ({"n": 3, "best_of": 2}, "best_of (2) must not be less than n (3)"),
        ({"best_of": 2, "stream": True}, "best_of cannot be streamed"),
        ({"prompt": ["x"] * 17, "n": 64}, "17 prompts with 64 replies each are more than 1024"),
        ({"prompt": []}, "prompt must not be empty"),
        ({"prompt": ["a", ""]}, "prompt must not be empty"),
        ({"prompt": [[1], []]}, "prompt must not be empty"),
        ({"prompt": 5}, "prompt must be a string, a list of tokens, or a list of these"),
        ({"prompt": [True]}, "prompt must be a string, a list of tokens, or a list of these"),
        ({"prompt": [[1], 2]}, "prompt must be a string, a list of tokens, or a list of these"),
        ({"prompt": [1, 10**6]}, "prompt has token 1000000, which the model does not have"),
        ({"prompt": [-1]}, "prompt has token -1, which the model does not have"),
        ({"logprobs": 21}, "top_logprobs must be between 0 and 20"),
        ({"logprobs": -1}, "top_logprobs must be between 0 and 20"),
        ({"n": 2, "session": "talk"}, "a session goes on with one reply"),
        ({"prompt": ["a", "b"], "session": "talk"}, "a session goes on with one reply"),
    ],
)
def test_what_makes_no_sense_is_400(client, runtime, field, text):
    response = client.post(TEXT, {"model": "m", "prompt": "hi", **field})
    assert response.status_code == 400
    assert text in response.json()["error"]["message"]
    assert not runtime.requests


@pytest.mark.parametrize("n", [0, 129])
def test_number_of_chats_is_bounded_too(client, n):
    response = client.post(CHAT, {"model": "m", "messages": HI, "n": n})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "n must be between 1 and 128"


@pytest.mark.parametrize("stream", [True, False])
def test_error_of_one_reply_ends_all(client, runtime, stream):
    runtime.script.by_seed[8] = Script(pieces=["x"], error=GenerationError("out of luck"))
    runtime.script.by_seed[9] = Script(pieces=[], hangs=True)
    body = {"model": "m", "messages": HI, "n": 3, "seed": 7, "stream": stream}
    if stream:
        events = client.events(CHAT, body)
        assert events[-1]["error"]["message"] == "out of luck"
        assert "[DONE]" not in events
    else:
        response = client.post(CHAT, body)
        assert response.status_code == 500
        assert response.json()["error"]["message"] == "out of luck"
    assert runtime.num_generating == runtime.num_held == 0


def test_replies_that_find_no_place_in_the_queue_are_503(client, runtime):
    runtime.script.by_seed = {7: Script(hangs=True, pieces=[]), 8: Script(pieces=[], error=ServerBusy())}
    body = {"model": "m", "messages": HI, "n": 2, "seed": 7, "stream": True}
    assert client.post(CHAT, body).status_code == 503
    assert runtime.num_generating == 0
