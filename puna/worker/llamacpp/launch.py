"""`python -m puna.worker.llamacpp.launch`: cages itself, and becomes llama.cpp's server for one model.

Started in the directory in which that listens. Which program it becomes and what that may read does not hang
on what the worker says, which has read a stranger's file by then.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import NoReturn

from puna.worker.cage import enter
from puna.worker.cage.program_rules import places_of, program_rules
from puna.worker.calls import CallServer
from puna.worker.child import begin
from puna.worker.launch import child_environment
from puna.worker.llamacpp.command import server_command, server_environment
from puna.worker.llamacpp.messages import CROSSING, PROGRAM_VARIABLE, Launch
from puna.worker.llamacpp.wheel import package_places, serve


def main() -> int:
    channel = begin("llama.cpp")
    calls = CallServer(channel, Launch, CROSSING)
    asked = calls.read()
    if asked is None:  # the worker has ended
        return 0
    program = os.environ[PROGRAM_VARIABLE]
    try:
        files = [_to_read(descriptor) for descriptor in asked.descriptors]
        places = places_of(Path(program)) if program else package_places()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # prompts would be in it
        calls.answer(asked.call, enter(program_rules(places, Path.cwd(), *files)))
    except Exception as error:
        calls.fail(asked.call, error)
        return 1
    calls.close()
    return _become(program, asked.message, *files)


def _to_read(descriptor: int) -> int:
    """For a program that inherits it: files that the worker has written are not the server's to write."""
    opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    os.close(descriptor)
    os.set_inheritable(opened, True)
    return opened


def _become(program: str, launch: Launch, *files: int) -> NoReturn:
    if not program:
        serve(launch, *files)
    command = server_command(launch, *files)
    os.execve(program, command, {**child_environment(), **server_environment()})


if __name__ == "__main__":
    raise SystemExit(main())
