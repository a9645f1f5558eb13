"""The limit that libkvcached begins with is that of the environment, read as the daemon reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from puna import kvcached
from puna.config.settings import Settings, SettingsError

pytestmark = pytest.mark.native

NAME = "OLLAMA_KVCACHED_MEMORY_GB"


@pytest.fixture
def limit_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    def limit_of(text: str) -> int:
        monkeypatch.setenv(NAME, text)
        kvcached.init_kvcached()
        limit = kvcached.memory_stats().limit
        kvcached.shutdown_kvcached()
        return limit

    yield limit_of
    kvcached.shutdown_kvcached()


@pytest.mark.parametrize(
    "text",
    ["20", "0.5", "512MiB", "512mb", "1.5g", "7 GB", "1_048,576b", "2000k", '"2"', " 3 ", "1tb", "64T"],
)
def test_as_the_daemon_reads_it(limit_of: Callable[[str], int], text: str):
    assert limit_of(text) == Settings.from_environment({"HOME": "/nowhere", NAME: text}).kv_limit_bytes


@pytest.mark.parametrize(
    "text",
    [
        "12x",
        "-1",
        "0",
        "0.0GB",
        "GB",
        "1.",
        ".5",
        "1e9",
        "1.2.3",
        "inf",
        "0x10",
        "1 2",
        "12gbs",
        "65T",
        "99999999T",
        "9" * 400,
    ],
)
def test_what_is_no_limit_for_either(limit_of: Callable[[str], int], text: str):
    with pytest.raises(SettingsError):
        Settings.from_environment({"HOME": "/nowhere", NAME: text})
    with pytest.raises(ValueError, match=rf'{NAME} is no limit \(try 12GiB\): "{text[:200]}'):
        limit_of(text)


@pytest.mark.parametrize(("text", "num_bytes"), [("0.0001", 107374), ("1023k", 1047552), ("100b", 100)])
def test_what_is_less_than_any_model_can_use(limit_of: Callable[[str], int], text: str, num_bytes: int):
    with pytest.raises(SettingsError, match=r"less than any model can use \(try 4GB\)"):
        Settings.from_environment({"HOME": "/nowhere", NAME: text})
    with pytest.raises(
        ValueError, match=rf'{NAME}: "{text}" is {num_bytes} bytes, less than any model can use \(try 4GB\)'
    ):
        limit_of(text)


@pytest.mark.parametrize("text", ["", "  ", '""'])
def test_nothing_means_half_of_what_there_is(limit_of: Callable[[str], int], text: str):
    assert limit_of(text) > 1 << 20
