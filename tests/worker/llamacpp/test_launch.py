"""What the launcher of a server believes of its worker, which may have been taken over by a file."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from puna.worker.call_client import CallClient
from puna.worker.calls import open_channel
from puna.worker.launch import child_environment, python_command
from puna.worker.llamacpp.messages import CROSSING, PROGRAM_VARIABLE, Launch, ServerSettings

pytestmark = pytest.mark.e2e


def test_it_becomes_the_program_that_was_named_when_it_was_started(tmp_path: Path):
    (tmp_path / "key").write_text("a secret")
    settings = ServerSettings(
        program=str(tmp_path / "key"), directory="", context_length=16, num_slots=1, kv_type="f16"
    )

    async def main() -> str:
        ours, theirs = open_channel()
        numbers = [*map(str, theirs.numbers)]
        launcher = subprocess.Popen(
            python_command(
                "puna.worker.llamacpp.launch", "--channel", *numbers, "--parent", str(os.getpid())
            ),
            env={**child_environment(), PROGRAM_VARIABLE: "/bin/echo"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=theirs.numbers,
        )
        theirs.close()
        client = await CallClient.connect(ours, crossing=CROSSING)
        with (tmp_path / "model").open("w+b") as model:
            launch = Launch(settings, total_context=16, num_threads=1, is_embedding=False)
            await client.call(launch, [model.fileno()])
        said, _ = launcher.communicate(timeout=30)
        await client.close()
        return said

    assert asyncio.run(main()).startswith("--model /proc/self/fd/")
