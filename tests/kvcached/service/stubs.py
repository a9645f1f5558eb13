"""What a client makes of kvcached.proto, by protoc and for grpcio: nothing of it is puna's."""

from __future__ import annotations

import importlib
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
from grpc_tools import protoc

from puna import kvcached


@cache
def modules() -> tuple[ModuleType, ModuleType]:
    """Messages and stubs. Imported beside puna's own messages: protobuf refuses any difference."""
    proto = kvcached.proto_path()
    with tempfile.TemporaryDirectory() as out:
        options = [f"-I{proto.parent}", f"--python_out={out}", f"--grpc_python_out={out}"]
        assert protoc.main(["protoc", *options, proto.name]) == 0
        sys.path.insert(0, out)
        try:
            return importlib.import_module("kvcached_pb2"), importlib.import_module("kvcached_pb2_grpc")
        finally:
            sys.path.remove(out)


class Client:
    """One channel; every call raises grpc.RpcError."""

    def __init__(self, path: Path | str) -> None:
        self.messages, stubs = modules()
        # A channel of its own: grpcio shares connections between channels with the same options.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"unix:{path}", options)
        self.stub = stubs.KVCachedStub(self.channel)

    def allocate(self, size: int, model_id: str = "m", timeout: float = 60) -> Any:
        return self.stub.Allocate(self.messages.AllocRequest(size=size, model_id=model_id), timeout=timeout)

    def free(self, handle: int) -> int:
        return self.stub.Free(self.messages.FreeRequest(handle=handle), timeout=60).size

    def stats(self, *, list_allocations: bool = False) -> Any:
        request = self.messages.StatsRequest(list_allocations=list_allocations)
        return self.stub.GetStats(request, timeout=60)

    def close(self) -> None:
        self.channel.close()
