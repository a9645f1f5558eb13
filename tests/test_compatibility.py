"""The page on compatibility names tests that exist, for every point of its list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "compatibility.md").read_text()


def test_every_point_has_tests_that_exist_or_says_what_is_missing() -> None:
    points = re.findall(r"^\| (\d+) .*? \| (.*) \|$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in points] == list(range(1, 100))
    for number, shown in points:
        path = ""
        named = re.findall(r"`([\w/.]*)::(\w+)`", shown)
        assert named or shown.startswith("not yet: "), number
        for file, test in named:
            path = file or path
            assert f"def {test}(" in (TESTS / path).read_text(), f"{number}: {path}::{test}"
