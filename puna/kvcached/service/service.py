"""KVCached: memory for other processes, under one budget with the daemon's models."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from puna.kvcached.service import kvcached_pb2 as pb
from puna.kvcached.service.allocations import Allocations, Budget
from puna.kvcached.service.clients import Clients
from puna.kvcached.service.endpoint import Endpoint
from puna.kvcached.service.grpc_connection import GrpcConnection, Method, Reply, RpcError, Status
from puna.worker.call_client import WorkerDied

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class KvCachedService:
    """Serves an endpoint, which must stay open until the service is closed."""

    def __init__(self, budget: Budget, endpoint: Endpoint) -> None:
        self.budget = budget
        self.allocations = Allocations(budget, endpoint.memory)
        self.clients = Clients(self.allocations.reclaim)
        self.connections: set[GrpcConnection] = set()
        self._listener = endpoint.listener

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), sock=self._listener)

    async def close(self) -> None:
        """After the budget's end, so that no call waits for it. Clients keep what they have mapped."""
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        self.clients.close()
        await self.allocations.close()


class _Connection(GrpcConnection):
    """Of one client, who may have others."""

    def __init__(self, service: KvCachedService) -> None:
        super().__init__(
            {
                "/KVCached/Allocate": _method(pb.AllocRequest, self._allocate, self._undo_allocate),
                "/KVCached/Free": _method(pb.FreeRequest, self._free),
                "/KVCached/GetStats": _method(pb.StatsRequest, self._get_stats),
            }
        )
        self._service = service

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client = self._service.clients.connected(transport.get_extra_info("socket"))
        self._service.connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._service.connections.discard(self)
        self._service.clients.disconnected(self._client)

    async def _allocate(self, request: pb.AllocRequest) -> pb.AllocResponse:
        made = await self._service.allocations.allocate(self._client, request.size, request.model_id)
        return pb.AllocResponse(handle=made.handle, shm_name=made.shm_name, size=made.size)

    def _undo_allocate(self, response: pb.AllocResponse) -> None:
        self._service.allocations.take_back(response.handle)

    async def _free(self, request: pb.FreeRequest) -> pb.FreeResponse:
        return pb.FreeResponse(size=await self._service.allocations.free(self._client, request.handle))

    async def _get_stats(self, request: pb.StatsRequest) -> pb.StatsResponse:
        available = await self._service.allocations.available()
        stats = (await self._service.budget.observe()).stats
        if stats is None:
            raise WorkerDied
        models: dict[str, pb.ModelUsage] = {}
        for each in self._service.allocations.all():
            usage = models.setdefault(each.model_id, pb.ModelUsage(model_id=each.model_id))
            usage.size += each.size
            usage.num_allocations += 1
        return pb.StatsResponse(
            limit=stats.kv_limit_bytes,
            committed=stats.leased_bytes + sum(model.committed_kv_bytes for model in stats.models),
            allocated=stats.leased_bytes,
            available=available,
            models=[models[model_id] for model_id in sorted(models)],
            allocations=self._own_allocations() if request.list_allocations else [],
        )

    def _own_allocations(self) -> list[pb.Allocation]:
        return [
            pb.Allocation(handle=own.handle, model_id=own.model_id, shm_name=own.shm_name, size=own.size)
            for own in self._service.allocations.of(self._client)
        ]


def _method(
    kind: type[Request],
    call: Callable[[Request], Awaitable[Response]],
    undo: Callable[[Response], None] | None = None,
) -> Method:
    async def method(message: bytes) -> Reply:
        try:
            request = kind.FromString(message)
        except DecodeError as error:
            text = f"this is no {kind.__name__}: {error}"
            raise RpcError(Status.INVALID_ARGUMENT, text) from error
        try:
            response = await call(request)
        except WorkerDied as error:
            raise RpcError(Status.UNAVAILABLE, str(error)) from error
        except TimeoutError as error:
            raise RpcError(Status.UNAVAILABLE, "the engine does not answer") from error
        return Reply(response.SerializeToString(), partial(undo, response) if undo is not None else None)

    return method
