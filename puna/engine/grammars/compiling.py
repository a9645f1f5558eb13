"""Grammars are compiled beside the steps, and kept for later requests."""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from llguidance import LLMatcher, LLTokenizer

from puna.engine.grammars.limits import COMPILE_S, MAX_COMPILED, STACK_BYTES, parser_limits
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
    """For the engine's thread. Compiles in threads of its own, which have a deep stack."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._call_soon: Callable[[Callable[[], None]], None] | None = None
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._has_threads = False
        self._pending: dict[tuple[ModelGrammars, str], _Pending] = {}

    def use_event_loop(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        """From now on the engine's thread does not wait for grammars. call_soon: has it call a function."""
        self._call_soon = call_soon

    def compile(self, grammars: ModelGrammars, text: str, done: Callable[[Compiled], None]) -> None:
        """Calls `done` in the engine's thread: at once if it can, and in any case within COMPILE_S."""
        if (compiled := grammars.find(text)) is not None:
            done(compiled)
            return
        if (call_soon := self._call_soon) is None:
            answer: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
            self._submit(lambda: answer.put(_compiled(grammars, text)))
            done(_kept(grammars, text, answer.get()))
            return
        key = (grammars, text)
        if key not in self._pending:
            self._pending[key] = _Pending()
            self._submit(lambda: self._tell(call_soon, key, _compiled(grammars, text)))
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
        for _ in range(_NUM_THREADS if self._has_threads else 0):
            self._work.put(_end_thread)
        self._has_threads = False

    def _submit(self, work: Callable[[], None]) -> None:
        self._work.put(work)
        if self._has_threads:
            return
        self._has_threads = True
        usual = threading.stack_size(STACK_BYTES)
        try:
            for _ in range(_NUM_THREADS):  # as daemons: the end of the process does not wait for them
                threading.Thread(target=_run, args=(self._work,), name="grammars", daemon=True).start()
        finally:
            threading.stack_size(usual)

    def _tell(
        self,
        call_soon: Callable[[Callable[[], None]], None],
        key: tuple[ModelGrammars, str],
        compiled: Compiled,
    ) -> None:
        call_soon(lambda: self._end(key, compiled))

    def _end(self, key: tuple[ModelGrammars, str], compiled: Compiled) -> None:
        if (pending := self._pending.pop(key, None)) is None:
            return
        _kept(*key, compiled)
        for _, done in pending.waiting:
            done(compiled)


def _run(work: queue.SimpleQueue[Callable[[], None]]) -> None:
    while (task := work.get()) is not _end_thread:
        task()


def _end_thread() -> None:
    """In place of work."""


def _compiled(grammars: ModelGrammars, text: str) -> Compiled:
    try:
        return grammars.compile(text)
    except Exception as error:  # is its own
        return GrammarError(f"the grammar cannot be used: {error!r}"[:500])


def _kept(grammars: ModelGrammars, text: str, compiled: Compiled) -> Compiled:
    if isinstance(compiled, CompiledGrammar):
        grammars.keep(text, compiled)
    return compiled
