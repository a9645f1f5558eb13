"""Grammars are compiled beside the steps, and kept for later requests."""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from llguidance import LLMatcher, LLTokenizer

from puna.engine.grammars.limits import COMPILE_S, MAX_COMPILED, STACK_BYTES, parser_limits
from puna.engine.grammars.reply_grammar import CompiledGrammar, GrammarError, first_line
from puna.engine.grammars.vocabulary import GrammarTokens, grammar_tokenizer

Compiled = CompiledGrammar | GrammarError
_Key = tuple["ModelGrammars", str]
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

    def forget(self) -> None:
        """Gives back what only later requests would need."""
        self._compiled.clear()
        with self._lock:
            self._tokenizer = None

    def _prepared(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = grammar_tokenizer(self._tokens)
            return self._tokenizer


class _Waiting(NamedTuple):
    """A request whose grammar is being compiled."""

    since_s: float
    done: Callable[[Compiled], None]
    is_wanted: Callable[[], bool]
    """For any thread."""


class GrammarCompiler:
    """For the engine's thread. Compiles in threads of its own, which have a deep stack."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._call_soon: Callable[[Callable[[], None]], None] | None = None
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._num_threads = 0
        self._pending: dict[_Key, list[_Waiting]] = {}

    def use_event_loop(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        """From now on the engine's thread does not wait for grammars. call_soon: has it call a function."""
        self._call_soon = call_soon

    def compile(
        self,
        grammars: ModelGrammars,
        text: str,
        done: Callable[[Compiled], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Calls `done` in the engine's thread: at once if it can, and in any case within COMPILE_S.

        is_wanted: whether its request still waits, for any thread. Raises RuntimeError if there can be none.
        """
        if (compiled := grammars.find(text)) is not None:
            done(compiled)
            return
        self._start_threads()
        if (call_soon := self._call_soon) is None:
            done(_kept(grammars, text, self._wait_for(grammars, text)))
            return
        key = (grammars, text)
        if key not in self._pending:
            self._pending[key] = []
            self._submit(call_soon, key)
        self._pending[key].append(_Waiting(self._clock(), done, is_wanted))

    def tend(self) -> float | None:
        """Gives up what takes too long. To be called often; returns the seconds until that may be so, None if
        nothing is waited for.
        """
        now_s = self._clock()
        for waiting in self._pending.values():
            late = [one for one in waiting if now_s >= one.since_s + COMPILE_S]
            del waiting[: len(late)]
            for one in late:
                one.done(_too_late())
        since_s = (one.since_s for waiting in self._pending.values() for one in waiting)
        return min((s + COMPILE_S - now_s for s in since_s), default=None)

    def close(self) -> None:
        """Nobody waits any more."""
        self._pending.clear()
        for _ in range(self._num_threads):
            self._work.put(_end_thread)
        self._num_threads = 0

    def _wait_for(self, grammars: ModelGrammars, text: str) -> Compiled:
        answer: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
        self._work.put(lambda: answer.put(_compiled(grammars, text)))
        try:
            return answer.get(timeout=COMPILE_S)
        except queue.Empty:
            return _too_late()

    def _submit(self, call_soon: Callable[[Callable[[], None]], None], key: _Key) -> None:
        waiting = self._pending[key]

        def work() -> None:
            is_wanted = any(one.is_wanted() for one in list(waiting))
            compiled = _compiled(*key) if is_wanted else None
            call_soon(lambda: self._end(call_soon, key, compiled))

        self._work.put(work)

    def _start_threads(self) -> None:
        if self._num_threads == _NUM_THREADS:
            return
        usual = threading.stack_size(STACK_BYTES)
        try:
            while (
                self._num_threads < _NUM_THREADS
            ):  # as daemons: the end of the process does not wait for them
                threading.Thread(target=_run, args=(self._work,), name="grammars", daemon=True).start()
                self._num_threads += 1
        finally:
            threading.stack_size(usual)

    def _end(
        self, call_soon: Callable[[Callable[[], None]], None], key: _Key, compiled: Compiled | None
    ) -> None:
        """compiled: None: nobody wanted it when its turn came."""
        if (waiting := self._pending.get(key)) is None:
            return
        if compiled is None and any(one.is_wanted() for one in waiting):
            self._submit(call_soon, key)  # who does has come since
            return
        del self._pending[key]
        if compiled is not None:
            _kept(*key, compiled)
            for one in waiting:
                one.done(compiled)
        waiting.clear()  # the thread may have it before it for long


def _run(work: queue.SimpleQueue[Callable[[], None]]) -> None:
    while (task := work.get()) is not _end_thread:
        task()


def _end_thread() -> None:
    """In place of work."""


def _compiled(grammars: ModelGrammars, text: str) -> Compiled:
    try:
        return grammars.compile(text)
    except BaseException as error:  # is its own; llguidance's panics are no Exception
        return GrammarError(f"the grammar cannot be used: {error!r}"[:500])


def _too_late() -> GrammarError:
    return GrammarError(f"the grammar was not compiled within {COMPILE_S:g} s")


def _kept(grammars: ModelGrammars, text: str, compiled: Compiled) -> Compiled:
    if isinstance(compiled, CompiledGrammar):
        grammars.keep(text, compiled)
    return compiled
