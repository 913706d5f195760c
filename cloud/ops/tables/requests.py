"""Devices' requests: the rows of `ew.requests`, joined with their readings and replies.

No I/O.

    read ─ taken (a row) ─ replied (in the row) ─ sent (a row of ew.down) ─ delivered (in the row) ─
    forgotten

`due` says what must be written next; each step is decided from what is durable, so it is the same
whoever was killed before. A row has its request's position on the stream's topic: requests before
the last of them were taken, and are not taken again after a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from edgewake.cloud.ops.tables.device_commands import DownTable
from edgewake.protocol import topics
from edgewake.protocol.downlink.down_message import Reply, ReplyState
from edgewake.protocol.downlink.down_row import OPEN_BY_GATEWAY_MAX, DownRow, key_of
from edgewake.protocol.downlink.downlink import REPLY_PREFIX, REQUEST_WRONG, DownKind
from edgewake.protocol.downlink.request import ENDED_MAX, OPEN_MAX, Request, request_of
from edgewake.protocol.downlink.request_row import REPLY_LIFE_MS, RequestRow
from edgewake.protocol.plain_json import Misshapen

FRESH_MAX: Final = 2 * OPEN_MAX
"""Requests of one device that were read and are in no row yet. Of a device that asks for more at
once, more are not taken: nobody answers them, and they are over on the device in their time."""
NOWHERE: Final = (-1, -1)


@dataclass(frozen=True, slots=True)
class Write:
    """A row to be written; None: removed."""

    topic: str
    key: str
    row: BaseModel | None


@dataclass
class RequestTable:
    """The requests of devices, as rows."""

    served: Collection[str] | None = None
    """Names that somebody answers; others are refused at once. None: every one waits for its
    answer."""
    _rows: dict[str, dict[str, RequestRow]] = field(default_factory=dict)
    """Rows by device and id."""
    _live: dict[str, RequestRow] = field(default_factory=dict)
    """Rows that still need work, by key."""
    _fresh: dict[str, dict[str, RequestRow]] = field(default_factory=dict)
    """Requests by device and id that were read and are in no row yet."""
    _crowded: set[str] = field(default_factory=set)
    """Devices that may have more rows than are kept."""
    _taken: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Position by partition: what stands up to there has its row, or had it."""
    left_out: int = 0
    """Requests that were not taken, since the start."""

    def put(self, key: str, value: bytes | None) -> None:
        """A record of `ew.requests`. Raises ValueError."""
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
        """Take a reading of the stream of requests, with the device that the bridge saw.

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
            return  # the same request again
        if len(self._fresh.get(device, {})) >= FRESH_MAX:
            self.left_out += 1
            return
        self._fresh.setdefault(device, {})[row.id] = row

    def get(self, device: str, request_id: str) -> RequestRow | None:
        """The row of one request."""
        return self._rows.get(device, {}).get(request_id)

    def of(self, device: str) -> Iterable[RequestRow]:
        """The requests of one device."""
        return self._rows.get(device, {}).values()

    def all(self) -> Iterator[RequestRow]:
        """Every row."""
        for rows in self._rows.values():
            yield from rows.values()

    def due(self, down: DownTable, now_ms: int) -> list[Write]:
        """What is to be written next, in this order. When it is, this is asked again."""
        taken = [self._take(row, now_ms) for row in self._in_order()]
        following = [write for row in self._live.values() for write in _next(row, down, now_ms)]
        return taken + _as_gateways_take(following, down, now_ms) + self._forgotten(now_ms)

    def _in_order(self) -> list[RequestRow]:
        """Fresh requests in the order of the topic.

        A row that is written says that all before it were taken.
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
        return f"{OPEN_MAX} requests of this device wait, no more" if waiting >= OPEN_MAX else None

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
    """A request with its reply."""
    thing = row.device if row.via else ""
    reply = Reply(id=REPLY_PREFIX + row.id, thing=thing, state=state, body=body, detail=detail)
    return row.model_copy(update={"reply": reply, "replied_at": now_ms, "replied_by": by})


def _next(row: RequestRow, down: DownTable, now_ms: int) -> Iterator[Write]:
    key = key_of(row.device, row.id)
    if row.reply is None:
        if now_ms >= row.expires_at:
            yield Write(
                topics.REQUESTS,
                key,
                replied(row, ReplyState.EXPIRED, detail="nobody answered in time", now_ms=now_ms),
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


def _as_gateways_take(writes: list[Write], down: DownTable, now_ms: int) -> list[Write]:
    """Leave out replies to things whose gateway has too much to answer: they wait."""
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
    """A request as it came; what is wrong in it is its reply.

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
