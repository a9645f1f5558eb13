"""How long do prompts take to become tokens, in every family of vocabularies? `python -m
benchmarks.parts.tokenizer_families gemma3.gguf`

The file has a SentencePiece vocabulary; those of the other families are made of the same tokens, so that
their sizes are those of the largest in use. Texts are 400,000 characters long: prose is some 100,000 tokens;
the others are the worst that clients could send. Times are the best of three, of one thread.
"""

from __future__ import annotations

import argparse
import base64
import random
import string
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from puna.gguf import GgufFile
from puna.tokenizer import Tokenizer, build_vocabulary

LENGTH = 400_000
SPACE = "▁"
NORMAL = 1

Metadata = dict[str, Any]


def read_vocabulary(path: Path) -> Metadata:
    with closing(GgufFile(path)) as file:
        return {key: value for key, value in file.metadata.items() if key.startswith("tokenizer.ggml.")}


def as_pairs(metadata: Metadata) -> Metadata:
    """As Gemma 4's: each token merges from all pairs that it can be made of, the likeliest first."""
    texts, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    rank = {text: -float(scores[token]) for token, text in enumerate(texts)}
    merges = [
        (rank[text], f"{text[:cut]} {text[cut:]}")
        for token, text in enumerate(texts)
        if metadata["tokenizer.ggml.token_type"][token] == NORMAL and " " not in text
        for cut in range(1, len(text))
        if text[:cut] in rank and text[cut:] in rank
    ]
    return metadata | {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.merges": [merge for _, merge in sorted(merges)],
    }


def as_unigram(metadata: Metadata) -> Metadata:
    ranks = np.arange(len(metadata["tokenizer.ggml.tokens"]), dtype=np.float32)
    scores = -np.log(ranks + 20)
    return metadata | {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": True,
    }


def as_word_pieces(metadata: Metadata) -> Metadata:
    return metadata | {"tokenizer.ggml.model": "bert", "tokenizer.ggml.seperator_token_id": 1}


def texts() -> dict[str, str]:
    dice = random.Random(1)
    prose = "".join(path.read_text() for path in sorted(Path("docs").glob("*.md")))
    ideographs = "".join(chr(dice.randrange(0x4E00, 0x9000)) for _ in range(LENGTH))
    emoji = "".join(chr(dice.randrange(0x1F300, 0x1F600)) for _ in range(LENGTH))
    whole = {
        "prose": prose,
        "one letter": "a",
        "letters": "".join(dice.choices(string.ascii_lowercase, k=LENGTH)),
        "base64": base64.b64encode(dice.randbytes(LENGTH)).decode(),
        "spaces": " ",
        "newlines": "\n",
        "digits": "1",
        "marks": "!?",
        "ideographs": ideographs,
        "emoji": emoji,
        "accents": "e\u0301",
    }
    return {name: (text * (LENGTH // len(text) + 1))[:LENGTH] for name, text in whole.items()}


def best_ms(do: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        do()
        best = min(best, time.perf_counter() - start)
    return best * 1000


def row(name: str, metadata: Metadata, given: Mapping[str, str]) -> str:
    blob = build_vocabulary(metadata)
    tokenizer = Tokenizer.from_blob(blob)
    cells = [f"{len(metadata['tokenizer.ggml.tokens']):,}", f"{len(blob) / (1 << 20):.1f}"]
    cells.append(f"{best_ms(lambda: build_vocabulary(metadata)):.0f}")
    for text in given.values():
        encoded = tokenizer.encode(text)
        ms = best_ms(lambda text=text: tokenizer.encode(text))  # type: ignore[misc]
        cells.append(f"{ms / len(encoded) * 10_000:.1f}" if text is given["prose"] else f"{ms:.0f}")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sentencepiece", type=Path, help="a GGUF file with a SentencePiece vocabulary")
    parser.add_argument("others", type=Path, nargs="*", help="files with any vocabulary")
    arguments = parser.parse_args()
    given = texts()
    print("| | tokens | MiB | build, ms | prose, ms each 10,000 tokens |", " | ".join([*given][1:]), "|")
    print("|---" * (4 + len(given)) + "|")
    pieces = read_vocabulary(arguments.sentencepiece)
    print(row("SentencePiece", pieces, given))
    print(row("Gemma 4's pairs", as_pairs(pieces), given))
    print(row("unigram", as_unigram(pieces), given))
    print(row("WordPiece", as_word_pieces(pieces), given))
    for path in arguments.others:
        print(row(path.stem, read_vocabulary(path), given))


if __name__ == "__main__":
    main()
