"""Reads files of models, adapters and vocabularies in a thread, so that running requests go on meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from puna._native import NativeError, TokenTable
from puna.backends.base import DeviceModel, ModelInfo, ModelLoadError, ModelSource
from puna.engine import EngineCore
from puna.tokenizer import Tokenizer, TokenizerError
from puna.worker.calls import Asked, close_all
from puna.worker.engine.answers import Answers
from puna.worker.engine.messages import Load, LoadAdapter

log = logging.getLogger(__name__)
T = TypeVar("T")


class Loader:
    """call_soon: has the engine's thread, which alone touches the engine, run a function.

    One file at a time and in order: an unload must not overtake the load that it is to undo.
    """

    def __init__(
        self, engine: EngineCore, answers: Answers, call_soon: Callable[[Callable[[], object]], None]
    ) -> None:
        self._engine = engine
        self._answers = answers
        self._call_soon = call_soon
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="load")

    def load(self, asked: Asked) -> None:
        m: Load = asked.message
        files, num_own = tuple(asked.descriptors), len(asked.descriptors) - m.has_drafter
        source = ModelSource(m.name, files[:num_own], drafter=files[num_own:])

        def attach(device_model: DeviceModel) -> ModelInfo:
            info = self._engine.attach_model(
                m.model_id, device_model, m.share, m.guaranteed_kv_bytes, name=m.name
            )
            self._engine.hold_model(m.model_id, is_held=True)
            return info

        self._thread.submit(self._read_file, asked, lambda: self._engine.backend.load(source), attach)

    def load_adapter(self, asked: Asked) -> None:
        m: LoadAdapter = asked.message
        source, adapters = ModelSource(m.name, tuple(asked.descriptors)), self._engine.adapters
        self._thread.submit(
            self._read_file,
            asked,
            lambda: adapters.read(m.model_id, source),
            lambda adapter: adapters.attach(m.model_id, m.adapter_id, adapter),
        )

    def set_vocabulary(self, asked: Asked) -> None:
        self._thread.submit(self._read_vocabulary, asked)

    def then(self, asked: Asked, work: Callable[[], object]) -> None:
        """Answers with what `work` gives in the engine's thread, behind all loads that came before."""
        self._thread.submit(self._call_soon, lambda: self._answers.of(asked.call, work))

    def close(self) -> None:
        """What has not begun never does."""
        self._thread.shutdown(cancel_futures=True)

    def _read_file(self, asked: Asked, read: Callable[[], T], use: Callable[[T], object]) -> None:
        """Answers with what `use` gives for what was read, in the engine's thread."""
        try:
            found = read()
        except ModelLoadError as error:
            failed: Exception = error
        except Exception as error:  # a file must not end the worker, whatever it hits
            log.exception("loading %s", asked.message.name)
            failed = ModelLoadError(f"{asked.message.name}: {error!r}")
        else:
            self._call_soon(lambda: self._answers.of(asked.call, lambda: use(found)))
            return
        finally:
            close_all(asked.descriptors)
        self._call_soon(lambda: self._answers.end(asked.call, failed))

    def _read_vocabulary(self, asked: Asked) -> None:
        model_id, set_table = asked.message.model_id, self._engine.set_token_table
        try:
            token_table, vocabulary = asked.descriptors
            table = TokenTable.from_descriptor(token_table)
            tokenizer = Tokenizer.from_descriptor(vocabulary)
        except (NativeError, TokenizerError, ValueError) as error:
            failed = ModelLoadError(f"the vocabulary cannot be used: {error}")
            self._call_soon(lambda: self._answers.end(asked.call, failed))
        else:
            self._call_soon(
                lambda: self._answers.of(asked.call, lambda: set_table(model_id, table, tokenizer))
            )
        finally:
            close_all(asked.descriptors)
