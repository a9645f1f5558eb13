"""A Modelfile that was written is read as the same; and no text of a model becomes a command in it."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.registry import StoredMessage
from puna.registry.modelfile.grammar import ROLES, parse_commands, printable
from puna.registry.modelfile.modelfile import Modelfile, parse_modelfile
from puna.registry.modelfile.parameters import FLOATS, INTEGERS, written_float
from puna.registry.modelfile.writing import written

pytestmark = pytest.mark.unit

PIECES = ['"', '""', '"""', " ", "\t", "\n", "\r", "#", "FROM x", "ä", "\u200b", "\x1b", "｜"]
ANY_TEXT = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).map("".join)
TEXT = ANY_TEXT.map(printable).filter(lambda text: not re.search('"""[ \t]*[\r\n]', text))
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def modelfiles(text):
    some = text.filter(bool)
    values = {
        **dict.fromkeys(INTEGERS, st.integers(-(2**62), 2**62)),
        **dict.fromkeys(FLOATS, FLOAT32),
        "use_mmap": st.booleans(),
        "stop": st.lists(text, min_size=1, max_size=3),
    }
    return st.builds(
        Modelfile,
        sources=st.lists(some, min_size=1, max_size=3),
        adapters=st.lists(some, max_size=2),
        template=text,
        system=text,
        renderer=text,
        parser=text,
        requires=st.sampled_from(["", "1", "0.14.0", "1.2.3-rc.1+build"]),
        parameters=st.fixed_dictionaries({}, optional=values),
        licenses=st.lists(text, max_size=2),
        messages=st.lists(st.builds(StoredMessage, st.sampled_from(ROLES), text), max_size=3),
    )


@given(modelfiles(TEXT))
def test_what_was_written_is_read_as_the_same(made):
    assert parse_modelfile(written(made).encode()) == made


@given(modelfiles(ANY_TEXT))
def test_no_text_becomes_a_command(made):
    expected = [name.lower() for name in re.findall(r"^[A-Z]+(?= )", written(blanked(made)), re.MULTILINE)]
    assert [command.name for command in parse_commands(written(made).encode())] == expected


def blanked(made):
    """With an x in place of every text."""
    return Modelfile(
        sources=["x" for _ in made.sources],
        adapters=["x" for _ in made.adapters],
        **{name: "x" if getattr(made, name) else "" for name in ("template", "system", "renderer", "parser")},
        requires=made.requires,
        parameters=made.parameters | {"stop": ["x" for _ in made.parameters.get("stop", [])]},
        licenses=["x" for _ in made.licenses],
        messages=[StoredMessage(message.role, "x") for message in made.messages],
    )


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_all_their_digits(value):
    assert float(written_float(value)) == value
    assert math.copysign(1, value) < 0 or "-0" not in written_float(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.7, "0.7"), (1e-6, "0.000001"), (1.5e-5, "0.000015"), (1e-7, "1e-7"), (1e21, "1e+21")],
)
def test_floats_as_go_writes_them(value, text):
    assert written_float(value) == text
