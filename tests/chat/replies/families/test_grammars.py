"""What a family's grammar lets through is what its parser reads: a call that does not parse cannot be
generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Piece
from puna.chat.replies.tagged import Reading
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer
from tests.chat.replies.families.examples import TESTED
from tests.chat.replies.families.tools import TOOLS, check_calls
from tests.chat.replies.sampling import Vocabulary, byte_vocabulary, draw, grammar_of, vocabulary_of

pytestmark = pytest.mark.unit

WITH_GRAMMAR = [name for name, family in TESTED.items() if family.grammar and name != "plain"]


def drawn(
    family: Family, task: ReplyTask, vocabulary: Vocabulary, num_seeds: int
) -> Iterator[tuple[str, Piece]]:
    """Replies and what they say."""
    grammar = grammar_of(family, task, vocabulary)
    closing = [tag for tag in (*family.tags, *(task.thinking or ())) if re.search("(?i)/|end|escape", tag)]
    for seed in range(num_seeds):
        if (reply := draw(grammar, vocabulary, seed, length=100, tags=closing)) is not None:
            reading = Reading(tools=task.tools, thinking=task.thinking, starts_thinking=task.starts_thinking)
            parser = family.new_parser(reading)
            yield reply, parser.add(reply) + parser.flush()


def check(family: Family, task: ReplyTask, vocabulary: Vocabulary, num_seeds: int) -> None:
    """All are calls of the tools, or text."""
    replies = list(drawn(family, task, vocabulary, num_seeds))
    assert len(replies) >= num_seeds // 2
    for reply, piece in replies:
        check_calls(piece.calls)
        assert not any(tag in piece.content for tag in vocabulary.control), reply
        if task.must_call:
            assert piece.calls, reply
            assert not piece.content.strip(), reply
        elif not piece.calls and task.thinking is None and family.thinking is not None:
            assert untagged(family, piece.content) == untagged(family, reply)


def untagged(family: Family, text: str) -> str:
    return re.sub("|".join(map(re.escape, family.tags)), "", text)


@pytest.mark.parametrize("name", WITH_GRAMMAR)
@pytest.mark.parametrize("controls", [False, True], ids=["text", "control"])
@pytest.mark.parametrize("thinks", [False, True], ids=["", "thinking"])
def test_replies_drawn_byte_by_byte(name: str, controls: bool, thinks: bool) -> None:
    family = TESTED[name]
    thinking = family.thinking if thinks else None
    tags = list(dict.fromkeys([*family.tags, *(thinking or ())]))
    vocabulary = byte_vocabulary(control=tags) if controls else byte_vocabulary(words=tags)
    check(family, ReplyTask(tools=TOOLS, must_call=True, thinking=thinking), vocabulary, 6)
    check(family, ReplyTask(tools=TOOLS, thinking=thinking, starts_thinking=thinks), vocabulary, 6)


@pytest.mark.parametrize("name", WITH_GRAMMAR)
def test_replies_drawn_from_a_real_vocabulary(name: str, smollm2: Vocabulary) -> None:
    check(TESTED[name], ReplyTask(tools=TOOLS, must_call=True), smollm2, 4)
    check(TESTED[name], ReplyTask(tools=TOOLS), smollm2, 4)


@pytest.fixture(scope="module")
def smollm2(smollm2_path) -> Vocabulary:
    with GgufFile(smollm2_path) as file:
        return vocabulary_of(load_tokenizer(file.metadata))
