"""A model's vocabulary as llguidance wants it."""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Protocol

from puna._native import GrammarTokenizer, Llguidance, NativeError, Vocabulary, WordCutter
from puna.engine.grammars.slices import SLICES


class GrammarTokens(Protocol):
    """What grammars need to know of a vocabulary: puna.tokenizer has it."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def words(self) -> WordCutter | None:
        """How text is cut; None: the vocabulary does not want it cut."""

    @property
    def end_of_generation(self) -> frozenset[int]:
        """Tokens that end a reply."""


BYTES_PER_TOKEN = 650
"""Of memory, once prepared: 612 with SmolLM2's 49,152 tokens, 647 with Gemma's 262,144."""


def grammar_tokenizer(tokens: GrammarTokens) -> GrammarTokenizer:
    """Takes up to two seconds, without the interpreter's lock, and BYTES_PER_TOKEN. Raises NativeError for a
    vocabulary in which no reply can end, and where there is no llguidance().
    """
    if isinstance(library := llguidance(), NativeError):
        raise library
    return GrammarTokenizer(library, tokens.vocabulary, tokens.words, SLICES)


@cache
def llguidance() -> Llguidance | NativeError:
    """The shared object of its Python package, of which only the C interface is used: what is called through
    Python holds the interpreter's lock.

    To be called before the process is caged, which then cannot read it. An error if it is not there, or of
    another version than is known here.
    """
    package = find_spec("llguidance")
    module = PathFinder.find_spec("_lib", package.submodule_search_locations if package else [])
    if module is None or module.origin is None:
        return NativeError("the package llguidance is not installed, or has no shared object")
    try:
        return Llguidance(module.origin)
    except NativeError as error:
        return error
