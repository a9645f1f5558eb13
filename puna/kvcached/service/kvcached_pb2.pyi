from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AllocRequest(_message.Message):
    __slots__ = ("size", "model_id")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    size: int
    model_id: str
    def __init__(self, size: _Optional[int] = ..., model_id: _Optional[str] = ...) -> None: ...

class AllocResponse(_message.Message):
    __slots__ = ("handle", "gpu_ptr", "shm_name", "size")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    GPU_PTR_FIELD_NUMBER: _ClassVar[int]
    SHM_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    gpu_ptr: int
    shm_name: str
    size: int
    def __init__(self, handle: _Optional[int] = ..., gpu_ptr: _Optional[int] = ..., shm_name: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class FreeRequest(_message.Message):
    __slots__ = ("handle",)
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    def __init__(self, handle: _Optional[int] = ...) -> None: ...

class FreeResponse(_message.Message):
    __slots__ = ("size",)
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: int
    def __init__(self, size: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("list_allocations",)
    LIST_ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    list_allocations: bool
    def __init__(self, list_allocations: bool = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("limit", "committed", "allocated", "available", "models", "allocations")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ALLOCATED_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    limit: int
    committed: int
    allocated: int
    available: int
    models: _containers.RepeatedCompositeFieldContainer[ModelUsage]
    allocations: _containers.RepeatedCompositeFieldContainer[Allocation]
    def __init__(self, limit: _Optional[int] = ..., committed: _Optional[int] = ..., allocated: _Optional[int] = ..., available: _Optional[int] = ..., models: _Optional[_Iterable[_Union[ModelUsage, _Mapping]]] = ..., allocations: _Optional[_Iterable[_Union[Allocation, _Mapping]]] = ...) -> None: ...

class ModelUsage(_message.Message):
    __slots__ = ("model_id", "size", "num_allocations")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    size: int
    num_allocations: int
    def __init__(self, model_id: _Optional[str] = ..., size: _Optional[int] = ..., num_allocations: _Optional[int] = ...) -> None: ...

class Allocation(_message.Message):
    __slots__ = ("handle", "model_id", "shm_name", "size")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    SHM_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    model_id: str
    shm_name: str
    size: int
    def __init__(self, handle: _Optional[int] = ..., model_id: _Optional[str] = ..., shm_name: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...
