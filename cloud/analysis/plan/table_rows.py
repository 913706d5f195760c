"""Reads a Kafka record as rows of a table: a frame of a stream, or a device's status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from edgewake.cloud.queries.terms.functions import BOOLEAN, NUMBER, STRING, TIME, Kind
from edgewake.cloud.queries.terms.table_columns import DEVICE_COLUMNS
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.corrected_time import corrected_ms, sent_ms
from edgewake.protocol.frames.frame import Scalar


class TableRecord(NamedTuple):
    """A record of a table's topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int = 0
    """Kafka's time of the record, ms."""


class Row(NamedTuple):
    """A row with all of its columns."""

    since: int
    columns: Mapping[str, Any]


class Unreadable(ValueError):
    """A record of a foreign topic is not a row; the text says why."""


def rows_of(topic: str, key: bytes | None, value: bytes | None) -> Iterator[Row]:
    """The rows of a record; none where it cannot be read."""
    if value is None:
        return
    try:
        if topic == topics.DEVICES:
            yield from _of_device(key or b"", value)
        else:
            yield from _of_frame(value)
    except (LookupError, TypeError, ValueError):
        return


def _of_frame(value: bytes) -> Iterator[Row]:
    found = record.decode(value)
    received_at = found.received_at if found.kept_at is None else found.kept_at
    sent_at = sent_ms(found.sent_at, shift=found.shift, received_at=received_at)
    for i, t in enumerate(found.frame.t):
        since = corrected_ms(t, shift=found.shift, received_at=received_at)
        values = {name: column[i] for name, column in found.frame.fields.items()}
        own = {
            "device": found.device,
            "event_time": since,
            "received_at": received_at,
            "sent_at": sent_at,
        }
        yield Row(since, values | own)


def _of_device(key: bytes, value: bytes) -> Iterator[Row]:
    if key.endswith(b"|status"):
        body = orjson.loads(value)
        since = body["received_at"]
        yield Row(
            since,
            {name: body.get(name) for name in DEVICE_COLUMNS}
            | {"device": body["device"], "event_time": since},
        )


def foreign_key(one: TableRecord) -> str:
    """Raises Unreadable."""
    try:
        return (one.key or b"").decode() or _refuse("it has no key")
    except UnicodeDecodeError as error:
        raise Unreadable("its key is not valid UTF-8") from error


def foreign_row(value: bytes, kinds: Iterable[tuple[str, Kind]]) -> Mapping[str, Any]:
    """The columns that are asked for of a foreign topic's record; one that it lacks is null.

    Raises Unreadable.
    """
    try:
        body = orjson.loads(value)
    except ValueError as error:
        raise Unreadable("its value is not JSON") from error
    if not isinstance(body, dict):
        raise Unreadable("its value is not a JSON object")
    found = {name: body.get(name) for name, _ in kinds}
    for name, kind in kinds:
        if found[name] is not None and typed(found[name], kind) is None:
            raise Unreadable(f"{name} is {str(found[name])[:40]!r}, expected a {kind}")
    return found


def _refuse(why: str) -> NoReturn:
    raise Unreadable(why)


_IS: Final[Mapping[Kind, tuple[type, ...]]] = {
    NUMBER: (int, float),
    STRING: (str,),
    BOOLEAN: (bool,),
    TIME: (int,),
}


def typed(value: Scalar | None, kind: Kind) -> Scalar | None:
    """Return a value of the column's type, else null.

    A field of a stream may have had another type earlier.
    """
    if kind is None or value is None:
        return value
    is_one = isinstance(value, _IS[kind]) and (kind is BOOLEAN or not isinstance(value, bool))
    return value if is_one else None
