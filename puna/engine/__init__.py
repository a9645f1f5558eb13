"""Requests, sequences, the scheduler and the step loop. Knows token ids, not text."""

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
