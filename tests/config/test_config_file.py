"""What ~/.ollama/config.yaml says about KV memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.config.config_file import read_config
from puna.config.settings import Settings, SettingsError

pytestmark = pytest.mark.unit


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ollama").mkdir()
    return tmp_path


def settings(home: Path, text: str | bytes, **environ: str) -> Settings:
    (home / ".ollama" / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return Settings.from_environment({"HOME": str(home), **environ})


def test_all_of_it(home: Path):
    text = "models: [a, b]\nkvcached:\n  enabled: false\n  memory_limit: 20GB\n  eviction_policy: lru\n"
    found = settings(home, text)
    assert (found.elastic, found.kv_limit_bytes) == (False, 20 << 30)


def test_the_environment_wins(home: Path):
    text = "kvcached: {enabled: false, memory_limit: 20GB}"
    found = settings(home, text, OLLAMA_KVCACHED_ENABLED="true", OLLAMA_KVCACHED_MEMORY_GB="1")
    assert (found.elastic, found.kv_limit_bytes) == (True, 1 << 30)


@pytest.mark.parametrize(
    ("text", "size"), [("20", 20 << 30), ("0.5", 1 << 29), ("512MiB", 512 << 20), ("'1,024 mb'", 1 << 30)]
)
def test_memory_limit(home: Path, text: str, size: int):
    assert settings(home, f"kvcached: {{memory_limit: {text}}}").kv_limit_bytes == size


@pytest.mark.parametrize("text", ["", "# nothing", "kvcached:", "kvcached: {}", "other: {enabled: 3}"])
def test_files_that_say_nothing_change_nothing(home: Path, text: str):
    found = settings(home, text)
    assert (found.elastic, found.kv_limit_bytes) == (True, None)
    assert read_config(home / ".ollama" / "config.yaml") == {}


def test_there_need_not_be_a_file(tmp_path: Path):
    assert read_config(tmp_path / "config.yaml") == {}
    (tmp_path / "file").touch()
    assert read_config(tmp_path / "file" / "config.yaml") == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kvcached: {memory_limit: 12x}", 'kvcached.memory_limit: "12x" is not a size (try 12GiB)'),
        ("kvcached: {memory_limit: -1}", 'kvcached.memory_limit: "-1" is not a size (try 12GiB)'),
        ("kvcached: {memory_limit: 0}", 'kvcached.memory_limit: "0" is no memory at all (try 12GiB)'),
        ("kvcached: {memory_limit: .inf}", 'kvcached.memory_limit: "inf" is not a size (try 12GiB)'),
        (
            "kvcached: {eviction_policy: fifo}",
            'kvcached.eviction_policy: there is no policy "fifo", only lru',
        ),
        ("kvcached: {enabled: 3}", "Expected `bool | null`, got `int` - at `$.kvcached.enabled`"),
        (
            "kvcached: {memory_limit: 0.0001}",
            'kvcached.memory_limit: "0.0001" is 104 KiB, less than any model can use (try 4GB)',
        ),
        (
            "kvcached: {memory: 3GB}",
            'kvcached: there is no "memory", only enabled, memory_limit, eviction_policy',
        ),
        ("kvcached: 20GB", "Expected `object | null`, got `str` - at `$.kvcached`"),
        ("- kvcached", "Expected `object | null`, got `array`"),
        ("kvcached: [", "while parsing a flow node did not find expected node content, line 2, column 1"),
        (b"\xff\xfe\xfa", "incomplete UTF-16 character"),
    ],
)
def test_nonsense_is_an_error_that_names_the_file(home: Path, text: str | bytes, error: str):
    with pytest.raises(SettingsError) as raised:
        settings(home, text)
    assert str(raised.value).startswith(f"{home}/.ollama/config.yaml: ")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read(home: Path):
    (home / ".ollama" / "config.yaml").mkdir()
    with pytest.raises(SettingsError, match=r"config\.yaml: Is a directory"):
        Settings.from_environment({"HOME": str(home)})
