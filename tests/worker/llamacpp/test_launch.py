"""What the launcher of a server believes of its worker, which may have been taken over by a file."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from puna.worker.call_client import CallClient
from puna.worker.calls import Channel, open_channel
from puna.worker.launch import child_environment, python_command
from puna.worker.llamacpp.messages import CROSSING, PROGRAM_VARIABLE, Launch, ServerSettings

pytestmark = pytest.mark.e2e


def launcher_of(program: str, directory: Path) -> tuple[subprocess.Popen[str], Channel]:
    ours, theirs = open_channel()
    arguments = ["--channel", *map(str, theirs.numbers), "--parent", str(os.getpid())]
    launcher = subprocess.Popen(
        python_command("puna.worker.llamacpp.launch", *arguments),
        env={**child_environment(), PROGRAM_VARIABLE: program},
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=theirs.numbers,
    )
    theirs.close()
    return launcher, ours


def test_it_becomes_the_program_that_was_named_when_it_was_started(tmp_path: Path):
    key = tmp_path / "key"
    key.write_text("a secret")
    settings = ServerSettings(program=str(key), directory="", context_length=16, num_slots=1, kv_type="f16")
    launcher, channel = launcher_of("/bin/echo", tmp_path)

    async def launch() -> None:
        client = await CallClient.connect(channel, crossing=CROSSING)
        message = Launch(settings, total_context=16, num_threads=1, is_embedding=False)
        await client.call(message, [model.fileno()])
        await client.close()

    with (tmp_path / "model").open("w+b") as model:
        asyncio.run(launch())
    said, _ = launcher.communicate(timeout=30)
    assert said.startswith("--model /proc/self/fd/")
