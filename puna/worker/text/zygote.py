"""Forks text workers: they share what has been imported, and begin within milliseconds.

The zygote itself reads nothing that others wrote.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
from contextlib import suppress
from importlib import import_module

from puna.chat.errors import TemplateError
from puna.chat.grammars.validation import grammar_error
from puna.chat.messages import Message
from puna.chat.templates.go.template import GoChatTemplate
from puna.chat.templates.template import CHATML, ChatTemplate
from puna.worker.calls import CallServer, Channel, close_all, inherited_channel
from puna.worker.text import worker
from puna.worker.text.limits import Limits
from puna.worker.text.messages import Ending, Fork, Reap, ToZygote
from puna.worker.text.stages import SharedStage

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_IMPORTED_LATE = ("heapq", "html", "jinja2.debug", "pprint", "textwrap", "unicodedata")


class Zygote:
    """Serves one daemon until it closes the channel; the workers end with the zygote."""

    def __init__(self, channel: Channel) -> None:
        self._server = CallServer(channel, ToZygote, ())
        self._stages: dict[int, SharedStage] = {}
        self._prctl = ctypes.CDLL(None).prctl

    def run(self) -> None:
        _load_all()
        gc.collect()
        gc.freeze()  # collecting would touch, and so copy, the pages that are shared
        while (asked := self._server.read()) is not None:
            match asked.message:
                case Fork(limits):
                    self._server.answer(asked.call, self._fork(asked.descriptors, limits))
                case Reap(pid):
                    self._server.answer(asked.call, self._reap(pid))
        for pid in list(self._stages):
            self._reap(pid)

    def _fork(self, descriptors: list[int], limits: Limits) -> int:
        stage = SharedStage()
        own_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() == own_pid:
                    self._server.close()  # a worker that was taken over must not speak for the zygote
                    worker.run(inherited_channel(*descriptors), stage, limits)
                    status = 0
            except Exception:
                log.exception("a text worker ends")
            finally:
                os._exit(status)
        self._stages[pid] = stage
        close_all(descriptors)
        return pid

    def _reap(self, pid: int) -> Ending:
        """A worker that is dead or has nothing to do."""
        stage = self._stages.pop(pid)
        os.kill(pid, signal.SIGKILL)  # of a zombie it changes nothing
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        ending = Ending(status, stage.current)
        stage.close()
        return ending


def _load_all() -> None:
    """Has everything imported that is imported when it is first needed: a caged worker cannot do that."""
    for name in _IMPORTED_LATE:
        import_module(name)
    grammar_error('start: %json {"type": "object"}')
    message = Message("user", "hello")
    for source in (CHATML, "{{ strftime_now('%Y') }}", "{{ raise_exception('') }}", "{% for"):
        with suppress(TemplateError):
            ChatTemplate(source, bos_token="", eos_token="").render([message])
    GoChatTemplate("{{ json .Messages }}").render([message])
