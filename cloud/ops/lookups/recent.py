"""Reads recent readings and rows, then what came since, for pages that poll.

A place says where the last answer ended. The client sends it back, so it is untrusted input.
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
"""The most records of one stream in an answer, the newest ones."""
EVENTS_MAX: Final = 5_000
"""The most readings and rows in an answer; of more the oldest are omitted, and `is_cut` is set."""
EVENTS_FILTERED_MAX: Final = 100_000
"""The most readings and rows that an answer's filter scans, newest first."""
RECORDS_OF_DEVICE_MAX: Final = 20_000
"""The most records scanned for one device; those of others are skipped without decoding."""
PLACE_CHARS_MAX: Final = 4_096
"""The most characters of a place: positions in sixteen streams of some dozen partitions each. The
head of a request has room for it in any encoding."""
PLACE_BYTES_MAX: Final = 65_536
"""The most bytes of an unpacked place; no server makes a larger one."""

Places = dict[str, dict[int, int]]


class Recent(BaseModel):
    """An answer with recent readings and rows."""

    events: list[dict[str, Any]]
    """Flat readings with their `stream` and rows with their `query`, in the order of Kafka's clock.
    """
    place: str
    """The `after` of the next request."""
    is_cut: bool
    """Whether older events were omitted."""


def encode(places: Places) -> str:
    """Encodes a place as text."""
    text = orjson.dumps(places, option=orjson.OPT_NON_STR_KEYS)
    return base64.urlsafe_b64encode(zlib.compress(text)).decode()


def decode(text: str) -> Places:
    """Decodes a place. Raises ValueError."""
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
    """Reads topics since their places, or since `begin`.

    Returns (name, record), and the new places.

    `wanted` is topic → name; with `device` only its records are returned. Raises Unavailable.
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
    """A filter and a selection of fields for events."""

    passes: Callable[[Mapping[str, Any]], bool] | None = None
    """None: all of them."""
    project: Callable[[Mapping[str, Any]], dict[str, Any]] = dict


ALL: Final = Shown()


class KnownSets:
    """The named sets of the tables, for filters. Reuse it: filters are compiled once for it."""

    def __init__(self, sets: Mapping[str, NamedSet]) -> None:
        self._sets = sets

    def members(self, name: str) -> frozenset[str] | None:
        """Returns the members of a set; None where it is unknown."""
        found = self._sets.get(name)
        return None if found is None else frozenset(found.members)


def shown(where: str | None, select: str | None, sets: Sets) -> Shown:
    """Compiles a filter and columns as access servers do. Raises FilterError."""
    condition = compile_where(where, sets) if where else None
    for name in sorted(condition.sets if condition else ()):
        if sets.members(name) is None:
            raise FilterError(f"where: no set is named {name!r}; create it first")
    return Shown(
        passes=condition.passes if condition else None,
        project=compile_select(select).project if select else dict,
    )


def events_of(
    found: Sequence[tuple[str, Message]], wanted: Shown = ALL
) -> tuple[list[dict[str, Any]], bool]:
    """Decodes readings and rows; returns them, and whether there were too many."""
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
