"""A loaded model: its device model, its KV memory, its requests, and what its steps cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from puna._native import StepCosts, TokenTable
from puna.backends.base import DeviceAdapter, DeviceModel
from puna.engine.caching.cache_policy import CachePolicy, NoPolicy, PrefixPolicy
from puna.engine.caching.slot_policy import SlotPolicy
from puna.engine.caching.state_policy import StatePolicy
from puna.engine.grammars.compiling import ModelGrammars
from puna.engine.observation.stats import ModelStats
from puna.engine.observation.stream_pace import StreamPace
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.sequences.batch import Slice
from puna.engine.sequences.sequence import Sequence
from puna.engine.settings import EngineSettings
from puna.engine.speculation.draft_model import DraftModel
from puna.engine.speculation.prediction_head import PredictionHead
from puna.kv.input_cache import InputCache
from puna.kv.model_kv import ModelKv


class SuspendedStep(NamedTuple):
    """Of an encoder: what it has computed of its texts so far is kept, and no other step comes between."""

    slices: list[Slice]
    seconds: float
    """That it took so far."""

    @property
    def is_wanted(self) -> bool:
        return any(s.sequence.is_running for s in self.slices)


class Model:
    """A model that is awake, with KV memory and counted weights, or asleep, with next to no memory."""

    def __init__(
        self,
        model_id: str,
        device: DeviceModel,
        clock: Callable[[], float],
        *,
        name: str,
        share: float,
        guaranteed_bytes: int,
    ) -> None:
        """clock: seconds."""
        self.id = model_id
        self.name = name
        """For error texts."""
        self.device = device
        self.share = share
        """Of the device's time while other models have work, too, relative to theirs."""
        self.guaranteed_bytes = guaranteed_bytes
        """KV memory that no other model takes while this one is awake."""
        self.fixed_bytes = device.info.fixed_bytes
        """Counted while it is awake, besides KV; less than all where its experts did not all fit."""
        self.text_bytes = 0
        """Of these, what the steps of an encoder take: see DeviceModel."""
        self.vocabulary_bytes = 0
        """What grammars have prepared of its vocabulary."""
        self.adapters: dict[str, DeviceAdapter] = {}
        """By id."""
        self.costs = StepCosts()
        self.pace = StreamPace(self.costs)
        self.drafter = DraftModel(device, self.costs, clock)
        self.head = PredictionHead(device, self.costs, clock)
        self.token_table: TokenTable | None = None
        """The bytes of its tokens, if they are known: then replies have text."""
        self.grammars: ModelGrammars | None = None
        """If its vocabulary is known: then replies may have one."""
        self.running: list[Sequence] = []
        """In order."""
        self.waiting: list[Sequence] = []
        """For memory or a place, in order."""
        self.num_requests = 0
        """In the engine: running, waiting, or waiting for a disk."""
        self.is_held = False
        """Requests are about to be sent."""
        self.last_used_s = 0.0
        """When it woke, or a request last came or ended."""
        self.served_s = 0.0
        """Virtual time: seconds of the device, by share."""
        self.suspended: SuspendedStep | None = None
        self.turn = 0
        """Which of the streams come first, if there are too many for a step."""
        self.lets_pass = False
        """Whether the shorter prompts had the last step that was too small to be shared."""
        self.offload: ModelOffload
        """Of one that is awake: its KV beside that of running sequences."""
        self._kv: ModelKv | None = None
        self._policy: CachePolicy | None = None

    @property
    def is_awake(self) -> bool:
        return self._kv is not None

    @property
    def is_idle(self) -> bool:
        """Whether it could sleep."""
        return self.is_awake and not self.is_held and self.num_requests == 0

    @property
    def kv(self) -> ModelKv:
        """Of a model that is awake."""
        assert self._kv is not None, f"model {self.id} is asleep"
        return self._kv

    @property
    def policy(self) -> CachePolicy:
        """Of a model that is awake: how its sequences come by KV."""
        assert self._policy is not None, f"model {self.id} is asleep"
        return self._policy

    @property
    def adapter_bytes(self) -> int:
        return sum(adapter.num_bytes for adapter in self.adapters.values())

    @property
    def counted_weight_bytes(self) -> int:
        return self.counted_bytes - self.device.info.scratch_bytes - self.text_bytes

    @property
    def counted_bytes(self) -> int:
        """All that it takes beside KV."""
        return self.fixed_bytes + self.vocabulary_bytes

    @property
    def is_larger_than_memory(self) -> bool:
        """Whether experts come from its file when tokens choose them."""
        return self.is_awake and self.fixed_bytes < self.needed_bytes

    @property
    def needed_bytes(self) -> int:
        """All that it could use beside KV and vocabulary."""
        return self.device.info.fixed_bytes + self.adapter_bytes + self.text_bytes

    @property
    def num_streams(self) -> int:
        return sum(sequence.num_generated > 0 and not sequence.is_paused for sequence in self.running)

    def use_kv(self, kv: ModelKv | None, settings: EngineSettings) -> None:
        """None: it sleeps. Nothing uses what it had before."""
        self._kv = kv
        self._policy = None if kv is None else self._new_policy(kv, settings)
        self.drafter.kv = self.head.kv = kv
        self.suspended = None
        if kv is None and self.grammars is not None:
            self.grammars.forget()

    def stats(self, num_preemptions: int) -> ModelStats:
        info, kv = self.device.info, self._kv
        return ModelStats(
            model_id=self.id,
            num_running=len(self.running),
            num_waiting=self.num_requests - len(self.running),
            num_preemptions=num_preemptions,
            block_bytes=info.block_bytes,
            used_kv_bytes=kv.used_bytes if kv else 0,
            cached_kv_bytes=kv.cached_bytes if kv else 0,
            committed_kv_bytes=kv.committed_bytes if kv else 0,
            reserved_kv_bytes=kv.reserved_bytes if kv else 0,
            guaranteed_kv_bytes=self.guaranteed_bytes,
            weight_bytes=self.counted_weight_bytes,
            is_asleep=kv is None,
            kv_groups=kv.group_stats() if kv else [],
        )

    def _new_policy(self, kv: ModelKv, settings: EngineSettings) -> CachePolicy:
        if not kv.groups:
            return NoPolicy()
        if settings.cache_policy == "prefix":
            return StatePolicy(kv) if kv.has_states else PrefixPolicy(kv)
        info, num_slots = self.device.info, settings.num_places
        assert num_slots is not None, "slots always have a number"
        slots = InputCache(
            kv,
            kv_size=num_slots * info.context_length,
            num_slots=num_slots,
            multi_user=settings.multi_user_cache,
            can_shift=info.can_shift,
        )
        return SlotPolicy(kv, slots)
