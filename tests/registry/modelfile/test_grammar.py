"""What Modelfiles may look like, and what is said of those that may not."""

from __future__ import annotations

import pytest

from puna.registry import StoredMessage
from puna.registry.modelfile.errors import ModelfileError
from puna.registry.modelfile.grammar import Command, parse_commands
from puna.registry.modelfile.modelfile import parse_modelfile

pytestmark = pytest.mark.unit

MODELFILE = '''\
# a comment, and a line of blanks
  \t
from  llama3:8b \t
PARAMETER temperature 0.7
PARAMETER   stop <|end|>
Parameter stop "  two words "
TEMPLATE """{{ .System }}
  say "hi" # no comment
"""
SYSTEM "You are
a pirate."
LICENSE """
MIT
"""
LICENSE 'single quotes' are themselves
MESSAGE  user  hello,   you
MESSAGE assistant """ends with a quote""""
REQUIRES v0.14.0
PARAMETER mirostat 1
SYSTEM last one wins\
'''


def test_all_that_there_is():
    made = parse_modelfile(MODELFILE.encode())
    assert made.sources == ["llama3:8b"]
    assert made.parameters == {"temperature": 0.7, "stop": ["<|end|>", "  two words "]}
    assert made.template == '{{ .System }}\n  say "hi" # no comment\n'
    assert made.system == "last one wins"
    assert made.licenses == ["\nMIT\n", "'single quotes' are themselves"]
    assert made.messages == [
        StoredMessage("user", "hello,   you"),
        StoredMessage("assistant", 'ends with a quote"'),
    ]
    assert (made.requires, made.ignored) == ("0.14.0", ["mirostat"])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
def test_encodings_and_ends_of_lines(encoding, newline):
    text = f'FROM ä{newline}SYSTEM "a\tb{newline}c"{newline}'
    assert parse_commands(text.encode(encoding)) == [
        Command("from", "ä"),
        Command("system", f"a\tb{newline}c"),
    ]


def test_utf_16_of_either_byte_order():
    assert parse_commands(b"\xfe\xff" + "FROM x".encode("utf-16-be")) == [Command("from", "x")]


def test_what_cannot_be_printed_is_dropped_also_in_quotes():
    text = 'FROM m\u200b\nSYSTEM "a\u00a0b\u200d\x1b"'
    assert parse_commands(text.encode()) == [Command("from", "m"), Command("system", "ab")]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('""', ""),
        (" ", ""),
        ('"""\n"""', "\n"),
        ('""""""', ""),
        ('"a" b"', 'a" b'),
        ('"""a""" b\nc"""', 'a""" b\nc'),
        ('"""a"""  \n', "a"),
        ('a "b" c', 'a "b" c'),
        ("#x", "#x"),
    ],
)
def test_values(value, read):
    assert parse_commands(f"FROM m\nSYSTEM {value}\nPARSER x".encode())[1:] == [
        Command("system", read),
        Command("parser", "x"),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no FROM line"),
        ("SYSTEM x", "no FROM line"),
        (
            "FROM m\r\n\nFORM x",
            '(line 3): command must be one of "from", "license", "template", "system", "adapter", "draft", '
            '"renderer", "parser", "parameter", "message", or "requires"',
        ),
        (
            "FROM m\nMESSAGE tool x",
            '(line 2): message role must be one of "system", "user", or "assistant"',
        ),
        ("FROM", "unexpected EOF"),
        ("FROM m\nSYSTEM\n", "unexpected EOF"),
        ("FROM m\nPARAMETER stop", "unexpected EOF"),
        ('FROM m\nSYSTEM "x\nFROM y', "unexpected EOF"),
        ('FROM m\nSYSTEM """x"', "unexpected EOF"),
        ("FROM m\nPARAMETER nothing 1", "unknown parameter 'nothing'"),
        ("FROM m\nPARAMETER top_k 1.5", "invalid int value [1.5]"),
        ("FROM m\nPARAMETER top_p nan", "invalid float value [nan]"),
        ("FROM m\nPARAMETER top_p 1e999", "invalid float value [1e999]"),
        ("FROM m\nPARAMETER use_mmap maybe", "invalid bool value [maybe]"),
        ("FROM m\nREQUIRES 1.2.x", "requires must be a valid semver (e.g. 0.14.0)"),
        ("FROM m\nDRAFT m", "DRAFT must not be what FROM is: m"),
    ],
)
def test_errors(text, error):
    with pytest.raises(ModelfileError) as raised:
        parse_modelfile(text.encode())
    assert str(raised.value) == error


def test_a_long_file_takes_no_longer_for_each_of_its_lines():
    assert len(parse_commands(b"FROM m\n" + b'SYSTEM "a" b\nc"\n' * 20_000)) == 20_001
