"""What does not fit is left out from the front or the middle, by these rules and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.chat.conversation.truncation import fit_messages, fit_prompt, kept_tokens
from puna.chat.errors import TemplateError
from puna.chat.messages import Message

pytestmark = pytest.mark.unit


def conversation(roles):
    """One message per letter; its content is its position."""
    names = {"s": "system", "u": "user", "a": "assistant"}
    return [Message(names[role], str(position)) for position, role in enumerate(roles)]


def kept(roles, limit, cost=len):
    return [int(message.content) for message in fit_messages(conversation(roles), cost, limit)]


def test_everything_stays_if_it_fits():
    assert kept("suau", 4) == [0, 1, 2, 3]
    assert kept("", 0) == []


def test_as_few_as_possible_go_from_the_front():
    assert kept("uauau", 3) == [2, 3, 4]


def test_system_messages_stay_in_their_order():
    assert kept("suasuau", 4) == [0, 3, 5, 6]


def test_last_message_and_systems_stay_even_if_they_do_not_fit():
    assert kept("suasu", 0) == [0, 3, 4]
    assert kept("us", 0) == [1]


def test_cuts_that_the_template_refuses_are_passed_over():
    def starts_with_user(messages):
        if messages[0].role != "user":
            raise TemplateError("must begin with user")
        return len(messages)

    assert kept("uauau", 4, starts_with_user) == [2, 3, 4]
    assert kept("uauau", 2, starts_with_user) == [4]


def test_conversation_that_cannot_be_rendered_is_an_error():
    def refuse(_):
        raise TemplateError("no")

    with pytest.raises(TemplateError):
        fit_messages(conversation("ua"), refuse, 1)


@given(st.text("sua", min_size=1, max_size=12), st.lists(st.integers(0, 9), min_size=12, max_size=12))
def test_first_cut_that_fits_is_the_one(roles, costs):
    def cost(messages):
        return sum(costs[int(message.content)] for message in messages)

    limit = sum(costs) // 2
    last = len(roles) - 1
    cuts = [[i for i in range(last + 1) if i >= cut or roles[i] == "s"] for cut in range(last + 1)]
    expected = next((cut for cut in cuts if sum(costs[i] for i in cut) <= limit), cuts[last])
    assert kept(roles, limit, cost) == expected


def test_long_conversations_are_rendered_a_few_times_only():
    rendered = []

    def cost(messages):
        rendered.append(len(messages))
        return len(messages)

    assert len(fit_messages(conversation("ua" * 500), cost, 100)) == 100
    assert len(rendered) < 15


@pytest.mark.parametrize(
    ("length", "limit", "num_keep", "add_bos", "front", "tail"),
    [
        (9, 10, 4, False, 9, 0),  # leaves room for one token: unchanged
        (10, 10, 4, False, 4, 3),  # keep 4, length 10 - (10-4)/2 = 7
        (100, 10, 4, True, 5, 3),  # keep 5, length 10 - 5//2 = 8
        (100, 10, 0, False, 0, 5),
        (100, 10, -1, False, 9, 0),  # all that fit: 9; length 10 - max(0, 1) = 9
        (100, 10, 50, True, 9, 0),
        (100, 10, 8, False, 8, 1),  # length 10 - max(1, 1) = 9
        (2000, 1024, 4, True, 5, 510),  # length 1024 - 509 = 515
    ],
)
def test_middle_of_a_long_prompt_goes(length, limit, num_keep, add_bos, front, tail):
    tokens = list(range(length))
    assert fit_prompt(tokens, limit, num_keep, add_bos) == tokens[:front] + tokens[length - tail :]


@pytest.mark.parametrize(
    ("num_keep", "num_prompt", "add_bos", "kept"),
    [(4, 20, False, 4), (4, 20, True, 5), (0, 20, False, 0), (-1, 9, False, 9), (-1, 9, True, 10)],
)
def test_tokens_that_stay(num_keep, num_prompt, add_bos, kept):
    assert kept_tokens(num_keep, num_prompt, 16, add_bos) == kept


@pytest.mark.parametrize("num_keep", [15, 16, 1000, -1])
def test_at_least_one_token_may_always_go(num_keep):
    assert kept_tokens(num_keep, 20, 16, True) == 15
