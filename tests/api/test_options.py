"""Options: the request's over the model's over the defaults."""

from __future__ import annotations

import pytest

from puna.api.errors import ApiError
from puna.api.options import Options, parse_options
from puna.engine.request import SamplingParams

pytestmark = pytest.mark.native


def test_defaults_are_ollamas():
    assert Options().sampling(num_logprobs=-1) == SamplingParams(
        temperature=0.8,
        top_k=40,
        top_p=0.9,
        min_p=0.0,
        typical_p=1.0,
        repeat_last_n=64,
        repeat_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        seed=None,
        num_logprobs=-1,
    )


def test_request_goes_before_model_and_null_is_absent():
    model = {"temperature": 0.1, "top_k": 5, "stop": ["a", "b"]}
    options = parse_options(model, {"temperature": 1, "top_k": None, "stop": ["c"]})
    assert (options.temperature, options.top_k, options.stop) == (1.0, 5, ["c"])


def test_every_sampling_option_arrives():
    values = {
        "seed": 42,
        "top_k": 1,
        "top_p": 0.2,
        "min_p": 0.3,
        "typical_p": 0.4,
        "repeat_last_n": -1,
        "temperature": 0,
        "repeat_penalty": 1.5,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.5,
    }
    assert parse_options({}, values).sampling(num_logprobs=3) == SamplingParams(**values, num_logprobs=3)


def test_num_thread_is_zero_unless_asked_for() -> None:
    assert Options().num_thread == 0
    assert parse_options({"num_thread": 3}, {}).num_thread == 3


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("draft_num_predict", "x", 'option "draft_num_predict" must be of type integer'),
        ("num_ctx", "big", 'option "num_ctx" must be of type integer'),
        ("seed", True, 'option "seed" must be of type integer'),
        ("num_batch", [], 'option "num_batch" must be of type integer'),
        ("temperature", "hot", 'option "temperature" must be of type float32'),
        ("draft_model", 7, 'option "draft_model" must be of type string'),
        ("stop", 5, 'option "stop" must be of type array'),
        ("stop", ["a", 1], 'option "stop" must be of an array of strings'),
        ("use_mmap", 1, 'option "use_mmap" must be of type boolean'),
        ("top_k", 10**30, 'option "top_k" is out of range'),
        ("num_predict", -1e300, 'option "num_predict" is out of range'),
        ("top_p", 1e300, 'option "top_p" is out of range'),
        ("top_p", 10**400, 'option "top_p" is out of range'),
    ],
)
def test_wrong_values_are_500_and_named(name, value, text):
    with pytest.raises(ApiError) as raised:
        parse_options({}, {name: value})
    assert (raised.value.status, raised.value.text) == (500, text)


@pytest.mark.parametrize(
    ("name", "value"), [("repeat_penalty", -1), ("repeat_last_n", -2), ("draft_num_predict", -1)]
)
def test_values_that_mean_nothing_are_400(name, value):
    with pytest.raises(ApiError, match=name) as raised:
        parse_options({}, {name: value})
    assert raised.value.status == 400


def test_a_penalty_of_zero_is_none_and_a_stop_string_alone_a_list():
    """As some clients send them."""
    model = {"repeat_penalty": 1.3, "stop": ["a", "b"]}
    options = parse_options(model, {"repeat_penalty": 0, "stop": "END"})
    assert (options.repeat_penalty, options.stop) == (1.0, ["END"])


def test_fractions_of_integer_options_are_cut_off():
    options = parse_options({}, {"top_k": 7.9, "num_predict": -1.5})
    assert (options.top_k, options.num_predict) == (7, -1)


def test_unknown_options_are_ignored_and_logged(caplog):
    assert parse_options({}, {"no_such_option": "x", "use_mmap": False, "num_batch": 1}) == Options()
    assert "no_such_option" in caplog.text


def test_num_ctx_has_a_minimum():
    assert parse_options({}, {"num_ctx": 0}).num_ctx == 4
    assert parse_options({}, {}).num_ctx is None


@pytest.mark.parametrize(("seed", "choice", "used"), [(-1, 3, None), (7, 3, 10), (2**32 - 1, 1, 0)])
def test_seed_of_a_choice(seed, choice, used):
    assert parse_options({}, {"seed": seed}).sampling(num_logprobs=-1, choice=choice).seed == used


@pytest.mark.parametrize(("seed", "used"), [(-1, None), (0, 0), (42, 42), (-2, 2**32 - 2), (2**40, 0)])
def test_seed(seed, used):
    assert parse_options({}, {"seed": seed}).sampling(num_logprobs=-1).seed == used


@pytest.mark.parametrize(("num_predict", "most"), [(-1, 1000), (-2, 1000), (0, 0), (7, 7), (1001, 1000)])
def test_most_tokens(num_predict, most):
    assert parse_options({}, {"num_predict": num_predict}).max_tokens(100) == most
