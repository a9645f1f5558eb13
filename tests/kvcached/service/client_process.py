"""A client in a process of its own: commands come in as lines of JSON, each is answered by a line."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
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


def churn(client: Client, seed: int, num_calls: int, num_threads: int, max_size: int) -> dict[str, Any]:
    """Random calls from several threads; returns what is left allocated, and how often which error came."""
    held: list[dict[int, int]] = [{} for _ in range(num_threads)]  # sizes by handle
    errors: Counter[str] = Counter()

    def work(number: int) -> None:
        random = Random(f"{seed} {number}")
        mine: dict[int, mmap.mmap] = {}
        for _ in range(num_calls // num_threads):
            try:
                if mine and random.random() < 0.45:
                    handle, memory = mine.popitem() if random.random() < 0.5 else next(iter(mine.items()))
                    mine.pop(handle, None)
                    assert memory[:8] == handle.to_bytes(8, "big")
                    assert client.free(handle) == held[number].pop(handle) == len(memory)
                    if random.random() < 0.1:
                        client.free(handle)
                else:
                    made = client.allocate(random.randint(1, max_size), f"model {random.randint(1, 3)}")
                    held[number][made.handle] = made.size
                    mine[made.handle] = memory = mapped(made.shm_name)
                    assert not any(memory[:8])
                    memory[:8] = made.handle.to_bytes(8, "big")
            except grpc.RpcError as error:
                errors[error.code().name] += 1

    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(work, range(num_threads)))  # raises what one of them raised
    return {"held": {handle: size for each in held for handle, size in each.items()}, "errors": errors}


def run(client: Client, command: str, arguments: dict[str, Any]) -> Any:
    if command == "allocate":
        made = client.allocate(**arguments)
        return {"handle": made.handle, "shm_name": made.shm_name, "size": made.size}
    if command == "free":
        return client.free(**arguments)
    if command == "churn":
        return churn(client, **arguments)
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
