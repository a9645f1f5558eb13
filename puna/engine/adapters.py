"""LoRA adapters: which of them are loaded for which model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from puna.backends.base import DeviceAdapter, ModelLoadError, ModelSource
from puna.engine.memory.engine_memory import EngineMemory
from puna.engine.model import Model


class Adapters:
    """Loads them beside models, and unloads them. Ids are of contents: KV is found by them."""

    def __init__(
        self,
        models: Mapping[str, Model],
        memory: EngineMemory,
        end_requests: Callable[[Model, str], None],
    ) -> None:
        """models: by id, those asleep included. end_requests: of a model with an adapter."""
        self._models = models
        self._memory = memory
        self._end_requests = end_requests

    def load(self, model_id: str, adapter_id: str, source: ModelSource) -> int:
        """What it takes, in bytes. Raises ModelLoadError."""
        return self.attach(model_id, adapter_id, self.read(model_id, source))

    def read(self, model_id: str, source: ModelSource) -> DeviceAdapter:
        """For any thread. Raises ModelLoadError."""
        return self._model(model_id).device.load_adapter(source)

    def attach(self, model_id: str, adapter_id: str, adapter: DeviceAdapter) -> int:
        """Has requests find what read() gave. Raises ModelLoadError; ModelDoesNotFit where there is too
        little memory.
        """
        model = self._model(model_id)
        self.unload(model_id, adapter_id)
        if model.is_awake:
            was_held, model.is_held = model.is_held, True
            try:
                self._memory.add_adapter(model, adapter.num_bytes)
            finally:
                model.is_held = was_held
        model.adapters[adapter_id] = adapter
        return adapter.num_bytes

    def unload(self, model_id: str, adapter_id: str) -> None:
        """Gives its memory back; requests that use it finish with an error. Unknown ids are ignored."""
        model = self._models.get(model_id)
        if model is None or adapter_id not in model.adapters:
            return
        self._end_requests(model, adapter_id)
        adapter = model.adapters.pop(adapter_id)
        if model.is_awake:
            self._memory.remove_adapter(model, adapter.num_bytes)

    def _model(self, model_id: str) -> Model:
        model = self._models.get(model_id)
        if model is None:
            raise ModelLoadError(f"model {model_id} is not loaded")
        return model
