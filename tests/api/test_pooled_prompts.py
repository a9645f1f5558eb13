"""Prompts that become vectors: one that fails ends what is done for all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from puna.api.options import Options
from puna.api.pooled.prompts import PooledPrompts, Vector
from puna.api.requests import ModelRequest
from puna.registry import ModelName
from tests.api.conftest import AddModel
from tests.api.fake_runtime import FakeRuntime

pytestmark = pytest.mark.unit


def test_what_becomes_tokens_ends_with_a_prompt_that_fails(runtime: FakeRuntime, add_model: AddModel) -> None:
    add_model("m")
    ended = []

    def refuse(_: Vector) -> None:
        raise ValueError("not these")

    async def parts() -> AsyncGenerator[list[list[int]], None]:
        try:
            yield [[1], [2]]
            await asyncio.Event().wait()  # a text worker that takes its time
        finally:
            ended.append(True)

    async def main() -> None:
        async with runtime.resident(runtime.store.find(ModelName.parse("m"))) as resident:
            prompts = PooledPrompts(runtime, ModelRequest(model="m"), resident, Options(), refuse)
            with pytest.raises(ValueError, match="not these"):
                await asyncio.wait_for(prompts.compute(parts(), "mean"), 10)

    asyncio.run(main())
    assert ended == [True]
    assert runtime.num_generating == 0
