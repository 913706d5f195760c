"""JSON as devices write it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.json_text import compact, is_meant_as_json, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


def without(value: Any) -> Any:
    """With null for what is no number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [without(inner) for inner in value]
    if isinstance(value, dict):
        return {name: without(inner) for name, inner in value.items()}
    return value


@given(VALUES)
def test_nan_and_infinity_are_null_and_all_else_is_as_it_was(value: Any) -> None:
    import json

    assert parse(json.dumps(value).encode()) == without(value)
    assert parse(json.dumps(value)) == without(value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"temp":NaN,"hum":48}', {"temp": None, "hum": 48}),
        (b'[Infinity, -Infinity, "NaN"]', [None, None, "NaN"]),
        (b'\xef\xbb\xbf{"temp":NaN}', {"temp": None}),
        ('\ufeff{"temp":1}', {"temp": 1}),
        (
            b'{"n": NaN, "large": 18446744073709551616, "long": %s}' % (b"9" * 5000),
            {"n": None, "large": 2.0**64, "long": math.inf},
        ),
    ],
)
def test_what_devices_write(text: bytes, found: object) -> None:
    assert parse(text) == found


@pytest.mark.parametrize(
    "text",
    [
        b"{'temp':1}",
        b'{"temp":nan}',
        b'{"temp":NaN',
        b"NaNa",
        b'{"a":NaN}\xff',
        b'{"a":"\xff","b":NaN}',
        b"[" * 100_000 + b"NaN",
        b"\xef\xbb\xbf" * 5000,
        b"",
        b"NaN NaN",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_no_json_stays_none(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [(b" {", True), (b"[", True), (b"21.5", False), (b"on {", False), (b"", False)],
)
def test_what_begins_as_an_object_or_a_list_is_meant_as_json(text: bytes, is_meant: bool) -> None:
    assert is_meant_as_json(text) is is_meant


def test_what_is_kept_takes_memory_of_its_own_size() -> None:
    """What orjson makes takes 4 KB for as long as it is kept: a bound of bytes held nothing."""
    before = _memory()
    kept = [compact(orjson.dumps({"number": number})) for number in range(20_000)]
    assert len(kept) == 20_000
    assert _memory() - before < 20_000 * 500


def _memory() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
