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
from edgewake.cloud.log.subscription import DEVICE_ALONE, Published
from edgewake.cloud.log.wanted import is_in_share, parse_sample
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
    published: Published | None = None
    """The publication through which they are read."""
    sample: float | None = None
    """A share of all things; None: all."""

    @property
    def sets(self) -> frozenset[str]:
        """The named sets by which rows are chosen."""
        published = None if self.published is None else self.published.where
        found = [one.sets for one in (self.where, published) if one is not None]
        return frozenset[str]().union(*found)

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
    *,
    published: Published | None = None,
    sample: str | None = None,
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
    try:
        share = None if sample is None else parse_sample(sample)
    except ValueError as error:
        raise RequestError("sample", f"sample: {error}") from None
    most = None if limit is None else int(limit)
    return Choice(named, condition, most, after, published, share)


def chosen_by(asked: Choice, stamps: Sequence[tuple[int, int]]) -> bytes:
    """2 bytes that stand in a cursor for the named sets, and the publication, as they are.

    `stamps`: each set's version, and when it was made. Two versions in a row are never taken for
    the same, and one of a set that was removed and created again hardly ever.
    """
    text = repr((sorted(asked.sets), [made_at for _, made_at in stamps]))
    versions = sum(version for version, _ in stamps)
    if asked.published is not None:
        publication = asked.published.text
        text += f"{publication.name} {publication.version}"
        versions += publication.version
    return bytes([versions % 256]) + blake2b(text.encode(), digest_size=1).digest()


def check_scope(asked: Choice, keys: Sequence[str] | None, scope: Scope | None) -> None:
    """Refuse a choice by key to a reader who does not see the whole key. Raises RequestError."""
    if asked.is_by_key:
        check_keys(asked, keys, scope)


def check_keys(asked: Choice, keys: Sequence[str] | None, scope: Scope | None) -> None:
    """Refuse an answer with keys to a reader who does not see the whole key.

    Raises RequestError.
    """
    if keys is None:
        return
    scopes = (scope, None if asked.published is None else asked.published.shown)
    parts = [part for one in scopes if one is not None for part in one.parts]
    shown = [part.fields for part in parts if part.fields is not None]
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
        self,
        asked: Choice,
        scope: Scope | None,
        *,
        is_result: bool,
        with_keys: bool = False,
        per: Sequence[str] = DEVICE_ALONE,
    ) -> None:
        """`per`: the fields that tell what a row is about."""
        self._with_keys = with_keys
        self.count = 0
        """Rows that were taken."""
        self.is_full = False
        self.next: str | None = None
        """The key after which the next page begins; None: this is the last page."""
        self._asked, self._scope, self._is_result, self._per = asked, scope, is_result, per
        self._passes = None if asked.where is None else asked.where.passes
        self._is_whole = all(
            one is None for one in (scope, asked.where, asked.published, asked.sample)
        )
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
        if self._is_whole:
            return data
        row: Mapping[str, Any] = orjson.loads(data)
        published, share = self._asked.published, self._asked.sample
        condition = None if published is None else published.where
        if condition is not None and not condition.passes(row):
            return None
        fields: Mapping[str, Any] | None = row
        for scope in (self._scope, None if published is None else published.shown):
            if scope is not None and fields is not None:
                fields = scope.cut(fields, is_result=self._is_result)
        if fields is None or (self._passes is not None and not self._passes(fields)):
            return None
        if share is not None and not is_in_share(fields, self._per, share):
            return None
        return data if fields is row else orjson.dumps(fields)


def _forms(key: str) -> Iterator[str]:
    """The forms in which a client may write a key.

    They are a device, the JSON list of a group's values, or the only one of these values.
    """
    yield key
    yield json.dumps([key])
    try:
        found = json.loads(key)
        form = json.dumps(found if isinstance(found, list) else [found])
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        return
    yield form
