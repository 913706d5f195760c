"""The latest of a stream or a query. Pure.

It is the last reading of each device, or the newest window of each group.

Among a device's readings the one with the highest (epoch, seq) counts, so that a late reading does
not replace a newer one; without them, the last to arrive. Each gateway numbers the readings of a
thing behind it by itself: of two that came by different gateways, and of one that did and one that
did not, the later event time counts. Among a group's rows the newest window
counts, and its last revision; a withdrawn row does not count, and one whose window the query's
watermark has passed is marked as final. All rows are kept up to `bytes_max`; past it the row that
has been silent longest is dropped, and counted.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from edgewake.cloud.access.bounded.rows import ROWS_A_TURN, Entry, in_turns
from edgewake.cloud.access.latest.key_order import KeyOrder
from edgewake.cloud.access.latest.latest_changes import At, Change, Changes, Row, is_behind
from edgewake.cloud.log.decode import DATA, WATERMARK, Event
from edgewake.cloud.rights.scope import Scope

BYTES_MAX: Final = 96 * 1024 * 1024
"""The most bytes of one stream's or query's rows: 125,000 of 200 bytes."""
ROW_BYTES: Final = 600
"""Memory of a row beside its data, roughly: its key, its places and where it stands."""
_WITHDRAWN: Final = b""
NO_WAY: Final[tuple[str, int | None]] = ("", None)
NOWHERE: Final[At] = (0, (0, 0))


@dataclass(frozen=True, slots=True)
class _Row:
    rank: tuple[int, int] | None
    data: bytes
    """JSON; _WITHDRAWN for what is known to be no row, so that an older one does not come back."""
    open_to: int | None = None
    """The end of its window, ms, where it was not final when the row was emitted."""
    at: At = NOWHERE
    """Where it changed last, …"""
    born: At = NOWHERE
    """… and where it became a row."""
    way: tuple[str, int | None] = NO_WAY
    """The gateway that a thing's reading came by, and its event time."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that changed, where what it was before is not known any more."""

    key: str
    data: bytes | None
    """JSON; None where the row no longer exists."""
    is_new: bool


class Latest:
    """Keeps the latest row of each thing, within `bytes_max`."""

    def __init__(self, keys: Sequence[str] | None, *, bytes_max: int = BYTES_MAX) -> None:
        """`keys`: the group columns of a query; None: a stream, whose key is the device."""
        self._keys = keys
        self.bytes_max = bytes_max
        """It may change; what is too much then goes with the next event."""
        self.state = 0
        """Grows with every change of a row, or of what is told of one."""
        self._rows: OrderedDict[str, _Row] = OrderedDict()
        """The one that was heard of least lately first."""
        self._order = KeyOrder()
        """The keys of all rows."""
        self._older: set[str] = set()
        """Keys of which only older events are known yet: of those the last one counts where nothing
        else tells."""
        self.bytes = 0
        """Memory of the rows, roughly."""
        self._passed = 0
        """Event time in ms up to which the query's windows are final, as far as it was said."""
        self.left_out = 0
        """Rows that were dropped because there are too many."""
        self.changes = Changes()

    def take(self, event: Event, at: At = NOWHERE, *, is_older: bool = False) -> None:
        """Take in the next event of the log, which ends `at`.

        `is_older`: it lies before all events that were taken otherwise.
        """
        if event.kind == WATERMARK:
            said = event.fields.get("watermark")
            self._passed = max(self._passed, said) if isinstance(said, int) else self._passed
            self.state += 1
        if event.kind != DATA:
            return
        key, rank = self._place(event.fields)
        known = self._rows.get(key)
        way = _way(event.fields) if self._keys is None else NO_WAY
        if known is not None and self._is_newer(known, key, rank, way, is_older=is_older):
            return
        data = _WITHDRAWN if event.fields.get("withdrawn") is True else event.data
        was_row = known is not None and known.data is not _WITHDRAWN
        born = known.born if known is not None and was_row else at
        self._put(key, _Row(rank, data, self._open_to(event.fields), at, born, way))
        if not is_older:
            before = known.data if known is not None and was_row else None
            self.changes.add(Change(at, key, before, None if data is _WITHDRAWN else data))
        if not is_older:
            self._older.discard(key)
            self._rows.move_to_end(key)
        elif known is None:
            self._older.add(key)
            self._rows.move_to_end(key, last=False)
        while self.bytes > self.bytes_max and len(self._rows) > 1:
            self._drop_first()

    def end_of_older(self) -> None:
        """Note that no older events will come."""
        self._older.clear()

    @property
    def keys(self) -> Sequence[str] | None:
        """The group columns of a query; None of a stream."""
        return self._keys

    def __len__(self) -> int:
        """Rows, those that were withdrawn among them."""
        return len(self._rows)

    def pieces(
        self, scope: Scope | None = None, keys: frozenset[str] | None = None
    ) -> Iterator[Sequence[Entry]]:
        """The rows of which something may be seen, as they are now, whatever comes meanwhile.

        A piece has what is seen of the next ROWS_A_TURN rows that are looked at, maybe nothing. The
        row that was heard of least lately comes first; those of `keys`, or of a reader of a few
        devices, come in the order of their keys.
        """
        return self._entries(self._seen(scope, keys))

    def in_order(
        self,
        scope: Scope | None = None,
        keys: frozenset[str] | None = None,
        *,
        after: str | None = None,
    ) -> Iterator[Sequence[Entry]]:
        """As `pieces`, in the order of keys, from behind `after` on.

        A piece has its rows as they are when it is asked for: a page looks at no more rows than it
        needs, and what changes meanwhile is told behind its cursor once more.
        """
        only = self.asked_for(scope, keys)
        if only is None:
            return self._entries(self._behind(after, scope))
        chosen = sorted(key for key in only if after is None or key > after)
        found = [(key, self._rows[key]) for key in chosen if key in self._rows]
        return self._entries(self._pieces_of(found, scope))

    def _behind(
        self, after: str | None, scope: Scope | None
    ) -> Iterator[Sequence[tuple[str, _Row]]]:
        while piece := list(islice(self._order.after(after), ROWS_A_TURN)):
            yield [(key, self._rows[key]) for key in piece if self.sees(scope, key)]
            after = piece[-1]

    def _entries(self, pieces: Iterator[Sequence[tuple[str, _Row]]]) -> Iterator[Sequence[Entry]]:
        passed = self._passed
        return (
            [Entry(key, _told(row, passed)) for key, row in piece if row.data is not _WITHDRAWN]
            for piece in pieces
        )

    def changed_since(
        self, place: Row, scope: Scope | None = None, keys: frozenset[str] | None = None
    ) -> Iterator[Sequence[RowChange]]:
        """The rows that changed after a position and may be seen, in pieces as of `pieces`."""
        passed = self._passed
        return (
            [
                RowChange(
                    key,
                    None if row.data is _WITHDRAWN else _told(row, passed),
                    is_behind(row.born, place),
                )
                for key, row in piece
                if is_behind(row.at, place)
            ]
            for piece in self._seen(scope, keys)
        )

    def asked_for(self, scope: Scope | None, keys: frozenset[str] | None) -> frozenset[str] | None:
        """The only keys that somebody may be told of; None: which they are is not known before."""
        named = None if scope is None or self._keys is not None else scope.named_devices
        if named is None or keys is None:
            return keys if named is None else named
        return keys & named

    def sees(self, scope: Scope | None, key: str) -> bool:
        """Is anything of this row seen? What is seen of a group its columns say."""
        return scope is None or self._keys is not None or scope.sees(key)

    def _seen(
        self, scope: Scope | None, keys: frozenset[str] | None
    ) -> Iterator[Sequence[tuple[str, _Row]]]:
        only = self.asked_for(scope, keys)
        if only is None:
            found = list(self._rows.items())
        else:
            found = [(key, self._rows[key]) for key in sorted(only) if key in self._rows]
        return self._pieces_of(found, scope)

    def _pieces_of(
        self, rows: Sequence[tuple[str, _Row]], scope: Scope | None
    ) -> Iterator[Sequence[tuple[str, _Row]]]:
        return (
            [(key, row) for key, row in piece if self.sees(scope, key)] for piece in in_turns(rows)
        )

    def _open_to(self, fields: Mapping[str, Any]) -> int | None:
        """The end of a row's window, where it was not final when it was emitted."""
        end = fields.get("window_end")
        return (
            end
            if self._keys is not None and fields.get("final") is False and isinstance(end, int)
            else None
        )

    def _is_newer(
        self,
        known: _Row,
        key: str,
        rank: tuple[int, int] | None,
        way: tuple[str, int | None],
        *,
        is_older: bool,
    ) -> bool:
        """Is what is known newer than what comes?"""
        (via, t), (known_via, known_t) = way, known.way
        if via != known_via and t is not None and known_t is not None:
            return t < known_t
        if known.rank is not None and rank is not None:
            return rank < known.rank
        return is_older and key not in self._older

    def _put(self, key: str, row: _Row) -> None:
        before = self._rows.get(key)
        self.bytes += _size(key, row) - (0 if before is None else _size(key, before))
        if before is None:
            self._order.add(key)
        self._rows[key] = row
        self.state += 1

    def _drop_first(self) -> None:
        key, row = self._rows.popitem(last=False)
        self.bytes -= _size(key, row)
        self._order.remove(key)
        self._older.discard(key)
        self.left_out += row.data is not _WITHDRAWN

    def _place(self, fields: Mapping[str, Any]) -> tuple[str, tuple[int, int] | None]:
        """The key, and what decides which of two is newer."""
        if self._keys is None:
            epoch, seq = fields.get("epoch"), fields.get("seq")
            return str(fields.get("device")), _rank(epoch, seq)
        window, revision = fields.get("window_start"), fields.get("revision")
        return json.dumps([fields.get(name) for name in self._keys]), _rank(window, revision)


def _rank(first: object, second: object) -> tuple[int, int] | None:
    """None where they are no numbers, which others may write: they could not be compared."""
    return (first, second) if isinstance(first, int) and isinstance(second, int) else None


def _way(fields: Mapping[str, Any]) -> tuple[str, int | None]:
    """See `_Row.way`."""
    t = fields.get("t")
    return str(fields.get("via") or ""), t if isinstance(t, int) else None


def _told(row: _Row, passed: int) -> bytes:
    """The row's JSON, marked as final where its window is: all up to `passed` are.

    A row is emitted when it changes, and not once more when its window becomes final.
    """
    if row.open_to is None or row.open_to > passed:
        return row.data
    head, _, tail = row.data.rpartition(b'"final":false')
    return head + b'"final":true' + tail


def _size(key: str, row: _Row) -> int:
    return len(key) + len(row.data) + ROW_BYTES
