"""The command line of a server."""

from __future__ import annotations

import pytest

from puna.worker.llamacpp.command import server_command
from puna.worker.llamacpp.messages import Launch, ServerSettings

pytestmark = pytest.mark.unit


def test_layers_on_gpus_and_what_the_user_adds_come_after_ours():
    settings = ServerSettings(
        program="/bin/llama-server",
        arguments=["--n-gpu-layers", "99", "--device", "CUDA0"],
        directory="",
        context_length=64,
        num_slots=2,
        kv_type="f16",
        num_gpu_layers=7,
    )
    launch = Launch(settings, total_context=128, num_threads=3, is_embedding=False)
    program, *options = server_command(launch, 5, 6)
    assert program == "/bin/llama-server"
    assert options[-4:] == settings.arguments
    pairs = dict(zip(options[:-4:2], options[1:-4:2], strict=True))
    assert (pairs["--n-gpu-layers"], pairs["--ctx-size"], pairs["--parallel"]) == ("7", "128", "2")
    assert (pairs["--model"], pairs["--mmproj"]) == ("/proc/self/fd/5", "/proc/self/fd/6")
