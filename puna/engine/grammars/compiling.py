"""Grammars are compiled beside the steps, and kept for later requests."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from puna._native import CompiledGrammar, GrammarError, GrammarTokenizer
from puna.engine.grammars.limits import COMPILE_S, MAX_COMPILED, PARSER_LIMITS, STACK_BYTES
from puna.engine.grammars.vocabulary import BYTES_PER_TOKEN, GrammarTokens, grammar_tokenizer

Compiled = CompiledGrammar | GrammarError
_Key = tuple["ModelGrammars", str]
_CallSoon = Callable[[Callable[[], None]], None]
_Prepared = Callable[[_CallSoon, "ModelGrammars", GrammarTokenizer | GrammarError], None]
_Work = queue.SimpleQueue[Callable[[], None]]
_NUM_THREADS = 2  # so that one grammar that takes long does not hold up all others
_NICE = 5
"""Of the thread that prepares vocabularies, as systems count it. It has a second or two of work, while those
that compute wait for each other all the time, and so for the one from which it takes its core."""


class ModelGrammars:
    """The grammars of one model. prepare() is for any thread, the rest for the engine's."""

    def __init__(self, tokens: GrammarTokens, count: Callable[[int], None]) -> None:
        """count: is told how many bytes the prepared vocabulary takes, from then until the model sleeps."""
        self.end_tokens = tokens.end_of_generation
        self.tokenizer: GrammarTokenizer | None = None
        """None until the first grammar comes, and when the model sleeps."""
        self._tokens, self._count = tokens, count
        self._compiled: OrderedDict[str, CompiledGrammar] = OrderedDict()

    def find(self, text: str) -> CompiledGrammar | None:
        """One that was compiled before."""
        if (compiled := self._compiled.get(text)) is not None:
            self._compiled.move_to_end(text)
        return compiled

    def keep(self, text: str, compiled: CompiledGrammar) -> None:
        """For later requests, in place of what was used longest ago."""
        if self.tokenizer is None:
            return  # the model went to sleep meanwhile
        self._compiled[text] = compiled
        while len(self._compiled) > MAX_COMPILED:
            self._compiled.popitem(last=False)

    def prepare(self) -> GrammarTokenizer | GrammarError:
        """The vocabulary."""
        try:
            return grammar_tokenizer(self._tokens)
        except Exception as error:  # whatever it is, there are no grammars
            return GrammarError(f"the model's vocabulary cannot be prepared: {error}")

    def use(self, tokenizer: GrammarTokenizer) -> None:
        """That prepare() gave."""
        self.tokenizer = tokenizer
        self._count(BYTES_PER_TOKEN * tokenizer.num_tokens)

    def forget(self) -> None:
        """Gives back what only later requests would need."""
        self._compiled.clear()
        self.tokenizer = None


def compile_grammar(tokenizer: GrammarTokenizer, text: str) -> Compiled:
    """For any thread."""
    try:
        return CompiledGrammar(tokenizer, text, **PARSER_LIMITS)
    except GrammarError as error:
        return error
    except Exception as error:  # is its own
        return GrammarError(f"the grammar cannot be used: {error!r}"[:500])


@dataclass
class _Waiting:
    """A request whose grammar is being compiled."""

    since_s: float | None
    """None: for the vocabulary, which counts for nothing."""
    done: Callable[[Compiled], None]
    is_wanted: Callable[[], bool]
    """For any thread."""


class GrammarCompiler:
    """For the engine's thread. Compiles in threads of its own, which have a deep stack."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._call_soon: _CallSoon | None = None
        self._work: _Work = queue.SimpleQueue()
        self._preparations: _Work = queue.SimpleQueue()
        self._has_threads = False
        self._pending: dict[_Key, list[_Waiting]] = {}
        self._preparing: set[ModelGrammars] = set()

    def use_event_loop(self, call_soon: _CallSoon) -> None:
        """From now on the engine's thread does not wait for grammars. call_soon: has it call a function."""
        self._call_soon = call_soon

    def compile(
        self,
        grammars: ModelGrammars,
        text: str,
        done: Callable[[Compiled], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Calls `done` in the engine's thread: at once if it can, and within COMPILE_S once the model's
        vocabulary is prepared.

        is_wanted: whether its request still waits, for any thread. Raises RuntimeError if there can be none.
        """
        if (compiled := grammars.find(text)) is not None:
            done(compiled)
            return
        self._start_threads()
        if (call_soon := self._call_soon) is None:
            done(self._wait_for(grammars, text))
            return
        key = (grammars, text)
        is_new = key not in self._pending
        since_s = None if grammars.tokenizer is None else self._clock()
        self._pending.setdefault(key, []).append(_Waiting(since_s, done, is_wanted))
        if is_new:
            self._begin(call_soon, key)

    def tend(self) -> float | None:
        """Gives up what takes too long. To be called often; returns the seconds until that may be so, None if
        nothing is waited for.
        """
        now_s = self._clock()
        for waiting in self._pending.values():
            late = [one for one in waiting if one.since_s is not None and now_s >= one.since_s + COMPILE_S]
            del waiting[: len(late)]
            for one in late:
                one.done(_too_late())
        since_s = [one.since_s for waiting in self._pending.values() for one in waiting]
        return min((s + COMPILE_S - now_s for s in since_s if s is not None), default=None)

    def close(self) -> None:
        """Nobody waits any more."""
        self._pending.clear()
        if self._has_threads:
            for work in (self._preparations, *[self._work] * _NUM_THREADS):
                work.put(_end_thread)
        self._has_threads = False

    def _wait_for(self, grammars: ModelGrammars, text: str) -> Compiled:
        answer: queue.SimpleQueue[GrammarTokenizer | Compiled] = queue.SimpleQueue()
        if (tokenizer := grammars.tokenizer) is None:
            self._preparations.put(lambda: answer.put(grammars.prepare()))
            prepared = answer.get()
            if not isinstance(prepared, GrammarTokenizer):
                return prepared
            tokenizer = prepared
            grammars.use(tokenizer)
        self._work.put(lambda: answer.put(compile_grammar(tokenizer, text)))
        try:
            compiled = answer.get(timeout=COMPILE_S)
        except queue.Empty:
            return _too_late()
        assert not isinstance(compiled, GrammarTokenizer)
        if isinstance(compiled, CompiledGrammar):
            grammars.keep(text, compiled)
        return compiled

    def _begin(self, call_soon: _CallSoon, key: _Key) -> None:
        """With the vocabulary, unless it is there."""
        grammars, text = key
        tokenizer, waiting = grammars.tokenizer, self._pending[key]
        if tokenizer is None:
            if grammars not in self._preparing:
                self._preparing.add(grammars)
                self._preparations.put(partial(_prepare, call_soon, grammars, self._prepared))
            return

        def work() -> None:
            compiled = compile_grammar(tokenizer, text) if _is_wanted(waiting) else None
            call_soon(lambda: self._end(call_soon, key, compiled))

        self._work.put(work)

    def _start_threads(self) -> None:
        """As daemons: the end of the process does not wait for them."""
        if self._has_threads:
            return
        usual = threading.stack_size(STACK_BYTES)
        try:
            for _ in range(_NUM_THREADS):
                threading.Thread(target=_run, args=(self._work,), name="grammars", daemon=True).start()
        finally:
            threading.stack_size(usual)
        work = self._preparations
        threading.Thread(target=_run_nicely, args=(work,), name="vocabularies", daemon=True).start()
        self._has_threads = True

    def _prepared(
        self, call_soon: _CallSoon, grammars: ModelGrammars, tokenizer: GrammarTokenizer | GrammarError
    ) -> None:
        """For all that wait for it. If nobody does any more, the model may be asleep, and keeps nothing."""
        self._preparing.discard(grammars)
        pending = {key: waiting for key, waiting in self._pending.items() if key[0] is grammars}
        if isinstance(tokenizer, GrammarError) or not any(map(_is_wanted, pending.values())):
            for key in pending:
                self._end(call_soon, key, tokenizer if isinstance(tokenizer, GrammarError) else None)
            return
        grammars.use(tokenizer)
        now_s = self._clock()
        for key, waiting in pending.items():
            for one in waiting:
                one.since_s = now_s
            self._begin(call_soon, key)

    def _end(self, call_soon: _CallSoon, key: _Key, compiled: Compiled | None) -> None:
        """compiled: None: nobody wanted it when its turn came."""
        if (waiting := self._pending.get(key)) is None:
            return
        if compiled is None and _is_wanted(waiting):
            self._begin(call_soon, key)  # who does has come since
            return
        del self._pending[key]
        if isinstance(compiled, CompiledGrammar):
            grammars, text = key
            grammars.keep(text, compiled)
        if compiled is not None:
            for one in waiting:
                one.done(compiled)
        waiting.clear()  # the thread may have it before it for long


def _prepare(call_soon: _CallSoon, grammars: ModelGrammars, prepared: _Prepared) -> None:
    tokenizer = grammars.prepare()
    call_soon(lambda: prepared(call_soon, grammars, tokenizer))


def _is_wanted(waiting: list[_Waiting]) -> bool:
    return any(one.is_wanted() for one in list(waiting))


def _run_nicely(work: _Work) -> None:
    """Linux counts it for each thread, of which nobody can take it back."""
    if sys.platform == "linux":
        with suppress(OSError):  # a system may forbid it
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    _run(work)


def _run(work: _Work) -> None:
    while (task := work.get()) is not _end_thread:
        task()
        del task  # what it holds may be wanted back before the next one comes


def _end_thread() -> None:
    """In place of work."""


def _too_late() -> GrammarError:
    return GrammarError(f"the grammar was not compiled within {COMPILE_S:g} s")
