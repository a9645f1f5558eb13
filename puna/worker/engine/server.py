"""The worker's side: one engine, one channel to the daemon."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

import msgspec

from puna.engine import EngineCore, StepOutput
from puna.kv.pressure import MemoryPressure
from puna.worker.calls import Asked, CallServer, ProtocolError
from puna.worker.engine.answers import Answers
from puna.worker.engine.loader import Loader
from puna.worker.engine.messages import (
    Cancel,
    EndLease,
    EraseModel,
    GetOffers,
    GetStats,
    GetTrace,
    GiveUp,
    Hold,
    Lease,
    Leased,
    ListSessions,
    Load,
    LoadAdapter,
    LoadSession,
    Outputs,
    Pause,
    RemoveSession,
    SavePrefixes,
    SaveSession,
    SetLimits,
    SetVocabulary,
    Sleep,
    Submit,
    TrimKv,
    Unload,
    UnloadAdapter,
    Wake,
)
from puna.worker.engine.offload_threads import OffloadThreads
from puna.worker.engine.pressure_relief import PressureRelief
from puna.worker.engine.watchdog import Watchdog, look_at

log = logging.getLogger(__name__)

TRIM_S = 1.0
"""After so long without work, spare KV memory goes back to the system."""
TEND_S = 0.01
"""So often, between steps, cached KV and the system's memory are looked after."""
SHORT_S = 0.05
"""So often the daemon is told what memory is lacking that other workers may have."""
STALL_S = 0.002
"""So long to wait where all requests wait for memory or a disk."""


class _Do(msgspec.Struct):
    """Something to do for the engine's thread."""

    function: Callable[[], object]


class _Disconnected(msgspec.Struct):
    """The daemon is gone."""


_Message = Asked | _Do | _Disconnected


class EngineServer:
    """Serves one daemon until it closes the channel.

    run() is the engine's thread, which alone touches the engine and answers. A second thread reads the
    channel; others load models and move sessions and prefixes to and from files, so that running requests go
    on meanwhile, and one sees to it that no step hangs.
    """

    def __init__(self, engine: EngineCore, calls: CallServer) -> None:
        self._engine = engine
        self._calls = calls
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._answers = Answers(calls)
        self._loader = Loader(engine, self._answers, self._call_soon)
        self._relief = PressureRelief(engine, MemoryPressure())
        self._threads = OffloadThreads(self._call_soon)
        engine.prefixes.use_threads(self._threads)
        engine.sessions.use_threads(self._threads)
        engine.grammars.use_event_loop(self._call_soon)
        self._watchdog = Watchdog(lambda: look_at(engine))
        self._connected = True
        self._trim_s: float | None = None  # when spare memory is to be given back
        self._tend_s = 0.0
        self._told_s = 0.0

    def run(self) -> None:
        """Returns when the daemon is gone; all requests are then cancelled and all models unloaded."""
        reader = threading.Thread(target=self._read, name="read", daemon=True)
        reader.start()
        self._watchdog.start()
        try:
            while self._connected:
                self._handle_messages()
                self._watchdog.notice_step()
                if outputs := self._engine.step():
                    self._tell(outputs)
        finally:
            self._watchdog.close()
            self._calls.shut_down()
            reader.join()
            self._loader.close()
            self._engine.prefixes.stop()
            self._engine.sessions.stop()
            self._threads.close()
            self._engine.close()
            self._calls.close()

    def _call_soon(self, function: Callable[[], object]) -> None:
        self._inbox.put(_Do(function))

    def _handle_messages(self) -> None:
        """Handles what has arrived; without work, sleeps until something does."""
        has_work, now_s = self._engine.has_work, time.monotonic()
        if has_work:
            self._trim_s = now_s + TRIM_S
        must_wait = not has_work or self._engine.is_stalled
        if must_wait or now_s >= self._tend_s:
            self._tend_s = now_s + TEND_S
            engine = self._engine
            tended_s = engine.prefixes.tend(), engine.sessions.tend(), engine.grammars.tend()
            waits_s = [*tended_s, self._relief.relieve_system(), self._tell_shortage(now_s)]
            if must_wait and (message := self._wait(*waits_s, STALL_S if has_work else None)):
                self._handle(message)
        while not self._inbox.empty():
            self._handle(self._inbox.get())

    def _tell_shortage(self, now_s: float) -> float | None:
        """After how many seconds to do so again; None: nothing is lacking."""
        if (short := self._engine.sharing.shortage) is None:
            return None
        if now_s >= self._told_s + SHORT_S:
            self._calls.tell(short)
            self._told_s = now_s
        return self._told_s + SHORT_S - now_s

    def _start_chores(self) -> None:
        self._trim_s = time.monotonic() + TRIM_S

    def _wait(self, *others_s: float | None) -> _Message | None:
        """None: there is something to be done, after so many seconds for others."""
        trim_s = None if self._trim_s is None else max(self._trim_s - time.monotonic(), 0)
        waits_s = [wait_s for wait_s in (*others_s, trim_s) if wait_s is not None]
        try:
            return self._next_message(min(waits_s, default=None))
        except queue.Empty:
            if trim_s is not None and trim_s <= min(waits_s):
                self._trim_s = time.monotonic() if self._engine.trim() else None
            return None

    def _next_message(self, wait_s: float | None) -> _Message:
        """The next that gives something to do. A Hold does not while nobody waits for memory: it is handled
        here. Raises queue.Empty after so many seconds.
        """
        end_s = None if wait_s is None else time.monotonic() + wait_s
        while True:
            message = self._inbox.get(timeout=wait_s)
            is_hold = isinstance(message, Asked) and isinstance(message.message, Hold)
            if not is_hold or self._engine.has_work:
                return message
            self._handle(message)
            wait_s = None if end_s is None else max(end_s - time.monotonic(), 0)

    def _handle(self, message: _Message) -> None:
        match message:
            case Asked():
                self._handle_asked(message)
            case _Do(function):
                function()
                self._start_chores()
            case _Disconnected():
                self._connected = False

    def _handle_asked(self, asked: Asked) -> None:
        call, message = asked.call, asked.message
        match message:
            case Submit(request):
                self._engine.submit(request)
            case Cancel(request_id):
                self._engine.cancel(request_id)
            case Pause(request_id, paused):
                self._engine.pause(request_id, paused=paused)
            case Hold(model_id, is_held):
                self._engine.hold_model(model_id, is_held=is_held)
            case Load():
                self._loader.load(asked)
            case LoadAdapter():
                self._loader.load_adapter(asked)
            case UnloadAdapter(model_id, adapter_id):
                self._loader.then(asked, lambda: self._engine.adapters.unload(model_id, adapter_id))
            case SetVocabulary():
                self._loader.set_vocabulary(asked)
            case Unload(model_id):
                self._loader.then(asked, lambda: self._engine.unload_model(model_id))
            case SavePrefixes():
                self._engine.prefixes.save_all(lambda: self._answers.end(call))
            case EraseModel(model_id):
                self._engine.prefixes.erase_model(model_id, lambda: self._answers.end(call))
            case SaveSession(model_id, name):
                self._engine.sessions.save(model_id, name, lambda error: self._answers.end(call, error))
            case LoadSession(model_id, name):
                self._engine.sessions.load(model_id, name, lambda error: self._answers.end(call, error))
            case _:
                self._answers.of(call, lambda: self._result(message))

    def _result(self, message: object) -> object:
        """The result of a message that the engine's thread handles at once."""
        engine = self._engine
        match message:
            case Sleep(model_id):
                engine.sleep_model(model_id)
                return None
            case Wake(model_id):
                info = engine.wake_model(model_id)
                engine.hold_model(model_id, is_held=True)
                return info
            case GetStats():
                return engine.stats()
            case GetTrace(seconds):
                return engine.trace(seconds)
            case SetLimits(kv_limit_bytes, memory_limit_bytes, whole, reachable):
                return engine.set_limits(kv_limit_bytes, memory_limit_bytes, whole=whole, reachable=reachable)
            case GetOffers(asked, order_s):
                return engine.sharing.offers(asked, order_s)
            case GiveUp(asked, order_s):
                return engine.sharing.give_up(asked, order_s)
            case Lease(num_bytes, is_held, weight_bytes):
                granted = engine.lease(num_bytes, weight_bytes=weight_bytes, is_held=is_held)
                return Leased(granted, engine.memory.leasable_bytes)
            case EndLease(num_bytes, weight_bytes):
                engine.end_lease(num_bytes, weight_bytes)
                return None
            case TrimKv():
                return engine.trim_kv()
            case ListSessions():
                return engine.sessions.statuses()
            case RemoveSession(model_id, name):
                self._start_chores()  # it leaves memory to be given back
                return engine.sessions.remove(model_id, name)
        raise ProtocolError(f"{type(message).__name__} is no message for a worker that runs")

    def _read(self) -> None:
        try:
            while (asked := self._calls.read()) is not None:
                self._inbox.put(asked)
                if isinstance(asked.message, Cancel):
                    self._engine.interrupt(asked.message.request_id)
        except (OSError, ProtocolError) as error:
            log.error("connection lost: %s", error)
        finally:
            self._inbox.put(_Disconnected())

    def _tell(self, outputs: list[StepOutput]) -> None:
        try:
            self._calls.tell(Outputs(outputs))
        except ProtocolError:
            for output in outputs:
                self._tell_one(output)

    def _tell_one(self, output: StepOutput) -> None:
        """An output that cannot be sent is replaced by an error of that request alone."""
        try:
            self._calls.tell(Outputs([output]))
        except ProtocolError as error:
            log.error("an output of request %s: %s", output.request_id, error)
            self._engine.cancel(output.request_id)
            lost = StepOutput(request_id=output.request_id, finish_reason="error", error=str(error))
            self._calls.tell(Outputs([lost]))
