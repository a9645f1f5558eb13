"""Settings come from the environment alone; Ollama's variables are forgiving, ours are not."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from puna.config.host import parse_host
from puna.config.settings import SYSTEM_MODELS, Settings, SettingsError
from puna.config.variables import VARIABLES

pytestmark = pytest.mark.unit


def from_environment(**environ: str) -> Settings:
    return Settings.from_environment({"HOME": "/home/ada", **environ})


def test_empty_environment_gives_ollamas_defaults():
    settings = from_environment()
    assert str(settings.host) == "127.0.0.1:11434"
    assert settings.models == Path("/home/ada/.ollama/models")
    assert settings.read_only_models == (SYSTEM_MODELS,)
    assert settings.keep_alive_s == 300
    assert settings.context_length == 0
    assert settings.num_threads is None
    assert settings.warnings == ()


def test_every_variable_sets_a_field_of_settings():
    assert {variable.field for variable in VARIABLES} <= set(Settings.__dataclass_fields__)
    assert len({variable.name for variable in VARIABLES}) == len(VARIABLES)


def test_every_variable_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "daemon.md").read_text()
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith(("| `OLLAMA_", "| `PUNA_"))}
    assert rows == {variable.name for variable in VARIABLES}


def test_explicit_models_directory_is_the_whole_store():
    settings = from_environment(OLLAMA_MODELS="/data/models")
    assert settings.models == Path("/data/models")
    assert settings.read_only_models == ()


def test_sessions_lie_in_the_home_directory_unless_told_otherwise():
    assert from_environment().sessions == Path("/home/ada/.puna/sessions")
    assert from_environment(PUNA_SESSIONS="/data/sessions").sessions == Path("/data/sessions")
    assert from_environment().state_key == Path("/home/ada/.puna/state.key")


def test_system_store_is_not_listed_twice():
    settings = Settings.from_environment({"HOME": "/usr/share/ollama"})
    assert settings.models == SYSTEM_MODELS
    assert settings.read_only_models == ()


def test_host():
    assert from_environment(OLLAMA_HOST=' "1.2.3.4:5"').host == parse_host("1.2.3.4:5")


@pytest.mark.parametrize("text", [' "4096" ', "'4096'", " 4096", "4096"])
def test_blanks_and_quotes_are_trimmed(text):
    assert from_environment(OLLAMA_CONTEXT_LENGTH=text).context_length == 4096


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1", True),
        ("true", True),
        ("T", True),
        ("0", False),
        ("False", False),
        ("f", False),
        ("yes", True),
        ("2", True),
    ],
)
def test_booleans_are_gos_and_anything_else_is_true(text, meant):
    assert from_environment(OLLAMA_DEBUG=text).debug is meant


@pytest.mark.parametrize("text", ["many", "1.5", "1_000", "٣"])
def test_bad_integer_of_ollama_becomes_the_default_with_a_warning(text):
    settings = from_environment(OLLAMA_MAX_QUEUE=text)
    assert settings.max_queue == 512
    assert settings.warnings == (f'OLLAMA_MAX_QUEUE: "{text}" is not a number, using the default (512)',)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "OLLAMA_KVCACHED_MEMORY_GB",
            "12x",
            'OLLAMA_KVCACHED_MEMORY_GB: "12x" is not a size (try 12GiB)',
        ),
        (
            "OLLAMA_KVCACHED_MEMORY_GB",
            "0",
            'OLLAMA_KVCACHED_MEMORY_GB: "0" is no memory at all (try 12GiB)',
        ),
        ("OLLAMA_KVCACHED_ENABLED", "maybe", 'OLLAMA_KVCACHED_ENABLED: "maybe" is neither true nor false'),
        ("PUNA_MEMORY_LIMIT", "-1", 'PUNA_MEMORY_LIMIT: "-1" is not a size (try 12GiB)'),
        (
            "PUNA_MEMORY_LIMIT",
            "12",
            'PUNA_MEMORY_LIMIT: "12" is 12 B, less than any model can use (try 4GB)',
        ),
        ("PUNA_KV_DISK", "all", 'PUNA_KV_DISK: "all" is not a size (try 12GiB)'),
        (
            "PUNA_MODEL_KV_MIN",
            "a=1GB,b",
            'PUNA_MODEL_KV_MIN: "b" is not a model and a size (try llama3.2=512MiB)',
        ),
        (
            "PUNA_MODEL_KV_MIN",
            "a=x",
            'PUNA_MODEL_KV_MIN: "a=x" is not a model and a size (try llama3.2=512MiB)',
        ),
        (
            "PUNA_MODEL_KV_MIN",
            "=1",
            'PUNA_MODEL_KV_MIN: "=1" is not a model and a size (try llama3.2=512MiB)',
        ),
        (
            "OLLAMA_KVCACHED_MEMORY_GB",
            "0.0001",
            'OLLAMA_KVCACHED_MEMORY_GB: "0.0001" is 104 KiB, less than any model can use (try 4GB)',
        ),
        (
            "PUNA_KV_DISK",
            "1KB",
            'PUNA_KV_DISK: "1KB" is 1 KiB, less than any model can use (try 4GB)',
        ),
        ("PUNA_NUM_THREADS", "-2", 'PUNA_NUM_THREADS: "-2" is negative'),
        ("PUNA_NUM_THREADS", "0", 'PUNA_NUM_THREADS: "0" is not a positive number'),
        ("PUNA_NUM_THREADS", "all", 'PUNA_NUM_THREADS: "all" is not a number'),
        ("PUNA_CACHE_POLICY", "lru", 'PUNA_CACHE_POLICY: "lru" is not one of prefix, slots'),
        ("PUNA_KV_IDLE", "300x", 'PUNA_KV_IDLE: time: unknown unit "x" in duration "300x"'),
        (
            "PUNA_MODEL_SHARES",
            "a=1,b",
            'PUNA_MODEL_SHARES: "b" is not a model and a positive number (try llama3.2=2)',
        ),
        (
            "PUNA_MODEL_SHARES",
            "a=0",
            'PUNA_MODEL_SHARES: "a=0" is not a model and a positive number (try llama3.2=2)',
        ),
        (
            "PUNA_MODEL_SHARES",
            "a=1e999",
            'PUNA_MODEL_SHARES: "a=1e999" is not a model and a positive number (try llama3.2=2)',
        ),
        (
            "PUNA_MODEL_SHARES",
            "=2",
            'PUNA_MODEL_SHARES: "=2" is not a model and a positive number (try llama3.2=2)',
        ),
        *(
            (
                "PUNA_MIRRORS",
                text,
                f'PUNA_MIRRORS: "{text}" is not a host and a URL (try hf.co=https://mirror.example/hf)',
            )
            for text in (
                "hf.co",
                "=http://h",
                "hf.co=ftp://h",
                "hf.co=http://me:word@h",
                "hf.co=http://h?q",
                "h=http://",
            )
        ),
    ],
)
def test_bad_value_of_ours_is_an_error_that_names_the_variable(name, text, message):
    with pytest.raises(SettingsError) as error:
        from_environment(**{name: text})
    assert str(error.value) == message


def test_mirrors_in_order():
    settings = from_environment(PUNA_MIRRORS="hf.co=https://m.example/hf/, h:5000 = http://two")
    assert settings.mirrors == (("hf.co", "https://m.example/hf"), ("h:5000", "http://two"))


@pytest.mark.parametrize(("text", "kv_type"), [("q8_0", "q8_0"), ("Q4_0", "q4_0"), ("f16", "f16")])
def test_kv_cache_type(text, kv_type):
    assert from_environment(OLLAMA_KV_CACHE_TYPE=text).kv_type == kv_type


def test_unknown_kv_cache_type_becomes_the_default_with_a_warning():
    settings = from_environment(OLLAMA_KV_CACHE_TYPE="q5_1")
    assert settings.kv_type == "f16"
    assert settings.warnings == (
        'OLLAMA_KV_CACHE_TYPE: "q5_1" is not one of f16, q8_0, q4_0, f32, using the default (f16)',
    )


def test_a_negative_number_is_told_as_such():
    settings = from_environment(OLLAMA_MAX_LOADED_MODELS="-1")
    assert settings.max_loaded_models == 0
    assert settings.warnings == ('OLLAMA_MAX_LOADED_MODELS: "-1" is negative, using the default (0)',)


@pytest.mark.parametrize(("text", "most"), [("4", 4), ("0", None), ("", None)])
def test_num_parallel_is_a_limit_or_none(text, most):
    assert from_environment(OLLAMA_NUM_PARALLEL=text).max_running == most


@pytest.mark.parametrize("text", ["Slots", "slots"])
def test_cache_policy(text):
    assert from_environment(PUNA_CACHE_POLICY=text).cache_policy == "slots"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("0", 0), ("1m30s", 90), ("-1s", math.inf)])
def test_kv_idle_is_a_duration(text, seconds):
    assert from_environment(PUNA_KV_IDLE=text).kv_idle_s == seconds


def test_idle_kv_stays_longer_where_it_cannot_go_to_disk():
    assert from_environment().kv_idle_s == 3
    assert from_environment(PUNA_KV_DISK="0").kv_idle_s == 300
    assert from_environment(PUNA_CACHE_POLICY="slots").kv_idle_s == 300
    assert from_environment(PUNA_KV_DISK="0", PUNA_KV_IDLE="7s").kv_idle_s == 7
    assert from_environment(PUNA_KV_DISK="1GiB").kv_idle_s == 3


@pytest.mark.parametrize(
    ("text", "size"), [("20", 20 << 30), ("0.5", 1 << 29), ("512MiB", 512 << 20), ("1,024", 1 << 40)]
)
def test_a_bare_limit_of_kv_memory_is_gibibytes(text, size):
    assert from_environment(OLLAMA_KVCACHED_MEMORY_GB=text).kv_limit_bytes == size


def test_memory():
    settings = from_environment(
        PUNA_MEMORY_LIMIT="12GiB", PUNA_KV_DISK="1g", PUNA_KV_DIR="/data/kv", OLLAMA_KVCACHED_SOCKET="/run/kv"
    )
    assert settings.memory_limit_bytes == 12 << 30
    assert settings.kv_disk_bytes == 1 << 30
    assert (settings.kv_dir, settings.kvcached_socket) == (Path("/data/kv"), Path("/run/kv"))
    assert from_environment().kv_dir == Path("/home/ada/.puna/kv")


@pytest.mark.parametrize(
    ("text", "elastic"),
    [("false", False), ("0", False), ("OFF", False), ("True", True), ("yes", True), ("", True)],
)
def test_kvcached_is_a_switch(text, elastic):
    assert from_environment(OLLAMA_KVCACHED_ENABLED=text).elastic is elastic


def test_kv_guarantees():
    settings = from_environment(PUNA_MODEL_KV_MIN="llama3.2:1b=512MiB, someone/n=0,")
    assert settings.kv_guarantees == (("llama3.2:1b", 512 << 20), ("someone/n", 0))


def test_model_weights():
    settings = from_environment(PUNA_MODEL_SHARES="llama3.2:1b=2, someone/n=0.5,")
    assert settings.model_shares == (("llama3.2:1b", 2.0), ("someone/n", 0.5))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1h30m", 5400), ("-1", math.inf), ("-5m", math.inf), ("0", 0), ("1.5s", 1.5)],
)
def test_keep_alive_is_a_duration_or_seconds(text, seconds):
    assert from_environment(OLLAMA_KEEP_ALIVE=text).keep_alive_s == seconds


def test_bad_keep_alive_becomes_the_default_with_a_warning():
    settings = from_environment(OLLAMA_KEEP_ALIVE="soon")
    assert settings.keep_alive_s == 300
    assert "OLLAMA_KEEP_ALIVE" in settings.warnings[0]


@pytest.mark.parametrize(("text", "seconds"), [("0", math.inf), ("-1", math.inf), ("10s", 10), ("10", 10)])
def test_load_timeout_of_nothing_is_forever(text, seconds):
    assert from_environment(OLLAMA_LOAD_TIMEOUT=text).load_timeout_s == seconds


def test_origins_are_a_list():
    assert from_environment(OLLAMA_ORIGINS="http://a, http://b,,").origins == ("http://a", "http://b")


def test_importing_settings_loads_no_other_room():
    code = "import sys, puna.config.settings; print(*{m.split('.')[1] for m in sys.modules if 'puna.' in m})"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["config"]
