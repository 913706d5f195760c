"""A copy of latest values, as a client keeps it."""

from __future__ import annotations

from typing import Any

Copy = dict[str, dict[str, Any]]


def apply(copy: Copy, one: dict[str, Any], *, is_strict: bool = True) -> None:
    """A change, as it is meant."""
    if is_strict:
        assert (one["key"] in copy) is (one["op"] != "insert"), one
    copy.pop(one["key"], None)
    if one["op"] != "delete":
        copy[one["key"]] = one["row"]
