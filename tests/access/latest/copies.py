"""A copy of latest values, as a client keeps it."""

from __future__ import annotations

from itertools import chain
from typing import Any

from edgewake.cloud.access.bounded.rows import Entry
from edgewake.cloud.access.latest.latest import Latest

Copy = dict[str, dict[str, Any]]


def rows_of(latest: Latest) -> list[Entry]:
    """All rows."""
    return list(chain.from_iterable(latest.pieces()))


def apply(copy: Copy, one: dict[str, Any], *, is_strict: bool = True) -> None:
    """A change, as it is meant."""
    if is_strict:
        assert (one["key"] in copy) is (one["op"] != "insert"), one
    copy.pop(one["key"], None)
    if one["op"] != "delete":
        copy[one["key"]] = one["row"]
