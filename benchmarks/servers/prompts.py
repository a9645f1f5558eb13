"""Prompts of an exact number of tokens, no two of which begin alike: no cache can serve them."""

from __future__ import annotations

import random
from pathlib import Path

from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer

_SUBJECTS = "the herd", "an old man", "my sister", "the teacher", "a small bird", "the river", "our neighbour"
_VERBS = "watched", "forgot", "crossed", "described", "followed", "painted", "remembered", "left", "measured"
_OBJECTS = "the bridge", "a letter", "the white salt flat", "his stone house", "three boats", "the long road"
_ENDS = "in winter", "before school", "without a sound", "for ten years", "near the lake", "after the storm"


class Prompts:
    """An endless supply for one model."""

    def __init__(self, gguf: Path, seed: int = 0) -> None:
        with GgufFile(gguf) as file:
            self._tokenizer = load_tokenizer(file.metadata)
        self._random = random.Random(seed)
        self._firsts: set[int] = set()

    def take(self, num_tokens: int) -> str:
        """A text that both servers take for num_tokens tokens, BOS included if they put it in front."""
        encode, first = self._tokenizer.encode, int(self._tokenizer.add_bos)
        while True:
            tokens = encode(
                " ".join([self._first_word(), *(self._sentence() for _ in range(num_tokens // 4))])
            )
            prompt = self._tokenizer.decode(tokens[:num_tokens], skip_special=True)
            if tokens[first] not in self._firsts and encode(prompt) == tokens[:num_tokens]:
                self._firsts.add(tokens[first])
                return prompt

    def _sentence(self) -> str:
        """Prose: a model that is given a heap of words repeats one of them for ever."""
        parts = (self._random.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS, _ENDS))
        return f"{' '.join(parts)}.".capitalize()

    def _first_word(self) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=4))
