"""An engine around a device that computes nothing, and how long its calls take."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from benchmarks.growth.device import NoOpBackend, NoOpModel
from benchmarks.growth.device_clock import BLOCK_BYTES, PERIOD, VOCABULARY, DeviceClock
from puna._native import TokenTable
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams, StepOutput
from puna.kv import BLOCK_TOKENS

MODEL = "model"
_GREEDY = SamplingParams(temperature=0)


class BenchEngine:
    """One model in memory for num_blocks blocks; settings: of the engine. state_blocks: as many as a state of
    recurrent layers takes the memory of; 0: there are no such layers.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        step_s: float = 0.02,
        token_s: float = 0.0001,
        state_blocks: int = 0,
        **settings: Any,
    ) -> None:
        self.clock = DeviceClock()
        states = (
            {"state_bytes": state_blocks * BLOCK_BYTES} if state_blocks else {}
        )  # earlier builds have none
        self.device = NoOpModel(self.clock, step_s, token_s, **states)
        limit = num_blocks * BLOCK_BYTES
        values = {"kv_limit_bytes": limit, "memory_limit_bytes": limit, "state_key": bytes(32), **settings}
        self.core = EngineCore(NoOpBackend(), EngineSettings(**values), self.clock)
        self.core.attach_model(MODEL, self.device)
        pieces = [b"%d " % token for token in range(VOCABULARY)]
        self.core.set_token_table(MODEL, TokenTable(TokenTable.build(pieces, bytes(VOCABULARY))))

    def submit(self, name: str, prompt: list[int], **fields: Any) -> None:
        values = {"sampling": _GREEDY, "num_draft": 0, **fields}
        self.core.submit(Request(id=name, model_id=MODEL, prompt=prompt, **values))

    def step(self) -> list[StepOutput]:
        return self.core.step()

    def run_until_done(self, name: str) -> None:
        while not any(output.request_id == name and output.finish_reason for output in self.step()):
            pass

    def step_ms(self) -> float:
        """Of the next step, without the device."""
        device_ns = self.device.spent_ns
        took_ms = call_ms(self.step)
        return took_ms - (self.device.spent_ns - device_ns) / 1e6


def call_ms(function: Callable[[], object]) -> float:
    """Processor time of this thread. No garbage is collected meanwhile: that has a scenario of its own."""
    gc.disable()
    start_ns = time.thread_time_ns()
    function()
    took_ns = time.thread_time_ns() - start_ns
    gc.enable()
    return took_ns / 1e6


def prompt_of(num_tokens: int, seed: int) -> list[int]:
    """Different from the first token on for different seeds, up to millions; it ends as the device counts."""
    head = [PERIOD + (seed >> shift) % 64 for shift in (0, 6, 12, 18)]
    return (head + [i % PERIOD for i in range(num_tokens)])[:num_tokens]


def blocks_for(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_TOKENS)
