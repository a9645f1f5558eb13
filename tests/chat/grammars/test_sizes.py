"""How much text grammars may ask for at once."""

from __future__ import annotations

import pytest

from puna.chat.errors import PromptError
from puna.chat.grammars.sizes import MAX_SIZE, check_regex, check_terminals

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\w{1,64}@){0,1000}[a-z]{2,63}",
        r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
        r"(((a*)*)+)?{3}",
        "a" * MAX_SIZE,
        f"[(]{{{MAX_SIZE}}}",
        r"\({100}\p{Greek}{100}[]a{1000}]{10}[[{9999}",
        r"{10}{,10}{} a{ 2 , }" + ")" * 99,
    ],
)
def test_what_asks_for_little(pattern: str):
    check_regex(pattern)
    check_terminals(f"start: A\nA: /{pattern}/")


@pytest.mark.parametrize(
    "pattern",
    [
        f"a{{{MAX_SIZE + 1}}}",
        "(a{200}b?){100}",
        "((a|b{150}){150}",
        r"(?P<x>[\]a]{9}[b-d]{9}\){9}){1000,}",
        "(" * 200 + "a" + "{9})" * 200,
        "(a{99999999999999999999999}){0}",
    ],
)
def test_what_asks_for_much(pattern: str):
    with pytest.raises(PromptError, match="asks for more than"):
        check_regex(pattern)


@pytest.mark.parametrize(
    "grammar",
    [
        "start: A ~ 3\nA[lazy]: B{100}\nB.2: (C | /a/){99}\nC: /x/~9..12",
        'start: A\n// A: /a{99999}/\nA: B{100} -> name\nB: "' + "b" * 300 + '"',
    ],
)
def test_terminals_are_made_of_terminals(grammar: str):
    with pytest.raises(PromptError, match=r"grammar's A asks"):
        check_terminals(grammar)
    check_terminals(grammar.replace("A", "a"))  # rules are followed step by step
