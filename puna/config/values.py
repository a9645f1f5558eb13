"""Values of environment variables. Each parser raises ValueError for what is none."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from puna.config.quantities import keep_alive_seconds, parse_duration, parse_memory_limit, parse_size


def parse_keep_alive(text: str) -> float:
    """Seconds; a number without a unit counts them; negative: math.inf."""
    return keep_alive_seconds(int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else text)


def parse_timeout(text: str) -> float:
    """Seconds; 0: math.inf."""
    return parse_keep_alive(text) or math.inf


def parse_count(text: str) -> int:
    """A whole number."""
    if re.fullmatch(r"-\d+", text, re.ASCII):
        raise ValueError(f'"{text}" is negative')
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise ValueError(f'"{text}" is not a number')
    return int(text)


def parse_positive(text: str) -> int:
    """A whole number but 0."""
    if (count := parse_count(text)) < 1:
        raise ValueError(f'"{text}" is not a positive number')
    return count


def parse_most(text: str) -> int | None:
    """A whole number; None for 0, which is no bound."""
    return parse_count(text) or None


def parse_bool(text: str) -> bool:
    """As Ollama reads switches."""
    # Whatever is no Go boolean counts as true: who sets OLLAMA_DEBUG=2 or =yes means it.
    return text not in ("0", "f", "F", "false", "FALSE", "False")


def parse_switch(text: str) -> bool:
    """As ours are read."""
    name = text.lower()
    if name not in ("1", "t", "true", "yes", "on", "0", "f", "false", "no", "off"):
        raise ValueError(f'"{text}" is neither true nor false')
    return name in ("1", "t", "true", "yes", "on")


def parse_gigabytes(text: str) -> int:
    """Bytes; a number without a unit counts GiB."""
    return parse_memory_limit(text, unit=1 << 30)


def parse_most_on_disk(text: str) -> int:
    """Bytes; 0 is a limit, too."""
    return parse_memory_limit(text) if parse_size(text) else 0


def parse_list(text: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def parse_mirrors(text: str) -> tuple[tuple[str, str], ...]:
    """(host, URL) each."""
    return tuple(_parse_mirror(item) for item in parse_list(text))


def _parse_mirror(item: str) -> tuple[str, str]:
    host, _, url = (part.strip() for part in item.partition("="))
    parts = urlsplit(url)
    if (
        not host
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ValueError(f'"{item}" is not a host and a URL (try hf.co=https://mirror.example/hf)')
    return host, url.rstrip("/")


def parse_shares(text: str) -> tuple[tuple[str, float], ...]:
    """(name, share) each."""
    return tuple(_parse_share(item) for item in parse_list(text))


def _parse_share(item: str) -> tuple[str, float]:
    name, _, number = (part.strip() for part in item.rpartition("="))
    if not name or not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", number, re.ASCII) or float(number) == 0:
        raise ValueError(f'"{item}" is not a model and a positive number (try llama3.2=2)')
    return name, float(number)


def parse_guarantees(text: str) -> tuple[tuple[str, int], ...]:
    """(name, bytes) each."""
    return tuple(_parse_guarantee(item) for item in parse_list(text))


def _parse_guarantee(item: str) -> tuple[str, int]:
    name, _, size = (part.strip() for part in item.rpartition("="))
    try:
        num_bytes = parse_size(size)
    except ValueError:
        num_bytes = -1
    if not name or num_bytes < 0:
        raise ValueError(f'"{item}" is not a model and a size (try llama3.2=512MiB)')
    return name, num_bytes


def parse_arguments(text: str) -> tuple[str, ...]:
    """As a shell takes a line apart."""
    return tuple(shlex.split(text))


def parse_drain(text: str) -> float:
    """Seconds, 0 at least."""
    if (seconds := parse_duration(text)) < 0:
        raise ValueError(f'"{text}" is negative')
    return seconds


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """A parser of one of these words, in any case."""

    def parse(text: str) -> str:
        if (word := text.lower()) not in choices:
            raise ValueError(f'"{text}" is not one of {", ".join(choices)}')
        return word

    return parse
