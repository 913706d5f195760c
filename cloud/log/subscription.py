"""What a client asks for and where it begins: decisions only, no I/O.

Request   what the query string and Last-Event-ID say, checked as far as words go
Source    one stream or query as Kafka has it now
Plan      a request's streams with their sources and compiled filters
Start     the positions to begin at, and the gaps to announce first (decided in
          `edgewake.cloud.log.resume`)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from edgewake.cloud.log.decode import DATA, GAP, Event, project
from edgewake.cloud.log.filters.filter import Select, Where, compile_select, compile_where
from edgewake.cloud.log.filters.filter_check import FilterWarning, Kinds, warnings_of
from edgewake.cloud.log.filters.filter_cost import events_per_look
from edgewake.cloud.log.filters.filter_keys import KNOWN_OF_A_GAP, Keys, keys_of
from edgewake.cloud.log.filters.filter_partial import rules_out
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.rights.scope import Scope, Scopes
from edgewake.cloud.rights.scope import normal as normal_scopes
from edgewake.protocol.cursor import (
    PARTITIONS_MAX,
    Cursor,
    Position,
    StreamPosition,
    filters_hash,
    generation_hash,
    stream_hash,
)
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.names import STREAMS_PER_SUBSCRIPTION_MAX

Positions: TypeAlias = tuple[tuple[Position, ...], ...]
"""Per stream in sorted order, per partition."""

HEARTBEAT_S_MIN: Final = 5
HEARTBEAT_S_MAX: Final = 300
"""What a client may ask for: a radio that is woken more often never sleeps; proxies close what is
silent for longer."""
TIME_MS_MIN: Final = 100_000_000_000
"""March 1973: a smaller number is a time in seconds, of which everything since 1970 would be
sent."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""The year 9999."""
AGO: Final = re.compile(r"-([0-9]{1,9})([smhd])")
AGO_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIME_EXPECTED: Final = (
    "earliest, latest, a time such as 2026-11-21T08:00:00Z, a time ago such as -15m, or "
    "milliseconds since 1970"
)


class RequestError(RemoteError):
    """A request that is wrong in itself; `code` is for machines."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class SubscriptionTooLarge(RequestError):
    """A subscription whose cursor would not fit into a request's header."""


class OnGap(StrEnum):
    """The ways to go on after a gap."""

    EARLIEST = "earliest"
    LATEST = "latest"
    STOP = "stop"


class LogEnd(StrEnum):
    """The oldest record of a stream, or the one that comes next."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Request:
    """A subscription and its beginning.

    `cursor` wins over `start`, which is an edge or a time in ms since 1970 UTC.
    """

    subscription: Subscription
    cursor: str | None = None
    start: LogEnd | int = LogEnd.LATEST
    on_gap: OnGap = OnGap.EARLIEST
    goes_on: bool = False
    """It names how to go on after a gap: earliest or latest. That is also how a client goes on that
    was stopped at one."""
    checkpoint_events: bool = True
    """Send the cursor's progress as `event: checkpoint` with data and not as a block with an id
    alone, which half of all clients ignore."""
    heartbeat_s: float | None = None
    """Seconds of silence after which the client wants a sign of life; None: as the server likes."""
    heartbeat_events: bool = False
    """Signs of life are events with a name, which a browser's EventSource can see, and not
    comments."""
    waits: bool = False
    """Wait for streams that are not there yet, in place of being refused."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stream (`ew.s.*`) or a query (`ew.q.*`) as Kafka has it."""

    name: str
    topic: str
    is_query: bool
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Sight:
    """A subscription as it is seen through its reader's rights: what is the same for all is made
    once for all who have equal ones.
    """

    subscription: Subscription
    scopes: Scopes = ()

    @property
    def is_common(self) -> bool:
        """Is it what everybody uses: one stream without a filter, and all of it?"""
        return (
            len(self.subscription.streams) == 1
            and self.subscription.where is None
            and self.subscription.select is None
            and not self.scopes
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A subscription ready to be read. `sources` are in the sorted order that cursors use."""

    subscription: Subscription
    sources: tuple[Source, ...]
    where: Where | None
    select: Select | None
    filters: bytes
    """filters_hash of the subscription."""
    scopes: Scopes = ()
    """What of each source its reader may see: cut before a filter sees it, so that no filter can
    tell anything of what is hidden."""

    @property
    def sight(self) -> Sight:
        """What is seen through it."""
        return Sight(self.subscription, self.scopes)

    def show(self, event: Event, stream: int = 0) -> Event | None:
        """The event of the n-th source as this subscription sees it; None when filtered out, or not
        to be seen.

        Watermarks are always shown, and gaps unless it is ruled out that they concern what is seen:
        those of other devices.
        """
        seen = self._seen(event, stream) if self.scopes else event
        return None if seen is None else self._filtered(seen)

    def _seen(self, event: Event, stream: int) -> Event | None:
        scope = self.scopes[stream]
        if scope is None:
            return event
        if event.kind == DATA:
            fields = scope.cut(event.fields, is_result=self.sources[stream].is_query)
            if fields is None:
                return None
            return event if fields is event.fields else project(event, fields)
        device = event.fields.get("device")
        return event if device is None or scope.sees(device) else None

    def _filtered(self, event: Event) -> Event | None:
        if event.kind == DATA:
            if self.where is not None and not self.where.passes(event.fields):
                return None
            return (
                event if self.select is None else project(event, self.select.project(event.fields))
            )
        if event.kind == GAP and self.where is not None:
            known = {name: event.fields[name] for name in KNOWN_OF_A_GAP if name in event.fields}
            return None if rules_out(self.where.tree, known) else event
        return event

    @property
    def keys(self) -> tuple[Keys, ...] | None:
        """Of each source what an event must hold to be shown; None where that is not known of one
        of them.
        """
        where = None if self.where is None else self.where.tree
        found = [
            keys_of(where, self.scopes[i] if self.scopes else None)
            for i in range(len(self.sources))
        ]
        known = tuple(keys for keys in found if keys is not None)
        return known if len(known) == len(found) else None

    def warnings(self, fields_of: Callable[[str], Kinds | None]) -> list[FilterWarning]:
        """What in the filters can hardly be meant; nothing where the fields of one of the streams
        are not known.
        """
        trees = [
            *([self.where.tree] if self.where else []),
            *(self.select.trees if self.select else []),
        ]
        streams = [self._kinds(i, fields_of) for i in range(len(self.sources))]
        known = [fields for fields in streams if fields is not None]
        return warnings_of(trees, known) if trees and len(known) == len(streams) else []

    def _kinds(self, stream: int, fields_of: Callable[[str], Kinds | None]) -> Kinds | None:
        """The fields of the n-th source that are seen."""
        kinds = fields_of(self.sources[stream].name)
        scope = self.scopes[stream] if self.scopes else None
        if kinds is None or scope is None:
            return kinds
        return {name: kind for name, kind in kinds.items() if scope.shows_field(name)} or None

    @property
    def events_per_look(self) -> int:
        """Events after which a reader should check the clock, because this plan's filters are
        expensive.
        """
        return events_per_look(
            sum(part.cost for part in (self.where, self.select) if part is not None)
        )

    def cursor(self, positions: Positions) -> Cursor:
        """The cursor of these positions."""
        return Cursor(
            tuple(
                StreamPosition(stream_hash(source.name), generation_hash(source.topic_id), row)
                for source, row in zip(self.sources, positions, strict=True)
            ),
            self.filters,
        )


def normal(subscription: Subscription) -> Subscription:
    """Streams sorted and each once; None for an empty filter."""
    streams = tuple(sorted(set(subscription.streams)))
    return Subscription(
        streams=streams, where=subscription.where or None, select=subscription.select or None
    )


def sight(subscription: Subscription, reader: Principal) -> Sight:
    """What `reader` sees of a normal subscription."""
    scopes = [reader.scope(Action.READ, name) for name in subscription.streams]
    return Sight(subscription, normal_scopes(scopes))


def check_filters(subscription: Subscription) -> tuple[Where | None, Select | None]:
    """The compiled filters; raises FilterError."""
    where, select = subscription.where, subscription.select
    return None if where is None else compile_where(
        where
    ), None if select is None else compile_select(select)


def plan(
    subscription: Subscription, sources: Sequence[Source], scopes: Sequence[Scope | None] = ()
) -> Plan:
    """A plan of a normal subscription; raises FilterError and SubscriptionTooLarge.

    `scopes`: what may be seen of each source.
    """
    partitions = sum(source.partitions for source in sources)
    if partitions > PARTITIONS_MAX:
        raise SubscriptionTooLarge(
            "partitions",
            f"{len(sources)} streams with {partitions} partitions: expected at most "
            f"{PARTITIONS_MAX} partitions together",
        )
    return Plan(
        subscription,
        tuple(sources),
        *check_filters(subscription),
        filters_hash(subscription.where, subscription.select),
        normal_scopes(scopes),
    )


def request(
    streams: Sequence[str],
    *,
    now_ms: int,
    where: str | None = None,
    select: str | None = None,
    start: str | None = None,
    on_gap: str | None = None,
    checkpoint: str | None = None,
    heartbeat: str | None = None,
    beat: str | None = None,
    absent: str | None = None,
    cursors: Sequence[str | None] = (),
) -> Request:
    """Read the words of a request; `cursors` in order of rank, the first that is not empty counts.

    Raises RequestError.
    """
    if not 0 < len(streams) <= STREAMS_PER_SUBSCRIPTION_MAX:
        raise RequestError(
            "streams", f"{len(streams)} streams: expected 1 to {STREAMS_PER_SUBSCRIPTION_MAX}"
        )
    gap_policy = _one_of("on_gap", on_gap, tuple(OnGap))
    return Request(
        normal(Subscription(streams=tuple(streams), where=where, select=select)),
        next(filter(None, cursors), None),
        parse_start(start or LogEnd.LATEST, now_ms),
        OnGap(gap_policy or OnGap.EARLIEST),
        on_gap in (OnGap.EARLIEST, OnGap.LATEST),
        _one_of("checkpoint", checkpoint, ("event", "id")) != "id",
        None if heartbeat is None else parse_heartbeat(heartbeat),
        _one_of("beat", beat, ("comment", "event")) == "event",
        _one_of("absent", absent, ("refuse", "wait")) == "wait",
    )


def _one_of(name: str, text: str | None, words: tuple[str, ...]) -> str | None:
    if text is not None and text not in words:
        raise RequestError(
            name, f"{name}={text[:40]!r}: expected {', '.join(words[:-1])} or {words[-1]}"
        )
    return text


def parse_heartbeat(text: str) -> float:
    """Seconds; raises RequestError."""
    if (
        len(text) <= 3
        and text.isascii()
        and text.isdigit()
        and HEARTBEAT_S_MIN <= int(text) <= HEARTBEAT_S_MAX
    ):
        return float(text)
    raise RequestError(
        "heartbeat",
        f"heartbeat={text[:40]!r}: expected whole seconds from {HEARTBEAT_S_MIN} to "
        f"{HEARTBEAT_S_MAX}",
    )


def parse_start(text: str, now_ms: int) -> LogEnd | int:
    """`earliest`, `latest`, an ISO 8601 time with offset or Z, a time ago (`-15m`), or ms since
    1970 UTC; raises RequestError.
    """
    if text in (LogEnd.EARLIEST, LogEnd.LATEST):
        return LogEnd(text)
    ago = AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * AGO_MS[ago[2]])
    try:
        ms = _number_ms(text) if text.isascii() and text.isdigit() else _iso_ms(text)
    except ValueError:
        ms = -1
    if not 0 <= ms <= TIME_MS_MAX:
        raise RequestError("from", f"from={text[:40]!r}: expected {TIME_EXPECTED}")
    return ms


def _number_ms(text: str) -> int:
    """Raises ValueError for what has too many digits, and RequestError."""
    number = int(text)
    if number < TIME_MS_MIN:
        hint = (
            "for all that is kept, from=earliest"
            if number == 0
            else f"did you mean {number * 1000}?"
        )
        raise RequestError(
            "from",
            f"from={text[:40]!r}: these are seconds, or it is 1970; expected milliseconds since "
            f"1970; {hint}",
        )
    return number


def _iso_ms(text: str) -> int:
    # A `+` of an offset that was not encoded arrives as a blank.
    moment = datetime.fromisoformat(
        text.replace(" ", "+") if text.count(" ") == 1 and "T" in text else text
    )
    if moment.tzinfo is None:
        example = moment.isoformat(timespec="seconds")
        detail = (
            f"from={text[:40]!r}: a time zone is missing; expected {example}Z for UTC, or an "
            f"offset such as {example}%2B02:00"
        )
        raise RequestError("from", detail)
    return int(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What Kafka has of a partition now: offset of its first record and the one after its last
    committed record.
    """

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap event and the cursor that its client goes on with."""

    event: Event
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin.

    `how`: earliest, latest, time, resumed, gap or stopped. `ends` when the client asked to stop at
    a gap.
    """

    positions: Positions
    how: str
    gaps: tuple[Gap, ...] = ()
    ends: bool = False
