"""Grammars are compiled beside the steps, and kept for later requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from llguidance import LLMatcher, LLTokenizer

from puna.engine.grammars.limits import COMPILE_S, MAX_COMPILED, parser_limits
from puna.engine.grammars.reply_grammar import CompiledGrammar, GrammarError, first_line
from puna.engine.grammars.vocabulary import GrammarTokens, grammar_tokenizer

Compiled = CompiledGrammar | GrammarError
_NUM_THREADS = 2  # so that one grammar that takes long does not hold up all others


class ModelGrammars:
    """The grammars of one model. compile() is for any thread, the rest for the engine's."""

    def __init__(self, tokens: GrammarTokens) -> None:
        self.end_tokens = tokens.end_of_generation
        self._tokens = tokens
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._compiled: OrderedDict[str, CompiledGrammar] = OrderedDict()

    def find(self, text: str) -> CompiledGrammar | None:
        """One that was compiled before."""
        compiled = self._compiled.pop(text, None)
        if compiled is None or compiled.has_failed:
            return None
        self._compiled[text] = compiled
        return compiled

    def keep(self, text: str, compiled: CompiledGrammar) -> None:
        """For later requests, in place of what was used longest ago."""
        self._compiled[text] = compiled
        while len(self._compiled) > MAX_COMPILED:
            self._compiled.popitem(last=False)

    def compile(self, text: str) -> Compiled:
        """The vocabulary is prepared for the first one."""
        try:
            tokenizer = self._prepared()
        except ValueError as error:
            return GrammarError(str(error))
        matcher = LLMatcher(tokenizer, text, log_level=0, limits=parser_limits())
        if matcher.is_error():
            return GrammarError(f"the grammar cannot be used: {first_line(matcher.get_error())}")
        return CompiledGrammar(matcher, tokenizer.vocab_size)

    def _prepared(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = grammar_tokenizer(self._tokens)
            return self._tokenizer


@dataclass(eq=False, slots=True)
class _Pending:
    """A grammar that is being compiled, and who waits for it, from when on."""

    waiting: list[tuple[float, Callable[[Compiled], None]]] = field(default_factory=list)


class GrammarCompiler:
    """For the engine's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._call_soon: Callable[[Callable[[], None]], None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._pending: dict[tuple[ModelGrammars, str], _Pending] = {}

    def use_threads(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        """From now on grammars are compiled in other threads. call_soon: has the engine's thread call a
        function.
        """
        self._call_soon = call_soon
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="grammars")

    def compile(self, grammars: ModelGrammars, text: str, done: Callable[[Compiled], None]) -> None:
        """Calls `done` in the engine's thread: at once if it can, and in any case within COMPILE_S."""
        if (compiled := grammars.find(text)) is not None:
            done(compiled)
        elif self._threads is None or self._call_soon is None:
            done(_kept(grammars, text, grammars.compile(text)))
        else:
            key = (grammars, text)
            if key not in self._pending:
                self._pending[key] = _Pending()
                self._threads.submit(self._run, key, self._call_soon)
            self._pending[key].waiting.append((self._clock(), done))

    def tend(self) -> float | None:
        """Gives up what takes too long. To be called often; returns the seconds until that may be so, None if
        nothing is waited for.
        """
        now_s = self._clock()
        for pending in self._pending.values():
            late = [done for since_s, done in pending.waiting if now_s >= since_s + COMPILE_S]
            del pending.waiting[: len(late)]
            for done in late:
                done(GrammarError(f"the grammar was not compiled within {COMPILE_S:g} s"))
        return min(
            (s + COMPILE_S - now_s for pending in self._pending.values() for s, _ in pending.waiting),
            default=None,
        )

    def close(self) -> None:
        """Nobody waits any more."""
        self._pending.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, key: tuple[ModelGrammars, str], call_soon: Callable[[Callable[[], None]], None]) -> None:
        grammars, text = key
        try:
            compiled = grammars.compile(text)
        except Exception as error:  # is its own
            compiled = GrammarError(f"the grammar cannot be used: {error!r}"[:500])
        call_soon(lambda: self._end(key, compiled))

    def _end(self, key: tuple[ModelGrammars, str], compiled: Compiled) -> None:
        if (pending := self._pending.pop(key, None)) is None:
            return
        _kept(*key, compiled)
        for _, done in pending.waiting:
            done(compiled)


def _kept(grammars: ModelGrammars, text: str, compiled: Compiled) -> Compiled:
    if isinstance(compiled, CompiledGrammar):
        grammars.keep(text, compiled)
    return compiled
