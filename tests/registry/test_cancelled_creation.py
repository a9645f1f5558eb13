"""A client that goes while weights are converted leaves nothing behind."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from puna.registry import ModelName
from puna.registry.creation.create import create
from puna.registry.creation.recipe import Recipe
from puna.registry.creation.tools import Tools
from puna.registry.progress import Progress

pytestmark = pytest.mark.unit


def test_a_conversion_that_is_broken_off(store, files_of):
    ended = []
    recipe = Recipe(
        name=ModelName.parse("m"),
        files={"model.safetensors": store.add_blob([b"weights"])},
        system="S",
        quantize="Q8_0",
    )
    before = files_of(store.root)

    async def convert(*_):
        try:
            yield Progress("half")
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def nothing(*_):
        pass

    async def break_off():
        tools = Tools(describe=nothing, check_templates=nothing, convert=convert, pull=nothing)
        async with aclosing(create(store, recipe, tools)) as statuses:
            assert [(await anext(statuses)).status for _ in range(2)] == ["converting model", "half"]
            assert files_of(store.root) > before

    asyncio.run(break_off())
    assert ended == [True]
    assert files_of(store.root) == before
