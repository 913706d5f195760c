"""Paths into a payload."""

from __future__ import annotations

import pytest

from edgewake.protocol.maps.path import Path

DOCUMENT = {"a": {"b": [{"c": 1}, {"c": 2}], "x.y": 3}, "n": 4}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("n", [("", 4)]),
        ("a.b[0].c", [("", 1)]),
        ("a.b[-1].c", [("", 2)]),
        ("a.b[*].c", [("0", 1), ("1", 2)]),
        ('a."x.y"', [("", 3)]),
        ("$.n", [("", 4)]),
        ("a.*", [("b", DOCUMENT["a"]["b"]), ("x.y", 3)]),  # type: ignore[index]
        ("a.b[2].c", []),
        ("n.m", []),
        ("a[0]", []),
    ],
)
def test_paths_lead_to_what_is_there(path: str, found: list[tuple[str, object]]) -> None:
    assert list(Path.parse(path).all(DOCUMENT)) == found


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", "a[x]", "a[", '"', ".a", "a.b" * 200])
def test_a_path_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        Path.parse(text)
