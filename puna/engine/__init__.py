"""Requests, sequences, the scheduler and the step loop. Of text it knows what tokens stand for."""

from typing import TYPE_CHECKING

from puna import lazy
from puna.engine.observation.stats import EngineStats, ModelStats
from puna.engine.request import FinishReason, Request, RequestStats, SamplingParams, StepOutput, TokenLogprob
from puna.engine.settings import EngineSettings

if TYPE_CHECKING:
    from puna.engine.core import EngineCore

__all__ = [
    "EngineCore",
    "EngineSettings",
    "EngineStats",
    "FinishReason",
    "ModelStats",
    "Request",
    "RequestStats",
    "SamplingParams",
    "StepOutput",
    "TokenLogprob",
]

__getattr__ = lazy.names(
    __name__,
    {
        "EngineCore": "puna.engine.core",
    },
)
