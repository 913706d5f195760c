"""Which rows of the latest are asked for: by key, by condition, a page at a time. Pure.

Rows are in the order of their keys, so a page begins behind the key with which the one before
ended, whatever came or went meanwhile. What changes while a client turns pages it hears from the
stream behind the first page's cursor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, TypeVar

import orjson

from edgewake.cloud.log.filters.filter import Where, compile_where
from edgewake.cloud.log.filters.filter_syntax import Sets
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.rights.scope import RESULT_ENVELOPE, Scope

KEYS_MAX: Final = 100
"""Keys in one question."""
LIMIT_MAX: Final = 10_000
"""Rows of a page."""
ROWS_A_TURN: Final = 200
"""Rows that are looked at between two turns of others: some microseconds each, or what the
condition costs."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A row: its key as it is kept, and its JSON."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows a client asks for; by default all, in the order in which they came."""

    keys: frozenset[str] | None = None
    where: Where | None = None
    limit: int | None = None
    after: str | None = None

    @property
    def is_all(self) -> bool:
        """Is nothing left out?"""
        return self == Choice()

    @property
    def is_by_key(self) -> bool:
        """Does the answer tell anything of keys?"""
        return self.keys is not None or self.limit is not None or self.after is not None


def choice(
    keys: Sequence[str],
    where: str | None,
    limit: str | None,
    after: str | None,
    sets: Sets | None = None,
) -> Choice:
    """What a request's words say. Raises RequestError and FilterError.

    `sets`: where named sets are found; whether its reader may use them is not looked at here.
    """
    if len(keys) > KEYS_MAX:
        raise RequestError("key", f"{len(keys)} keys: expected at most {KEYS_MAX}")
    condition = compile_where(where, sets) if where else None
    if limit is not None and not (
        limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= LIMIT_MAX
    ):
        raise RequestError("limit", f"limit={limit[:40]!r}: expected 1 to {LIMIT_MAX} rows")
    named = frozenset(form for key in keys for form in _forms(key)) if keys else None
    return Choice(named, condition, None if limit is None else int(limit), after)


def chosen_by(asked: Choice, stamps: Sequence[tuple[int, int]]) -> bytes:
    """2 bytes that stand in a cursor for the named sets of a condition as they are.

    `stamps`: each set's version, and when it was made. Two versions in a row are never taken for
    the same, and one of a set that was removed and created again hardly ever.
    """
    assert asked.where is not None
    text = repr((sorted(asked.where.sets), [made_at for _, made_at in stamps]))
    versions = sum(version for version, _ in stamps)
    return bytes([versions % 256]) + blake2b(text.encode(), digest_size=1).digest()


def check_scope(asked: Choice, keys: Sequence[str] | None, scope: Scope | None) -> None:
    """Refuse a choice by key to a reader who does not see the whole key. Raises RequestError."""
    if asked.is_by_key:
        check_keys(keys, scope)


def check_keys(keys: Sequence[str] | None, scope: Scope | None) -> None:
    """Refuse an answer with keys to a reader who does not see the whole key.

    Raises RequestError.
    """
    if scope is None or keys is None:
        return
    shown = [part.fields for part in scope.parts if part.fields is not None]
    hidden = [name for name in keys if name not in RESULT_ENVELOPE]
    if any(name not in fields for fields in shown for name in hidden):
        raise RequestError("key", "key and limit: expected a right to all columns of the key")


def in_turns(rows: Iterable[T]) -> Iterator[Sequence[T]]:
    """Pieces of ROWS_A_TURN rows, and a last one of what is left."""
    left = iter(rows)
    while piece := list(islice(left, ROWS_A_TURN)):
        yield piece


class Picker:
    """Takes rows in their order until the page is full."""

    def __init__(
        self, asked: Choice, scope: Scope | None, *, is_result: bool, with_keys: bool = False
    ) -> None:
        self._with_keys = with_keys
        self.count = 0
        """Rows that were taken."""
        self.is_full = False
        self.next: str | None = None
        """The key after which the next page begins; None: this is the last page."""
        self._asked, self._scope, self._is_result = asked, scope, is_result
        self._passes = None if asked.where is None else asked.where.passes
        self._last = ""

    def take_all(self, entries: Iterable[Entry]) -> list[bytes]:
        """The rows of these that the answer has, until it is full."""
        found: list[bytes] = []
        for entry in entries:
            row = self.take(entry)
            if self.is_full:
                break
            if row is not None:
                found.append(row)
        return found

    def take(self, entry: Entry) -> bytes | None:
        """A row as it is told; None where the answer leaves it out.

        `is_full` says that the page was full before it.
        """
        data = self.shown(entry.data)
        if data is None:
            return None
        if self.count == self._asked.limit:
            self.next, self.is_full = self._last, True
            return None
        self.count += 1
        self._last = entry.key
        if self._with_keys:
            return b'{"key":%b,"row":%b}' % (orjson.dumps(entry.key), data)
        return data

    def shown(self, data: bytes) -> bytes | None:
        """A row as the reader gets it; None where it is filtered out."""
        if self._scope is None and self._passes is None:
            return data
        fields: Mapping[str, Any] | None = orjson.loads(data)
        if self._scope is not None and fields is not None:
            fields = self._scope.cut(fields, is_result=self._is_result)
            data = b"" if fields is None else orjson.dumps(fields)
        if fields is None or (self._passes is not None and not self._passes(fields)):
            return None
        return data


def _forms(key: str) -> Iterator[str]:
    """The forms in which a client may write a key.

    They are a device, the JSON list of a group's values, or the only one of these values.
    """
    yield key
    yield json.dumps([key])
    try:
        found = json.loads(key)
    except ValueError:
        return
    yield json.dumps(found if isinstance(found, list) else [found])
