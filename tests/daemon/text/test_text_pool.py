"""Text workers as the daemon uses them: real processes, real limits."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import date
from pathlib import Path

import msgspec
import pytest

from puna.backends.base import ModelSource
from puna.chat.errors import PromptError, TemplateError
from puna.chat.messages import Message
from puna.chat.prompt import PromptRequest
from puna.chat.templates.model_templates import ModelTemplates
from puna.daemon.busy import ServerBusy
from puna.daemon.text.model import TextModel
from puna.daemon.text.pool import TextPool
from puna.daemon.text.workers import NUM_READY
from puna.gguf import GgufError
from puna.tokenizer import Tokenizer
from puna.worker.call_client import WorkerDied
from puna.worker.text.limits import Limits
from tests.api.ggufs import CHATML, write_gguf

pytestmark = pytest.mark.native

TIGHT = Limits(prompt_cpu_s=0.15, memory_bytes=128 << 20)
LOOSE = Limits(prompt_cpu_s=60)
HI = PromptRequest(messages=[Message("user", "hi")], context_length=2048)
LONG = PromptRequest(prompts=["over the lazy dog " * 60_000], raw=True, context_length=64)

REPEAT = "{% for i in range(60) %}"
NESTED = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{{ '' }}"
GO_BOMBS = [
    '{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}',
    '{{ define "t" }}{{ range 99 }}{{ template "t" . }}{{ end }}{{ end }}{{ template "t" . }}',
    "{{ range 1000000000 }}{{ end }}",
    "{{ range 9999 }}{{ range 9999 }}{{ range 9999 }}x{{ end }}{{ end }}{{ end }}",
    '{{ $s := "xxxxxxxxxx" }}{{ range 99 }}{{ $s = printf "%s%s" $s $s }}{{ end }}{{ $s }}',
    '{{ $s := "x" }}{{ range 9999 }}{{ $s = json $s }}{{ end }}{{ $s }}',
    '{{ range 9999 }}{{ printf "%999999d" 1 }}{{ end }}',
    '{{ range 9999 }}{{ printf "%.999999f" 1.5 }}{{ end }}',
    "{{ if .System }}" * 20000,
    "{{ " + "(" * 90000,
    "{{ .Prompt }}" * 80000 + "{{",
]
BOMBS = [
    NESTED + "{% endfor %}" * 3,
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{{ 'x' * 10 ** 10 }}",
    "{{ ('x' * 10 ** 8) * 20 }}",
    "{{ ['x'] * 10 ** 10 }}",
    "{{ ([0] * 10 ** 6) * 10 ** 3 }}",
    "{{ 3 ** (10 ** 9) }}",
    "{{ 7 ** (7 ** (7 ** 7)) }}",
    "{{ (2 ** 100000000) % 7 * (3 ** 50000000) }}",
    "{% set n = namespace(s='x') %}" + REPEAT + "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
    "{% set n = namespace(s='x') %}" + REPEAT + "{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "{% set n = namespace(l=[]) %}" + REPEAT + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
    "{% set n = namespace(l=[]) %}" + REPEAT + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson }}",
    "{% set n = namespace(l=[0]) %}" + REPEAT + "{% set n.l = n.l + n.l %}{% endfor %}{{ n.l | length }}",
    "{% set n = namespace(n=3) %}" + REPEAT + "{% set n.n = n.n * n.n %}{% endfor %}{{ n.n }}",
    "{% set s = 'x' * 100000 %}{{ s.replace('x', s) | length }}",
    "{% set s = 'x' * 100000 %}{{ s.join(s) | length }}",
    "{% set s = '\n' * 100000 %}{{ s | indent(100000, blank=true) | length }}",
    "{{ 'x'.center(10 ** 10) }}",
    "{{ '\t'.expandtabs(2000000000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ messages | tojson(indent=1000000000) }}",
    "{{ range(99999) | map('string') | join('x' * 99999) | length }}",
    "{% for i in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 100000 + "1 }}",
]


@asynccontextmanager
async def pool_of(limits: Limits = LOOSE) -> AsyncIterator[TextPool]:
    pool = TextPool(limits)
    pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def run(work: Callable[[TextPool], Awaitable[None]], limits: Limits = LOOSE) -> None:
    async def whole() -> None:
        async with pool_of(limits) as pool:
            await asyncio.wait_for(work(pool), 100)

    before = descriptors()
    asyncio.run(whole())
    assert descriptors() == before


def descriptors() -> dict[str, str]:
    return {path.name: str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()}


def sockets_of(pid: int) -> set[str]:
    """Besides that of its log."""
    links = {int(path.name): str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return {link for number, link in links.items() if number > 2 and link.startswith("socket:")}


@asynccontextmanager
async def opened(pool: TextPool, path: Path) -> AsyncIterator[TextModel]:
    with ModelSource.open(path) as source:
        model = await pool.open_model(source)
    yield model
    pool.close_model(model)


def workers(pool: TextPool) -> list[int]:
    return [worker.pid for worker in pool._workers._workers]


def zygote(pool: TextPool) -> int:
    process = pool._workers._zygote.process
    return 0 if process is None else process.pid


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("text") / "plain.gguf")


def test_a_model_is_inspected_described_and_prompted(plain: Path):
    async def work(pool: TextPool) -> None:
        with ModelSource.open(plain) as source:
            record = await pool.inspect(source)
            for verbose in (False, True):
                async with pool.describe(source, verbose=verbose, with_template=True) as descriptor:
                    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                description = json.loads(b"{" + content + b"}")
                tokens = description["model_info"]["tokenizer.ggml.tokens"]
                assert len(tokens) > 256 if verbose else tokens is None
        assert record.capabilities == ("completion",)
        assert (record.context_length, record.embedding_length) == (2048, 32)
        assert (record.parameter_count, record.weight_bytes, record.quantization) == (160, 640, "F32")
        assert description["template"] == CHATML
        assert {"name": "token_embd.weight", "type": "F32", "shape": [32, 4]} in description["tensors"]
        async with opened(pool, plain) as model:
            tokenizer = Tokenizer.from_descriptor(model.vocabulary)
            assert os.fstat(model.token_table).st_size == len(tokenizer.token_table())
            (prompt,) = await pool.build_prompts(model, HI)
            assert prompt.tokens == tokenizer.encode(
                "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
            )
            request = PromptRequest(prompts=["hi"], context=[10**5], context_length=64)
            with pytest.raises(PromptError, match="context has token 100000"):
                await pool.build_prompts(model, request)

    run(work)


def test_nobody_waits_for_those_who_do_not_read_what_is_long(plain: Path, tmp_path: Path):
    long = write_gguf(tmp_path / "long.gguf", extra="x" * (2 << 20))

    async def work(pool: TextPool) -> None:
        with ModelSource.open(plain) as source, ModelSource.open(long) as other:
            async with AsyncExitStack() as unread:
                for _ in range(4):
                    await unread.enter_async_context(pool.describe(other, verbose=True, with_template=True))
                with pytest.raises(ServerBusy):
                    async with pool.describe(other, verbose=True, with_template=True):
                        pass
                async with pool.describe(source, verbose=True, with_template=True):
                    pass
            async with pool.describe(other, verbose=True, with_template=True):
                pass

    run(work)


def test_workers_are_caged(plain: Path):
    async def work(pool: TextPool) -> None:
        with ModelSource.open(plain) as source:
            await pool.inspect(source)
        assert [status.pid for status in pool.processes] == workers(pool)
        assert all(status.cage.seccomp and not status.cage.is_low for status in pool.processes)
        for pid in workers(pool):
            assert "Seccomp:\t2" in await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
            assert not sockets_of(pid) & sockets_of(zygote(pool))

    run(work)


def test_what_was_made_of_a_file_is_there_when_it_is_opened_again(tmp_path: Path):
    path = write_gguf(tmp_path / "m.gguf", template=CHATML)

    async def work(pool: TextPool) -> None:
        async with opened(pool, path) as first:
            async with opened(pool, path) as other:
                assert other.vocabulary != first.vocabulary
            prompts = await pool.build_prompts(first, HI)
        async with opened(pool, path) as again:
            assert (again.vocabulary, again.token_table) == (first.vocabulary, first.token_table)
            assert await pool.build_prompts(again, HI) == prompts
        with path.open("ab") as file:
            file.write(b"changed")
        async with opened(pool, path) as changed:
            assert changed.vocabulary != first.vocabulary

    run(work)


def test_what_is_kept_of_unused_models_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puna.daemon.text.pool._UNUSED_BYTES", 100_000)
    before = descriptors()

    async def work(pool: TextPool) -> None:
        for number in range(20):
            async with opened(pool, write_gguf(tmp_path / f"{number}.gguf", template=CHATML)) as model:
                num_bytes = os.fstat(model.vocabulary).st_size + os.fstat(model.token_table).st_size
        kept = sum("memfd" in link for number, link in descriptors().items() if number not in before)
        assert 0 < kept <= 2 * (100_000 // num_bytes) < 40

    run(work)
    assert descriptors() == before


def test_what_a_file_gets_wrong_is_in_its_record(tmp_path: Path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"nonsense")
    wrong = write_gguf(tmp_path / "wrong.gguf", template="{% nonsense %}")

    async def work(pool: TextPool) -> None:
        with ModelSource.open(bad) as source:
            assert "bad.gguf" in (await pool.inspect(source)).error
            with pytest.raises(GgufError, match=r"bad\.gguf"):
                await pool.open_model(source)
            with pytest.raises(GgufError, match=r"bad\.gguf"):
                async with pool.describe(source, verbose=True, with_template=True):
                    pass
        with ModelSource.open(wrong) as source:
            assert (await pool.inspect(source)).error == ""
            with pytest.raises(TemplateError, match="line 1 of the chat template"):
                await pool.check_template(source, ModelTemplates())
        async with opened(pool, wrong) as model:
            with pytest.raises(TemplateError, match="line 1 of the chat template"):
                await pool.build_prompts(model, HI)
            request = PromptRequest(prompts=["hi"], raw=True, context_length=64)
            assert len(await pool.build_prompts(model, request)) == 1

    run(work)


def test_a_file_that_crashes_its_reader_is_one_that_cannot_be_used(plain: Path):
    """Else each list of models would fail because of it."""

    async def work(pool: TextPool) -> None:
        while not (pids := workers(pool)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with ModelSource.open(plain) as source:
            record = asyncio.ensure_future(pool.inspect(source))
            while not pool._workers._running:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            for pid in pids:
                os.kill(pid, signal.SIGSEGV)
                os.kill(pid, signal.SIGCONT)
            assert (await record).error == "reading the model's file crashed: Segmentation fault"
            assert (await pool.inspect(source)).error == ""

    run(work)


def test_what_templates_may_use_works_in_a_cage(tmp_path: Path):
    """Also what Python and Jinja load when it is first used."""
    go = '{{ if .Prompt }}{{ 1.5e9 }} {{ urlquery "ä" }} {{ json .Prompt }} {{ currentDate }}{{ end }}'
    path = write_gguf(
        tmp_path / "late.gguf", template=r"{{ '\N{BULLET}' }}{{ '<b>1</b> &amp;' | striptags }}"
    )

    async def work(pool: TextPool) -> None:
        async with opened(pool, path) as model:
            (prompt,) = await pool.build_prompts(model, HI)
            assert prompt.text == "\N{BULLET}1 &"
            request = msgspec.structs.replace(HI, templates=ModelTemplates(go=go, prefers_go=True))
            (prompt,) = await pool.build_prompts(model, request)
            assert prompt.text == f'1.5e+09 %C3%A4 "hi" {date.today().isoformat()}'

    run(work)


def test_bombs_end_with_an_error_of_their_own(tmp_path: Path, plain: Path):
    """Whether they go off when the template is compiled or when it is rendered."""
    paths = [write_gguf(tmp_path / f"{n}.gguf", template=bomb) for n, bomb in enumerate(BOMBS)]

    async def set_off(pool: TextPool, path: Path) -> str:
        with ModelSource.open(path) as source:
            assert (await pool.inspect(source)).parameter_count == 160
            with suppress(TemplateError):
                await pool.check_template(source, ModelTemplates())
        async with opened(pool, path) as model:
            with pytest.raises((TemplateError, WorkerDied)) as caught:
                await pool.build_prompts(model, HI)
        assert len(str(caught.value)) < 1100
        if "processor time" in str(caught.value):
            assert model.has_killed, "what follows leaves others room"
        return str(caught.value)

    async def set_off_go(pool: TextPool, templates: ModelTemplates) -> str:
        with ModelSource.open(plain) as source:
            record = await pool.inspect(source, templates)
            assert record.parameter_count == 160 or "reading the model's file took" in record.error
        async with opened(pool, plain) as model:
            with pytest.raises((TemplateError, WorkerDied)) as caught:
                await pool.build_prompts(model, msgspec.structs.replace(HI, templates=templates))
            return str(caught.value)

    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            bombs = asyncio.gather(
                *(set_off(pool, path) for path in paths),
                *(set_off_go(pool, ModelTemplates(go=bomb)) for bomb in GO_BOMBS),
            )
            while not bombs.done():
                assert await pool.build_prompts(model, HI)
                await asyncio.sleep(0.02)
            errors = await bombs
            assert "the chat template took more than 0.15 s of processor time" in errors
            assert "the chat template took more than 128 MiB of memory" in errors

    run(work, TIGHT)


def test_a_long_prompt_that_takes_too_long_is_the_clients_mistake(plain: Path):
    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            request = PromptRequest(prompts=["a b " * 10**7], raw=True, context_length=64)
            with pytest.raises(PromptError, match="turning the prompt into tokens took more than"):
                await pool.build_prompts(model, request)
            too_large = PromptRequest(prompts=["x" * (65 << 20)], raw=True, context_length=64)
            with pytest.raises(PromptError, match="larger than any message"):
                await pool.build_prompts(model, too_large)
            assert await pool.build_prompts(model, HI)

    run(work, TIGHT)


def test_short_prompts_do_not_wait_for_long_ones(plain: Path):
    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            longs = [asyncio.ensure_future(pool.build_prompts(model, LONG)) for _ in range(12)]
            await asyncio.sleep(0)
            for _ in range(20):
                await pool.build_prompts(model, HI)
            assert not all(task.done() for task in longs)
            await asyncio.gather(*longs)

    run(work)


def test_who_stops_waiting_leaves_no_trace(plain: Path):
    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            tasks = [asyncio.ensure_future(pool.build_prompts(model, LONG)) for _ in range(10)]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert not pool._workers._waiting
            while pool._workers._running:
                await pool.build_prompts(model, HI)

    run(work)


def test_a_worker_that_comes_too_late_for_any_job_goes_again(plain: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puna.daemon.text.workers._IDLE_S", 0.2)

    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            await pool.build_prompts(model, HI)
        await asyncio.sleep(0.5)  # by then nobody looks at those that have had a job
        pool._workers._fork_soon()
        while len(workers(pool)) <= NUM_READY:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while len(workers(pool)) > NUM_READY:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    run(work)


def test_only_what_a_killed_process_was_at_is_affected(plain: Path):
    """And that is tried again, once."""
    draw = random.Random(1)

    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            for number in range(12):
                tasks = [asyncio.ensure_future(pool.build_prompts(model, HI)) for _ in range(20)]
                await asyncio.sleep(draw.uniform(0, 0.01))
                doomed = zygote(pool) if number % 4 == 3 else draw.choice(workers(pool))
                os.kill(doomed, signal.SIGKILL)
                for prompts in await asyncio.gather(*tasks):
                    assert len(prompts) == 1
                while doomed in (zygote(pool), *workers(pool)) or len(workers(pool)) < NUM_READY:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    run(work)


def test_who_comes_behind_something_large_gets_another_worker(plain: Path):
    """A worker that has grown leaves after its answer."""

    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            first = workers(pool)
            prompts = [pool.build_prompts(model, LONG if number % 4 == 0 else HI) for number in range(16)]
            await asyncio.gather(*prompts)
            assert not set(first) & set(workers(pool))

    run(work, Limits(prompt_cpu_s=60, kept_bytes=4 << 20))


def test_after_the_end_nobody_waits(plain: Path):
    async def work(pool: TextPool) -> None:
        async with opened(pool, plain) as model:
            pids = [zygote(pool), *workers(pool)]
            request = PromptRequest(prompts=["a b " * 10**6], raw=True, context_length=64)
            tasks = [asyncio.ensure_future(pool.build_prompts(model, request)) for _ in range(5)]
            await asyncio.sleep(0.01)
            await pool.close()
            for task in tasks:
                with pytest.raises(WorkerDied, match="shutting down"):
                    await task
            with pytest.raises(WorkerDied, match="shutting down"):
                await pool.build_prompts(model, HI)
            for pid in pids:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)

    run(work)


def test_a_file_cut_short_while_it_is_open_is_an_error(plain: Path, tmp_path: Path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(plain.read_bytes())

    async def work(pool: TextPool) -> None:
        with ModelSource.open(path) as source:
            os.truncate(path, 1000)
            assert "cut.gguf" in (await pool.inspect(source)).error
            with pytest.raises(GgufError, match=r"cut\.gguf"):
                await pool.open_model(source)

    run(work)
