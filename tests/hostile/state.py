"""What somebody may do to a file of ours who can write it, but does not know the key."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 30))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def overwrite(path: Path, rng: random.Random) -> None:
    """A number that is too large, too small or negative, where a header may have one."""
    data = bytearray(path.read_bytes())
    number = rng.choice((b"\xff" * 4, b"\x00" * 4, b"\xff\xff\xff\x7f", b"\xff" * 8, b"\x01\0\0\0"))
    begin = 4 * rng.randrange(min(len(data), 300) // 4)
    data[begin : begin + len(number)] = number
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def extend(path: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.choice((1, 16, 4096))))


def make_huge(path: Path, _: random.Random) -> None:
    """In no more disk than before."""
    os.truncate(path, 1 << 40)


def fill(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def move_parts(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    begin, end = sorted(rng.randrange(len(data)) for _ in range(2))
    path.write_bytes(data[begin:end] + data[:begin] + data[end:])


def become_pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def become_link(path: Path, rng: random.Random) -> None:
    target = rng.choice(("/dev/zero", "/etc/passwd", "nowhere", path.name, path.parent))
    path.unlink()
    path.symlink_to(target)


def become_directory(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def date_in_future(path: Path, _: random.Random) -> None:
    os.utime(path, (2**33, 2**33))


CONTENT: tuple[Damage, ...] = (
    *(flip, flip, flip, overwrite, overwrite, truncate, extend, make_huge, fill, move_parts),
)
KIND: tuple[Damage, ...] = (become_pipe, become_link, become_directory)


def swap(paths: list[Path], rng: random.Random) -> None:
    """Whole, sound files under each other's names."""
    one, other = rng.sample(paths, 2)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
