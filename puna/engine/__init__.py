"""Requests, sequences, the scheduler and the step loop. Of text it knows what tokens stand for."""

from puna.engine.core import EngineCore
from puna.engine.request import (
    EngineStats,
    FinishReason,
    ModelStats,
    Request,
    RequestStats,
    SamplingParams,
    StepOutput,
    TokenLogprob,
)
from puna.engine.settings import EngineSettings

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
