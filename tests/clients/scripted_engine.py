"""`python -m tests.clients.scripted_engine`: an engine worker that says what a script says.

The script is a JSON list of rules in the file script.json of PUNA_KV_DIR; a prompt gets the reply of the
first rule whose `has` is in its text.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from puna._native import TokenTable
from puna.backends.base import KvGroup, ModelInfo
from puna.engine.observation.stats import EngineStats
from puna.engine.request import Request, RequestStats, StepOutput
from puna.worker.cage import CageLevel
from puna.worker.calls import Asked, CallServer, close_all
from puna.worker.child import begin
from puna.worker.engine import messages
from puna.worker.engine.messages import CROSSING, Outputs, Ready, ToWorker

SCRIPT = "script.json"

_INFO = ModelInfo(
    architecture="gemma3",
    vocab_size=262_144,
    context_length=32_768,
    num_layers=1,
    groups=(KvGroup(num_layers=1, block_bytes=4096),),
    kv_type="f16",
    weight_bytes=1 << 20,
    can_shift=True,
)


class Rule(msgspec.Struct):
    reply: str
    has: str = ""


class ScriptedEngine:
    def __init__(self, calls: CallServer, rules: list[Rule]) -> None:
        self._calls = calls
        self._rules = rules
        self._table: TokenTable | None = None

    def handle(self, asked: Asked) -> None:
        match asked.message:
            case messages.Load() | messages.Wake():
                self._calls.answer(asked.call, _INFO)
            case messages.SetVocabulary():
                self._table = TokenTable.from_descriptor(asked.descriptors[0])
                self._calls.answer(asked.call, None)
            case messages.Submit(request):
                for output in self._reply(request):
                    self._calls.tell(Outputs([output]))
            case messages.GetStats():
                self._calls.answer(asked.call, EngineStats(kv_limit_bytes=0, models=[]))
            case messages.SetLimits() | messages.TrimKv():
                self._calls.answer(asked.call, 0)
            case messages.GetOffers() | messages.ListSessions():
                self._calls.answer(asked.call, [])
            case _:
                if asked.call:
                    self._calls.answer(asked.call, None)

    def _reply(self, request: Request) -> list[StepOutput]:
        """Three characters at a time, so that tags come in pieces."""
        assert self._table is not None
        prompt = b"".join(map(self._table.token_bytes, request.prompt)).decode(errors="replace")
        text = next((rule.reply for rule in self._rules if rule.has in prompt), "The script has no reply.")
        pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
        stats = RequestStats(len(request.prompt), 0, 1000, len(pieces), 1000)
        outputs = [StepOutput(request.id, piece) for piece in pieces]
        return [*outputs, StepOutput(request.id, finish_reason="stop", stats=stats)]


def main() -> None:
    calls = CallServer(begin("scripted worker"), ToWorker, CROSSING)
    asked = calls.read()
    assert asked is not None
    assert isinstance(asked.message, messages.Start)
    directory = asked.message.settings.engine.kv_dir
    assert directory is not None
    rules = msgspec.json.decode((Path(directory) / SCRIPT).read_bytes(), type=list[Rule])
    limit = 1 << 30
    calls.answer(
        asked.call, Ready(kv_limit_bytes=limit, memory_limit_bytes=limit, cage=CageLevel(0, False, True))
    )
    engine = ScriptedEngine(calls, rules)
    while (asked := calls.read()) is not None:
        engine.handle(asked)
        close_all(asked.descriptors)
    os._exit(0)


if __name__ == "__main__":
    main()
