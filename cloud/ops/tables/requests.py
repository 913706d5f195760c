"""Devices' requests: rows of `ew.requests`, joined with their readings and replies. No I/O.

    read ─ taken (a row) ─ replied (in the row) ─ sent (a row of ew.down) ─ delivered (in the row) ─
    forgotten

`due` returns what must be written next. Each step is decided from durable state, so it is the same
after any crash. A row has its request's position on the stream's topic: earlier requests were
taken, and are not taken again after a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from edgewake.cloud.ops.tables.device_commands import CommandTable
from edgewake.protocol import topics
from edgewake.protocol.downlink.down_message import Reply, ReplyState
from edgewake.protocol.downlink.down_row import OPEN_BY_GATEWAY_MAX, DownRow, key_of
from edgewake.protocol.downlink.downlink import REPLY_PREFIX, REQUEST_WRONG, DownKind
from edgewake.protocol.downlink.request import ENDED_MAX, OPEN_MAX, Request, request_of
from edgewake.protocol.downlink.request_row import REPLY_LIFE_MS, RequestRow
from edgewake.protocol.plain_json import Misshapen

FRESH_MAX: Final = 2 * OPEN_MAX
"""The most requests of one device that were read and have no row yet. Further ones are dropped:
nobody answers them, and they expire on the device."""
NOWHERE: Final = (-1, -1)


@dataclass(frozen=True, slots=True)
class Write:
    """A row to write; None removes it."""

    topic: str
    key: str
    row: BaseModel | None


@dataclass
class RequestTable:
    """The requests of devices."""

    served: Collection[str] | None = None
    """Names of requests that somebody answers; others are refused immediately. None: every request
    waits.
    """
    _rows: dict[str, dict[str, RequestRow]] = field(default_factory=dict)
    """Device → id → row."""
    _live: dict[str, RequestRow] = field(default_factory=dict)
    """Key → row that needs work."""
    _fresh: dict[str, dict[str, RequestRow]] = field(default_factory=dict)
    """Device → id → request that was read and has no row yet."""
    _crowded: set[str] = field(default_factory=set)
    """Devices that may have more rows than are retained."""
    _taken: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition → position up to which every request has, or had, a row."""
    left_out: int = 0
    """How many requests were dropped since the start."""

    def put(self, key: str, value: bytes | None) -> None:
        """Applies a record of `ew.requests`. Raises ValueError."""
        device, _, request_id = key.rpartition("|")
        if value is None:
            self._live.pop(key, None)
            _remove(self._rows, device, request_id)
            return
        row = RequestRow.model_validate_json(value)
        self._taken[row.partition] = max(row.position, self._taken.get(row.partition, NOWHERE))
        self._rows.setdefault(device, {})[request_id] = row
        _remove(self._fresh, device, request_id)
        self._crowded.add(device)
        if row.delivered_at is None:
            self._live[key] = row
        else:
            self._live.pop(key, None)

    def on_request(
        self, reading: Mapping[str, Any], partition: int, offset: int, place: int
    ) -> None:
        """Applies a reading of the stream of requests, with the device that the bridge saw.

        `partition`, `offset` and `place` are its position. Raises ValueError, KeyError.
        """
        device = reading["device"]
        if (offset, place) <= self._taken.get(partition, NOWHERE):
            return
        where = {
            "device": device,
            "via": reading.get("via", ""),
            "received_at": reading["received_at"],
            "partition": partition,
            "offset": offset,
            "place": place,
        }
        row = _row(reading, where)
        if self.get(device, row.id) is not None or row.id in self._fresh.get(device, {}):
            return  # The device repeated the request.
        if len(self._fresh.get(device, {})) >= FRESH_MAX:
            self.left_out += 1
            return
        self._fresh.setdefault(device, {})[row.id] = row

    def get(self, device: str, request_id: str) -> RequestRow | None:
        """Returns the row of a request."""
        return self._rows.get(device, {}).get(request_id)

    def of(self, device: str) -> Iterable[RequestRow]:
        """Returns the requests of a device."""
        return self._rows.get(device, {}).values()

    def all(self) -> Iterator[RequestRow]:
        """Yields every row."""
        for rows in self._rows.values():
            yield from rows.values()

    def due(self, down: CommandTable, now_ms: int) -> list[Write]:
        """Returns what to write next, in this order; call it again when that is written."""
        taken = [self._take(row, now_ms) for row in self._in_order()]
        following = [write for row in self._live.values() for write in _next(row, down, now_ms)]
        return taken + _as_gateways_take(following, down, now_ms) + self._forgotten(now_ms)

    def _in_order(self) -> list[RequestRow]:
        """Returns new requests in the order of the topic.

        A written row implies that all requests before it were taken.
        """
        fresh = [row for rows in self._fresh.values() for row in rows.values()]
        return sorted(fresh, key=lambda row: (row.partition, row.position))

    def _take(self, row: RequestRow, now_ms: int) -> Write:
        why = self._refusal(row)
        if why is not None and row.reply is None:
            row = replied(row, ReplyState.REFUSED, detail=why, now_ms=now_ms)
        return Write(topics.REQUESTS, key_of(row.device, row.id), row)

    def _refusal(self, row: RequestRow) -> str | None:
        if self.served is not None and row.name not in self.served:
            return (
                f"nobody serves {row.name!r}; served: {', '.join(sorted(self.served)) or 'nothing'}"
            )
        fresh = [
            one for one in self._fresh.get(row.device, {}).values() if one.position < row.position
        ]
        waiting = sum(one.is_open for one in (*self._rows.get(row.device, {}).values(), *fresh))
        return (
            f"{OPEN_MAX} requests of this device wait, the most at once"
            if waiting >= OPEN_MAX
            else None
        )

    def _forgotten(self, now_ms: int) -> list[Write]:
        found: list[Write] = []
        for device in self._crowded:
            ended = [row for row in self._rows.get(device, {}).values() if not row.is_open]
            ended.sort(key=lambda row: (not row.is_settled_at(now_ms), row.position))
            for row in ended[: max(0, len(ended) - ENDED_MAX)]:
                found.append(Write(topics.REQUESTS, key_of(device, row.id), None))
                found.append(Write(topics.DOWN, key_of(device, REPLY_PREFIX + row.id), None))
        self._crowded.clear()
        return found


def replied(
    row: RequestRow, state: ReplyState, *, now_ms: int, body: str = "", detail: str = "",
    by: str = ""
) -> RequestRow:  # fmt: skip
    """Returns a request with its reply."""
    thing = row.device if row.via else ""
    reply = Reply(id=REPLY_PREFIX + row.id, thing=thing, state=state, body=body, detail=detail)
    return row.model_copy(update={"reply": reply, "replied_at": now_ms, "replied_by": by})


def _next(row: RequestRow, down: CommandTable, now_ms: int) -> Iterator[Write]:
    key = key_of(row.device, row.id)
    if row.reply is None:
        if now_ms >= row.expires_at:
            yield Write(
                topics.REQUESTS,
                key,
                replied(row, ReplyState.EXPIRED, detail="no answer came in time", now_ms=now_ms),
            )
        return
    assert row.replied_at is not None
    sent = down.get(row.device, row.reply.id)
    if sent is not None and sent.answer is not None:
        yield Write(topics.REQUESTS, key, row.model_copy(update={"delivered_at": sent.answered_at}))
    elif sent is None and not row.is_settled_at(now_ms):
        yield Write(
            topics.DOWN, key_of(row.device, row.reply.id), _down_row(row, row.reply, row.replied_at)
        )


def _down_row(row: RequestRow, reply: Reply, replied_at: int) -> DownRow:
    return DownRow(
        device=row.device,
        kind=DownKind.REPLY,
        payload=reply.to_json().decode(),
        asked_at=replied_at,
        expires_at=replied_at + REPLY_LIFE_MS,
        asked_by=row.replied_by,
        via=row.via,
    )


def _as_gateways_take(writes: list[Write], down: CommandTable, now_ms: int) -> list[Write]:
    """Postpones replies to things whose gateway has too many open messages."""
    open_by: dict[str, int] = {}
    found: list[Write] = []
    for write in writes:
        if isinstance(write.row, DownRow) and write.row.via:
            via = write.row.via
            waiting = open_by[via] if via in open_by else down.open_by(via, now_ms)
            if waiting >= OPEN_BY_GATEWAY_MAX:
                continue
            open_by[via] = waiting + 1
        found.append(write)
    return found


def _row(reading: Mapping[str, Any], where: Mapping[str, Any]) -> RequestRow:
    """Reads a request; errors in it become its reply.

    Raises ValueError, KeyError where it has no id to reply to.
    """
    at = where["received_at"]
    detail = str(reading.get(REQUEST_WRONG) or "")
    try:
        request = request_of(reading)
    except Misshapen as error:
        detail = detail or str(error)
    if detail:
        wrong = RequestRow(
            id=reading["id"],
            name=str(reading.get("name") or "")[:64],
            body="",
            expires_at=at,
            **where,
        )
        return replied(wrong, ReplyState.REFUSED, detail=detail[:500], now_ms=at)
    return _of(request, where)


def _of(request: Request, where: Mapping[str, Any]) -> RequestRow:
    expires_at = where["received_at"] + 1000 * request.expires_s
    return RequestRow(
        id=request.id, name=request.name, body=request.body, expires_at=expires_at, **where
    )


def _remove(table: dict[str, dict[str, RequestRow]], device: str, request_id: str) -> None:
    rows = table.get(device, {})
    rows.pop(request_id, None)
    if not rows:
        table.pop(device, None)
