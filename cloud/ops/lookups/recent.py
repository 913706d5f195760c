"""What streams and queries had lately, and then what came since: pages that ask again and again.

A place says where the last answer ended; it is a client's own text, so it is read with care.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from confluent_kafka import Message
from pydantic import BaseModel

from edgewake.cloud.alerts.judge import readings_of
from edgewake.cloud.log.filters.filter import compile_select, compile_where
from edgewake.cloud.log.filters.filter_syntax import Sets
from edgewake.cloud.ops.lookups.kafka_lookup import DeadlinePassed, KafkaSession
from edgewake.protocol import topics
from edgewake.protocol.errors import FilterError
from edgewake.protocol.ops.named_set import NamedSet

RECORDS_MAX: Final = 2_000
"""Records of one stream in one answer, the newest."""
EVENTS_MAX: Final = 5_000
"""Readings and rows in one answer; the oldest are left out, and that is said."""
EVENTS_FILTERED_MAX: Final = 100_000
"""Readings and rows that one answer's filter looks at, the newest first."""
RECORDS_OF_DEVICE_MAX: Final = 20_000
"""The records that are scanned for one device; those of others are skipped without decoding."""
PLACE_CHARS_MAX: Final = 4_096
"""Characters of a place: positions in sixteen streams of some dozen partitions each; the head of a
request has room for it, however it is written."""
PLACE_BYTES_MAX: Final = 65_536
"""Bytes of a place that is unpacked; more is nobody's."""

Places = dict[str, dict[int, int]]


class Recent(BaseModel):
    """An answer."""

    events: list[dict[str, Any]]
    """Readings, flat, with their `stream`; rows with their `query`; in the order of Kafka's
    clock."""
    place: str
    """`after` of the next question."""
    is_cut: bool
    """There was more than is given: the newest is."""


def encode(places: Places) -> str:
    """A place as text."""
    text = orjson.dumps(places, option=orjson.OPT_NON_STR_KEYS)
    return base64.urlsafe_b64encode(zlib.compress(text)).decode()


def decode(text: str) -> Places:
    """Raises ValueError."""
    try:
        packed = base64.urlsafe_b64decode(text)
        found = orjson.loads(zlib.decompressobj().decompress(packed, PLACE_BYTES_MAX))
        return {
            str(topic): {int(partition): int(offset) for partition, offset in offsets.items()}
            for topic, offsets in found.items()
        }
    except (binascii.Error, zlib.error, ValueError, AttributeError, TypeError) as error:
        raise ValueError("after: expected the place of an earlier answer") from error


def read(
    session: KafkaSession,
    wanted: Mapping[str, str],
    after: Places,
    *,
    begin: int,
    device: str | None = None,
) -> tuple[list[tuple[str, Message]], Places, bool]:
    """(name, record) of topics since their places, or since `begin`; the places behind them.

    `wanted`: topic → name; `device`: only what this one sent. Raises Unavailable.
    """
    most = RECORDS_MAX if device is None else RECORDS_OF_DEVICE_MAX
    key = None if device is None else device.encode()
    found: list[tuple[str, Message]] = []
    places: Places = {}
    is_cut = False
    for topic, name in wanted.items():
        count = session.partitions(topic)
        places[topic] = {}
        for partition in range(count):
            low, high = session.range(topic, partition)
            start = after.get(topic, {}).get(partition)
            if start is None:
                first = session.offset_at(topic, partition, begin)
                start = high if first is None else first
            newest = max(low, high - most // count)
            is_cut = is_cut or newest > start
            start = min(max(start, newest), high)
            places[topic][partition] = high
            try:
                found += (
                    (name, one)
                    for one in session.read(topic, partition, start, high)
                    if key is None or one.key() == key
                )
            except DeadlinePassed as error:
                places[topic][partition] = error.offset
                is_cut = True
    return sorted(found, key=lambda one: one[1].timestamp()[1]), places, is_cut


@dataclass(frozen=True, slots=True)
class Shown:
    """What of the events is shown."""

    passes: Callable[[Mapping[str, Any]], bool] | None = None
    """None: all of them."""
    project: Callable[[Mapping[str, Any]], dict[str, Any]] = dict


ALL: Final = Shown()


class KnownSets:
    """The named sets of the tables, for filters. Keep one: filters are compiled once for each."""

    def __init__(self, sets: Mapping[str, NamedSet]) -> None:
        self._sets = sets

    def members(self, name: str) -> frozenset[str] | None:
        """The texts in a set; None where there is no such set."""
        found = self._sets.get(name)
        return None if found is None else frozenset(found.members)


def shown(where: str | None, select: str | None, sets: Sets) -> Shown:
    """What a filter and columns show, as at the access servers. Raises FilterError."""
    condition = compile_where(where, sets) if where else None
    for name in sorted(condition.sets if condition else ()):
        if sets.members(name) is None:
            raise FilterError(f"where: no set is named {name!r}; make it first")
    return Shown(
        passes=condition.passes if condition else None,
        project=compile_select(select).project if select else dict,
    )


def events_of(
    found: Sequence[tuple[str, Message]], wanted: Shown = ALL
) -> tuple[list[dict[str, Any]], bool]:
    """Readings and rows, and whether there were too many."""
    events: list[dict[str, Any]] = []
    for seen, event in enumerate(_newest_first(found)):
        if len(events) == EVENTS_MAX or seen == EVENTS_FILTERED_MAX:
            return events[::-1], True
        if wanted.passes is None or wanted.passes(event):
            events.append(wanted.project(event))
    return events[::-1], False


def _newest_first(found: Sequence[tuple[str, Message]]) -> Iterator[Mapping[str, Any]]:
    for name, message in reversed(found):
        is_row = str(message.topic()).startswith(topics.QUERY_PREFIX)
        for event in reversed(readings_of(message)):
            yield {**event, "query": name} if is_row else event
