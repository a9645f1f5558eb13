"""A worker with llama.cpp's own server, from the xllamacpp package: what the fake one cannot show."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from puna.backends.base import ModelInfo, ModelLoadError
from puna.engine.request import Request, SamplingParams, StepOutput
from puna.worker.engine.messages import Load
from puna.worker.engine.process import WorkerProcess
from puna.worker.llamacpp.messages import ServerSettings, StartServer
from tests.tiny import TINY, write_tiny
from tests.tiny.encoders import ENCODERS
from tests.tiny.towers import write_seeing

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def started(
    directory: Path,
    path: Path,
    max_queue: int = 8,
    projector: Path | None = None,
    context_length: int = 64,
) -> AsyncIterator[tuple[WorkerProcess, ModelInfo]]:
    settings = ServerSettings(
        program="",
        directory=str(directory / "run"),
        context_length=context_length,
        num_slots=2,
        max_queue=max_queue,
        num_threads=1,
        kv_type="f16",
    )
    worker = await WorkerProcess.start_as("puna.worker.llamacpp", StartServer(settings))
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb"))]
        files.append(stack.enter_context(tempfile.TemporaryFile(dir=directory)))
        files += [stack.enter_context(projector.open("rb"))] if projector else []
        descriptors = [file.fileno() for file in files]
        load = Load("m", "tiny", sees=projector is not None)
        try:
            yield worker, await worker.client.call(load, descriptors)
        finally:
            await worker.terminate()


async def outputs_of(worker: WorkerProcess, request: Request) -> list[StepOutput]:
    async with worker.client.stream(request) as outputs:
        return [output async for output in outputs]


def test_requests_at_once_a_cancelled_one_and_seeds(tmp_path: Path):
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])

    def request(request_id: str, seed: int, max_tokens: int = 8) -> Request:
        sampling = SamplingParams(seed=seed, temperature=1.0, num_logprobs=1)
        return Request(
            id=request_id, model_id="m", prompt=[1, 2, 3], sampling=sampling, max_tokens=max_tokens
        )

    async def main() -> None:
        async with started(tmp_path, path) as (worker, info):
            assert (info.vocab_size, info.context_length, info.num_layers) == (270, 64, 2)
            assert info.scratch_bytes > 1 << 20
            async with worker.client.stream(request("left", 1, 60)) as outputs:
                await anext(outputs)
            seeds = (7, 7, 2**32 - 2)
            asked = [outputs_of(worker, request(str(n), seed)) for n, seed in enumerate(seeds)]
            replies = await asyncio.gather(*asked)
            drawn = [[each.token for output in reply for each in output.logprobs] for reply in replies]
            assert drawn[0] == drawn[1] != drawn[2]
            assert [reply[-1].stats.generated_tokens for reply in replies] == [8, 8, 8]
            refused = await outputs_of(worker, Request(id="e", model_id="m", prompt=[1], pooling="last"))
            assert (refused[-1].finish_reason, "embeddings" in refused[-1].error) == ("refused", True)

    asyncio.run(main())


def test_a_request_that_would_wait_too_long_is_told_so(tmp_path: Path):
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])

    async def main() -> None:
        running = started(tmp_path, path, max_queue=0, context_length=2048)
        async with running as (worker, _), AsyncExitStack() as stack:
            for name in ("first", "second"):
                asked = Request(id=name, model_id="m", prompt=[1] * 3, max_tokens=2000)
                stream = await stack.enter_async_context(worker.client.stream(asked))
                worker.client.pause(stream, paused=True)  # so that it does not end
            late = Request(id="late", model_id="m", prompt=[1])
            assert [output.finish_reason for output in await outputs_of(worker, late)] == ["busy"]

    asyncio.run(main())


def test_embeddings_are_not_of_unit_length(tmp_path: Path):
    path = write_tiny(tmp_path / "bert.gguf", ENCODERS["bert"])

    async def main() -> None:
        async with started(tmp_path, path) as (worker, info):
            request = Request(id="e", model_id="m", prompt=[1, 2, 3], pooling=info.pooling)
            (output,) = await outputs_of(worker, request)
            vector = np.frombuffer(output.embedding, np.float32)
            assert vector.shape == (info.hidden_size,)
            assert abs(np.linalg.norm(vector) - 1) > 0.1

    asyncio.run(main())


def test_a_file_that_it_cannot_load(tmp_path: Path):
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])
    path.write_bytes(path.read_bytes().replace(b"blk.1.attn_q", b"blk.1.attn_x"))

    async def main() -> None:
        with pytest.raises(ModelLoadError, match=r"tensor 'blk\.1\.attn_q\.weight' not found"):
            async with started(tmp_path, path):
                pass

    asyncio.run(main())


@pytest.mark.parametrize("name", ["gemma3", "qwen3vl"])  # of the others, tests/gguf/test_projectors.py
def test_images_are_seen_in_files_as_they_were_published(name: str, tmp_path: Path):
    image = io.BytesIO()
    Image.effect_noise((112, 112), 80).convert("RGB").save(image, "PNG")
    (model, projector), published = write_seeing(tmp_path, name)

    async def said(path: Path, projector: Path) -> list[list[tuple[int, float]]]:
        """Of the image, and of a text."""
        sampling = SamplingParams(temperature=0.0, num_logprobs=0)
        common = {"model_id": "m", "prompt": [1, 2], "sampling": sampling, "max_tokens": 4}
        seeing = Request(id="s", images=[image.getvalue()], pieces=["ab", "cd"], **common)
        async with started(tmp_path, path, projector=projector) as (worker, _):
            replies = [await outputs_of(worker, asked) for asked in (seeing, Request(id="t", **common))]
        assert all(outputs[-1].finish_reason == "length" for outputs in replies), replies
        tokens = [[each for output in outputs for each in output.logprobs] for outputs in replies]
        return [[(each.token, each.logprob) for each in reply] for reply in tokens]

    async def main() -> None:
        expected = await said(model, projector)
        assert await said(published, published) == expected
        assert expected[0] != expected[1]

    asyncio.run(main())
