"""Floats as JSON: as few digits as possible, and the same float32 when they are read."""

from __future__ import annotations

import json
from array import array

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna._native import NativeError, json_floats

pytestmark = pytest.mark.native

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, max_size=50))
def test_are_the_same_when_read(values):
    text = json_floats(array("f", values))
    for decoded in (json.loads(text), msgspec.json.decode(text, type=list[float])):
        np.testing.assert_array_equal(np.array(decoded, np.float32), np.array(values, np.float32))


def test_have_few_digits():
    assert json_floats(array("f", [])) == b"[]"
    assert json_floats(array("f", [0.1, -1.0, 1e-45, -3.4028235e38, 1 / 3])) == (
        b"[0.1,-1,1e-45,-3.4028235e+38,0.33333334]"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_json_lacks(value):
    with pytest.raises(NativeError, match="NaN and infinity"):
        json_floats(array("f", [1.0, value]))


def test_other_bytes():
    with pytest.raises(NativeError, match="floats"):
        json_floats(b"12345")
