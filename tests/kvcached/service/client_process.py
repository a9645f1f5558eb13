"""A client in a process of its own: commands come in as lines of JSON, each is answered by a line."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc

from tests.kvcached.service.stubs import Client


class ClientProcess:
    """The test's side."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", "tests.kvcached.service.client_process", str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, command: str, **arguments: Any) -> None:
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        return json.loads(self.process.stdout.readline())

    def call(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.receive()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def write(shm_name: str, text: str) -> None:
    with mapped(shm_name) as memory:
        memory[: len(text)] = text.encode()


def mapped(shm_name: str) -> mmap.mmap:
    descriptor = os.open(f"/dev/shm{shm_name}", os.O_RDWR)
    try:
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)


def run(client: Client, command: str, arguments: dict[str, Any]) -> Any:
    if command == "allocate":
        made = client.allocate(**arguments)
        return {"handle": made.handle, "shm_name": made.shm_name, "size": made.size}
    if command == "free":
        return client.free(**arguments)
    assert command == "write"
    return write(**arguments)


def main() -> None:
    client = Client(sys.argv[1])
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            result = run(client, command, arguments)
        except grpc.RpcError as error:
            result = {"error": error.code().name, "text": error.details()}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
