"""A local LLM inference daemon, and its engine as a library.

import puna

with puna.LLM("smollm2:135m") as llm:
    print(llm.chat([{"role": "user", "content": "Why is the sky blue?"}]).text)
"""

# Nothing is imported here that Python has not imported when it started, see puna/cli/entry.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from puna.engine.request import GenerationError, SamplingParams
    from puna.llm import LLM, Chunk
    from puna.local import Completion, Engine

__version__ = "0.1.0"
__all__ = ["LLM", "Chunk", "Completion", "Engine", "GenerationError", "SamplingParams", "__version__"]

# Imported when first used: the command line imports this package, too, and must not wait for the engine.
_MODULES = {
    "Chunk": "puna.llm",
    "Completion": "puna.local",
    "Engine": "puna.local",
    "GenerationError": "puna.engine.request",
    "LLM": "puna.llm",
    "SamplingParams": "puna.engine.request",
}


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
