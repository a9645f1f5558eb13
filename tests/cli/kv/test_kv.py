"""`puna kv` against a server that says what a test tells it to."""

from __future__ import annotations

import json
import time

import pytest
from rich.console import Console

from puna.cli.kv.stats import model_lines
from puna.cli.kv.top import _Bar, _bar_line, _view
from puna.config.sizes import binary_size
from tests.cli.kv.kv_memory import GIB, MIB, kv_memory, kv_model

pytestmark = pytest.mark.unit

BUSY = kv_model(
    "smollm2:135m",
    committed=1300 * MIB,
    used=700 * MIB,
    cached=411 * MIB,
    hit_rate=0.873,
    prompt_tokens={"computed": 28123, "in_memory": 1234567, "on_disk": 0},
    running=12,
    waiting=3,
)
ASLEEP = kv_model("qwen3:0.6b", state="asleep", hit_rate=0.0)
MEMORY = kv_memory(
    BUSY,
    ASLEEP,
    kv_limit=4 * GIB,
    leased=64 * MIB,
    disk={"limit": 8 * GIB, "size": 1100 * MIB, "restored_tokens": 1, "saved_tokens": 2},
    prompt_tokens={"computed": 28130, "in_memory": 1234567, "on_disk": 999},
)


def test_stats(server, puna, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    server.answers["GET", "/api/kv"] = MEMORY
    expected = """\
NAME          RESERVED  COMMITTED    IN USE    CACHED  HITS  REQUESTS
smollm2:135m     4 GiB   1.27 GiB   700 MiB   411 MiB   87%     12 +3
qwen3:0.6b       4 GiB        0 B       0 B       0 B    0%    asleep
(others)                   64 MiB    64 MiB
(all)            8 GiB   1.33 GiB   764 MiB   411 MiB           12 +3

PROMPT TOKENS     COMPUTED    IN MEMORY      ON DISK
smollm2:135m        28,123    1,234,567            0
qwen3:0.6b               0            0            0
(all)               28,130    1,234,567          999
since 2026-01-02 03:04:05

KV          1.33 GiB of 4 GiB, 764 MiB of it in use
all memory  1.43 GiB of 8 GiB, 100 MiB of it weights
disk        1.07 GiB of 8 GiB
"""
    assert puna("kv", "stats").out == expected
    assert puna("kv", "top").out == expected  # once, where there is no terminal


def test_stats_as_json_is_what_the_server_says(server, puna):
    server.answers["GET", "/api/kv"] = MEMORY
    assert json.loads(puna("kv", "stats", "--json").out) == MEMORY


def test_one_model_needs_no_total(server, puna):
    server.answers["GET", "/api/kv"] = kv_memory(kv_model("m"))
    assert puna("kv", "stats").out.splitlines() == [
        "NAME  RESERVED  COMMITTED    IN USE    CACHED  HITS  REQUESTS",
        "m        4 GiB        0 B       0 B       0 B     -         0",
        "",
        "KV          0 B of 1 GiB, 0 B of it in use",
        "all memory  100 MiB of 8 GiB, 100 MiB of it weights",
    ]


def test_groups_of_layers_are_shown_where_there_are_several(server, puna):
    groups = [
        {"window": None, "states": False, "used": 20 * MIB, "cached": 10 * MIB},
        {"window": 512, "states": False, "used": 5 * MIB, "cached": 0},
        {"window": None, "states": True, "used": 10 * MIB, "cached": 0},
    ]
    model = kv_model("gemma3:270m", committed=48 * MIB, used=35 * MIB, cached=10 * MIB, groups=groups)
    server.answers["GET", "/api/kv"] = kv_memory(model)
    assert puna("kv", "stats").out.splitlines()[:6] == [
        "NAME          RESERVED  COMMITTED    IN USE    CACHED  HITS  REQUESTS",
        "gemma3:270m      4 GiB     48 MiB    35 MiB    10 MiB     -         0",
        "  all tokens                         20 MiB    10 MiB",
        "  window 512                          5 MiB       0 B",
        "  states                             10 MiB       0 B",
        "",
    ]


def test_guarantees_are_shown_where_there_are_any(server, puna):
    server.answers["GET", "/api/kv"] = kv_memory(
        kv_model("a", guaranteed=40 * MIB), kv_model("b"), leased=MIB
    )
    assert puna("kv", "stats").out.splitlines()[:5] == [
        "NAME      RESERVED  COMMITTED    IN USE    CACHED  GUARANTEED  HITS  REQUESTS",
        "a            4 GiB        0 B       0 B       0 B      40 MiB     -         0",
        "b            4 GiB        0 B       0 B       0 B         0 B     -         0",
        "(others)                1 MiB     1 MiB",
        "(all)        8 GiB      1 MiB     1 MiB       0 B      40 MiB               0",
    ]


@pytest.mark.parametrize("width", [40, 47, 55, 56, 80])
def test_narrow_terminals_see_whole_columns(width):
    memory = kv_memory(BUSY, kv_model("long" * 30, guaranteed=MIB), kv_limit=23 * GIB, memory_limit=999 * GIB)
    lines = model_lines(memory, width)
    assert max(map(len, lines)) == width
    assert ("COMMITTED" in lines[0]) == (width > 40)
    for bar in (_Bar("memory", 0, int(11.5 * GIB), 23 * GIB), _Bar("memory", 1, 0, 1 << 50)):
        line = _bar_line(bar, width).plain
        assert len(line) == width
        assert line.endswith("%")
        assert ("[" in line) == (width >= 56)
    console = Console(width=width)
    with console.capture() as screen:
        console.print(_view(memory, width))
    assert "q: quit" in screen.get()


def test_without_models_there_is_no_table(server, puna):
    server.answers["GET", "/api/kv"] = kv_memory()
    assert puna("kv", "stats").out.startswith("KV          0 B of 1 GiB")


@pytest.mark.parametrize("width", [80, 79, 69, 68, 60, 120])
def test_long_names_give_way_to_the_numbers(width):
    lines = model_lines(kv_memory(BUSY, kv_model("registry.example/someone/" + "long" * 30)), width)
    assert {len(line) for line in lines} == {width}
    assert lines[0].endswith("REQUESTS")
    assert ("RESERVED" in lines[0]) == (width >= 69)
    assert "…  " in lines[2]


def test_no_size_is_wider_than_its_column():
    sizes = [
        1,
        1023,
        1024,
        1025,
        10239,
        MIB - 1,
        99.96 * MIB,
        GIB - 1,
        GIB,
        1.006 * GIB,
        999 * GIB,
        (1 << 50) - 1,
    ]
    assert max(len(binary_size(int(size))) for size in sizes) <= 8


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1300 * MIB, "1.27 GiB"),
        (12.5 * GIB, "12.5 GiB"),
        (GIB - 1, "1023 MiB"),
        (GIB, "1 GiB"),
        (4000 * 1024 * GIB, "3.91 PiB"),
    ],
)
def test_sizes_of_memory(num_bytes, text):
    assert binary_size(int(num_bytes)) == text


def test_limits_are_shown(server, puna):
    server.answers["GET", "/api/kv"] = kv_memory(kv_model("m", committed=3 * MIB, used=MIB))
    assert puna("kv", "limit").out.splitlines() == [
        "KV          3 MiB of 1 GiB, 1 MiB of it in use",
        "all memory  103 MiB of 8 GiB, 100 MiB of it weights",
    ]


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (["4GB"], {"kv_limit": 4 * GIB}),
        (["512m", "--all-memory", "1.5gib"], {"kv_limit": 512 * MIB, "memory_limit": 3 * GIB // 2}),
        (["--all-memory", "12G"], {"memory_limit": 12 * GIB}),
        (["1_073_741_824"], {"kv_limit": GIB}),
    ],
)
def test_limits_are_set(server, puna, arguments, body):
    server.answers["POST", "/api/kv/limit"] = {
        "kv_limit": 4 * GIB,
        "memory_limit": 12 * GIB,
        "excess": 0,
        "note": "",
    }
    assert puna("kv", "limit", *arguments).out == "limit of KV: 4 GiB, of all memory: 12 GiB\n"
    assert server.bodies("/api/kv/limit") == [body]


def test_what_is_odd_about_a_limit_is_told(server, puna):
    answer = {"kv_limit": 9 * GIB, "memory_limit": 12 * GIB, "excess": 0, "warnings": ["too much", "of it"]}
    server.answers["POST", "/api/kv/limit"] = answer
    assert puna("kv", "limit", "9GB").out.splitlines()[1:] == ["note: too much", "note: of it"]


def test_a_limit_below_what_is_in_use(server, puna):
    note = "300 MiB more than that is taken: ..."
    answer = {"kv_limit": 4 * GIB, "memory_limit": 12 * GIB, "excess": 300 * MIB, "note": note}
    server.answers["POST", "/api/kv/limit"] = answer
    assert puna("kv", "limit", "4GB").out.splitlines()[1:] == [note]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["12x"], '"12x" is not a size (try 12GiB)'),
        (["--all-memory", "lots"], '"lots" is not a size (try 12GiB)'),
        (["0GB"], '"0GB" is no memory at all (try 12GiB)'),
        (["4"], '"4" is 4 B, less than any model can use (try 4GB)'),
        (["4gb", "--all-memory", "12"], '"12" is 12 B, less than any model can use (try 4GB)'),
        (["99999999T"], '"99999999T" is more than any memory'),
    ],
)
def test_nonsense_is_not_even_sent(server, puna, arguments, error):
    result = puna("kv", "limit", *arguments)
    assert (result.err, result.status) == (f"Error: {error}\n", 1)
    assert server.bodies("/api/kv/limit") == []


def test_trim(server, puna):
    server.answers["POST", "/api/kv/trim"] = {"freed": 300 * MIB}
    assert puna("kv", "trim").out == "gave back 300 MiB\n"


@pytest.mark.parametrize("command", ["top", "stats", "trim"])
def test_what_the_server_says_is_wrong(server, puna, command):
    answer = (503, {"error": "the worker does not answer"})
    server.answers |= {("GET", "/api/kv"): answer, ("POST", "/api/kv/trim"): answer}
    result = puna("kv", command)
    assert (result.err, result.status) == ("Error: the worker does not answer\n", 1)


@pytest.mark.parametrize("arguments", [("top", "x"), ("limit", "1GB", "2GB"), ("nonsense",)])
def test_wrong_usage(puna, arguments):
    assert puna("kv", *arguments).status == 1


def test_bars_turn_red_by_what_cannot_go():
    def color(used: int, other: int) -> object:
        return _bar_line(_Bar("KV", used, other, 100), 80).spans[0].style

    assert [color(49, 51), color(50, 0), color(80, 0), color(300, 0)] == ["green", "yellow", "red", "red"]


@pytest.mark.parametrize(
    ("used", "other", "limit", "bar"),
    [
        (0, 0, 100, "[" + "-" * 20 + "]"),
        (1, 1, 1 << 60, "[#" + "-" * 19 + "]"),
        (50, 25, 100, "[##########=====-----]"),
        (500, 50, 100, "[" + "#" * 20 + "]"),
        (0, 5, 0, "[" + "=" * 20 + "]"),
    ],
)
def test_bars_show_whatever_is_there(used, other, limit, bar):
    line = _bar_line(_Bar("KV", used, other, limit), 8 + 22 + 2 + 25).plain
    assert line.startswith("KV      " + bar)


def test_top_ends_at_once_where_colours_are_forced(server, puna, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    server.answers["GET", "/api/kv"] = kv_memory()
    assert "\x1b" not in puna("kv", "top").out
    assert len(server.requests) == 2  # is somebody there, and once the memory
