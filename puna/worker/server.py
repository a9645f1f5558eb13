"""The worker's side: one engine, one connection to the daemon."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from puna.backends.base import DeviceModel, ModelInfo, ModelLoadError, ModelSource
from puna.engine import EngineCore
from puna.engine.resident import ModelDoesNotFit
from puna.kv.pressure import MemoryPressure
from puna.worker.memory_service import MemoryService
from puna.worker.prefix_service import PrefixService
from puna.worker.protocol import (
    Cancel,
    EndLease,
    FromWorker,
    GetStats,
    GetTrace,
    Lease,
    ListSessions,
    Load,
    Loaded,
    LoadFailed,
    LoadSession,
    Outputs,
    PrefixesSaved,
    ProtocolError,
    Ready,
    RemoveSession,
    SavePrefixes,
    SaveSession,
    SetLimits,
    Sleep,
    Slept,
    Stats,
    Submit,
    ToWorker,
    Trace,
    TrimKv,
    Unload,
    Unloaded,
    Wake,
    decode,
    encode,
    printable,
    read_payload,
)
from puna.worker.session_service import SessionService

log = logging.getLogger(__name__)

TRIM_S = 1.0
"""After so long without work, spare KV memory goes back to the system."""
STALL_S = 0.002
"""So long to wait where requests need memory that other threads are about to give back."""


class _Attach(msgspec.Struct):
    """A model that the loader has ready for the engine."""

    call: int
    model_id: str
    device_model: DeviceModel
    weight: float
    minimum_kv_bytes: int


class _Detach(msgspec.Struct):
    """An unload, after all loads that were asked for before it."""

    call: int
    model_id: str


class _Call(msgspec.Struct):
    """Something to do for the engine's thread."""

    function: Callable[[], None]


class _Disconnected(msgspec.Struct):
    """The daemon is gone."""


_Message = ToWorker | LoadFailed | _Attach | _Detach | _Call | _Disconnected


class WorkerServer:
    """Serves one daemon until it closes the connection.

    run() is the engine's thread, which alone touches the engine and writes to the connection. A second
    thread reads the connection; two others load models and move sessions to and from files, so that running
    requests go on meanwhile.
    """

    def __init__(self, engine: EngineCore, connection: socket.socket) -> None:
        self._engine = engine
        self._connection = connection
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        # One at a time and in order: an unload must not overtake the load that it is to undo.
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="load")
        self._sessions = SessionService(engine.sessions, self._call_soon, self._send)
        self._memory = MemoryService(engine, self._send, MemoryPressure())
        self._prefixes = PrefixService(engine.prefixes, self._call_soon)
        self._connected = True
        self._trim_s: float | None = None  # when spare memory is to be given back

    def run(self) -> None:
        """Returns when the daemon is gone; all requests are then cancelled and all models unloaded."""
        reader = threading.Thread(target=self._read, name="read", daemon=True)
        reader.start()
        self._send(Ready())
        try:
            while self._connected:
                self._handle_messages()
                if outputs := self._engine.step():
                    self._send(Outputs(outputs))
        finally:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # ends the reader, too
            self._connection.close()
            self._loader.shutdown(cancel_futures=True)
            self._prefixes.close()
            self._engine.close()
            self._sessions.close()

    def _call_soon(self, function: Callable[[], None]) -> None:
        self._inbox.put(_Call(function))

    def _handle_messages(self) -> None:
        """Handles what has arrived; without work, sleeps until something does."""
        waits_s = [self._engine.prefixes.put_away_idle(), self._memory.relieve_system()]
        if has_work := self._engine.has_work:
            self._start_chores()
            waits_s.append(STALL_S)
        if (not has_work or self._engine.is_stalled) and (message := self._wait(*waits_s)):
            self._handle(message)
        while not self._inbox.empty():
            self._handle(self._inbox.get())

    def _start_chores(self) -> None:
        self._trim_s = time.monotonic() + TRIM_S

    def _wait(self, *others_s: float | None) -> _Message | None:
        """None: there is something to be done, after so many seconds for others."""
        trim_s = None if self._trim_s is None else max(self._trim_s - time.monotonic(), 0)
        waits_s = [wait_s for wait_s in (*others_s, trim_s) if wait_s is not None]
        try:
            return self._inbox.get(timeout=min(waits_s, default=None))
        except queue.Empty:
            if trim_s is not None and trim_s <= min(waits_s):
                self._engine.trim()
                self._trim_s = None
            return None

    def _handle(self, message: _Message) -> None:
        match message:
            case Submit(request):
                self._engine.submit(request)
            case Cancel(request_id):
                self._engine.cancel(request_id)
            case _Attach():
                self._attach(message)
            case LoadFailed():
                self._send(message)
            case Load():
                self._loader.submit(self._load, message)
            case Unload(call, model_id):
                self._loader.submit(self._inbox.put, _Detach(call, model_id))
            case _Detach(call, model_id):
                self._engine.unload_model(model_id)
                self._send(Unloaded(call))
            case Sleep(call, model_id):
                self._engine.sleep_model(model_id)
                self._send(Slept(call))
            case Wake(call, model_id):
                self._answer_load(call, lambda: self._engine.wake_model(model_id))
            case GetStats(call):
                self._send(Stats(call, self._engine.stats()))
            case GetTrace(call, seconds):
                self._send(Trace(call, self._engine.trace(seconds)))
            case SavePrefixes(call):
                self._engine.prefixes.save_all(lambda: self._send(PrefixesSaved(call)))
            case ListSessions() | SaveSession() | LoadSession() | RemoveSession():
                self._sessions.handle(message)
                self._start_chores()  # it may have left memory to be given back
            case SetLimits() | Lease() | EndLease() | TrimKv():
                self._memory.handle(message)
            case _Call(function):
                function()
                self._start_chores()
            case _Disconnected():
                self._connected = False

    def _attach(self, message: _Attach) -> None:
        engine, m = self._engine, message
        self._answer_load(
            m.call, lambda: engine.attach_model(m.model_id, m.device_model, m.weight, m.minimum_kv_bytes)
        )

    def _answer_load(self, call: int, load: Callable[[], ModelInfo]) -> None:
        try:
            info = load()
        except ModelDoesNotFit as error:
            self._send(LoadFailed(call, str(error), error.shortage))
        except ModelLoadError as error:
            self._send(LoadFailed(call, str(error)))
        else:
            self._send(Loaded(call, info))

    def _load(self, message: Load) -> None:
        path = Path(os.fsdecode(message.path))
        try:
            with ModelSource.open(path) as source:
                device_model = self._engine.backend.load(source)
        except ModelLoadError as error:
            self._inbox.put(LoadFailed(message.call, printable(str(error))))
        except Exception as error:  # a file must not end the worker, whatever it hits
            log.exception("loading %s", path)
            self._inbox.put(LoadFailed(message.call, printable(f"{path}: {error!r}")))
        else:
            self._inbox.put(
                _Attach(
                    message.call, message.model_id, device_model, message.weight, message.minimum_kv_bytes
                )
            )

    def _read(self) -> None:
        decoder = msgspec.msgpack.Decoder(ToWorker)
        try:
            with self._connection.makefile("rb") as stream:
                while (payload := read_payload(stream)) is not None:
                    self._inbox.put(decode(payload, decoder))
        except (OSError, ProtocolError) as error:
            log.error("connection lost: %s", error)
        finally:
            self._inbox.put(_Disconnected())

    def _send(self, message: FromWorker) -> None:
        try:
            self._connection.sendall(encode(message))
        except OSError:
            self._connected = False
