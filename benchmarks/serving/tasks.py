"""What the speculation scenario asks: answers that repeat their prompt, and free text.

SmolLM2-135M is a small model: it quotes and edits reliably only behind examples, so that is how it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """A raw prompt; `repeated`: what the answer begins with, where it is known."""

    title: str
    prompt: str
    num_tokens: int
    repeated: str = ""
    options: dict[str, float] = field(default_factory=dict)


_EXAMPLES = [
    "The baker opened the shop at six and swept the floor before the first customers came in.",
    "Rain fell on the harbour all night, and in the morning the boats were full of water.",
]
_SURVEYOR = (
    "In the spring of 1911 a surveyor named Ilse Brandt walked along the northern shore with two mules,"
    " a brass level and a notebook bound in green cloth. She measured the height of every cliff between"
    " the old lighthouse and the ferry landing, slept in barns, and paid for her meals with drawings of"
    " the farmers' children. When the autumn storms came she had filled eleven notebooks, none of which"
    " were ever printed."
)
_ARCHIVE = (
    "The archive of the salt works fills two rooms on the upper floor of the customs house. Shelf by "
    "shelf it lists every cart that left the pans between 1783 and 1851, with the name of the driver, "
    "the weight of the load and the colour of the seal. Most pages are dry and quiet, but here and "
    "there a clerk has drawn a ship in the margin, or noted that the river froze, that a bridge was "
    "closed, that somebody's daughter was married on a Sunday in the rain. Nobody has counted the "
    "carts. If someone did, they would know how much of the old town was built on salt, and how much "
    "only on talk of it."
)
_LOG = """\
2024-03-03 07:12 INFO started, 4 workers
2024-03-03 07:15 INFO loaded 812 records from the north store
2024-03-03 08:02 WARN record 417 has no date, skipped
2024-03-03 09:44 INFO wrote 811 records
2024-03-04 06:58 INFO started, 4 workers
2024-03-04 07:03 ERROR the south store does not answer, trying again in 30 seconds
"""
_PARTS = [
    *(
        (101, "hinge", "A4", 250),
        (102, "bolt", "A4", 15),
        (103, "hasp", "B1", 340),
        (104, "latch", "C7", 410),
    ),
    *((105, "rivet", "C7", 5), (106, "hook", "D2", 75), (107, "screw", "D2", 10)),
]


def _quote(text: str, examples: list[str], num_given: int) -> tuple[str, str]:
    """(prompt, what is still to be quoted); the first words of the copy are given."""
    words = text.split(" ")
    shown = "".join(f"Text: {example}\nCopy: {example}\n\n" for example in examples)
    given = "".join(f" {word}" for word in words[:num_given])
    return f"{shown}Text: {text}\nCopy:{given}", "".join(f" {word}" for word in words[num_given:])


def _quote_log() -> tuple[str, str]:
    first, *others = _LOG.splitlines()
    prompt = f"A log, and the same log quoted in the reply.\n\nLog:\n{_LOG}\nReply:\n> {first}\n> "
    return prompt, "\n> ".join(others)


def _edit_code() -> tuple[str, str]:
    before = _inserts("parts")
    first, second, *others = _inserts("stock")
    prompt = "\n".join(
        [
            "Before the edit, the table is called parts:",
            *before,
            "",
            "After the edit, the table is called stock:",
            first,
            second,
            "",
        ]
    )
    return prompt, "\n".join(others)


def _inserts(table: str) -> list[str]:
    return [f"INSERT INTO {table} (id, name, shelf, price) VALUES {part};" for part in _PARTS]


def _repetitive(title: str, prompt_and_answer: tuple[str, str], num_tokens: int) -> Task:
    return Task(title, prompt_and_answer[0], num_tokens, prompt_and_answer[1])


def _free(title: str, prompt: str, seed: int) -> Task:
    return Task(title, prompt, 128, options={"temperature": 1.0, "seed": seed})


REPETITIVE = [
    _repetitive("quote a paragraph", _quote(_SURVEYOR, _EXAMPLES, 0), 80),
    _repetitive("quote a longer one", _quote(_ARCHIVE, [_EXAMPLES[0], _SURVEYOR], 7), 110),
    _repetitive("quote a log", _quote_log(), 110),
    _repetitive("edit code", _edit_code(), 150),
]
FREE = [
    _free("a story", "The old ferryman had never told anyone why he", 0),
    _free("an essay", "There are three reasons why cities grow along rivers. First,", 1),
    _free("a letter", "Dear Margaret,\n\nthe house is almost finished, and yesterday we", 2),
]
