"""A request for events as a value: what the query string and Last-Event-ID say. Pure.

It is checked as far as words go; which streams there are is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from edgewake.cloud.log.wanted import (
    FREE,
    Pace,
    Wanted,
    parse_conflate,
    parse_devices,
    parse_per,
    parse_rate,
    parse_sample,
    wanted,
)
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.names import STREAMS_PER_SUBSCRIPTION_MAX
from edgewake.protocol.ops.publication import Publication

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
    pace: Pace = FREE
    """How it is given its events."""
    publication: str | None = None
    """The name of the publication whose streams it wants: they are found when it is opened."""


def normal(subscription: Subscription) -> Wanted:
    """Streams sorted and each once; None for an empty filter."""
    found = wanted(subscription)
    return found.model_copy(
        update={
            "streams": tuple(sorted(set(found.streams))),
            "where": found.where or None,
            "select": found.select or None,
            "per": found.per if found.sample is not None else (),
        }
    )


def through(asked: Request, publication: Publication) -> Request:
    """Return the request with the streams of the publication."""
    subscription = wanted(asked.subscription).model_copy(
        update={"streams": publication.streams, "publication": publication}
    )
    return replace(asked, subscription=normal(subscription), pace=asked.pace.within(publication))


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
    devices: Sequence[object] | None = None,
    publication: str | None = None,
    sample: str | None = None,
    per: str | None = None,
    conflate: str | None = None,
    max_rate: str | None = None,
) -> Request:
    """Read the words of a request; `cursors` in order of rank, the first that is not empty counts.

    Raises RequestError.
    """
    names = _named(streams, publication)
    gap_policy = _one_of("on_gap", on_gap, tuple(OnGap))
    fields = _read("per", per, parse_per) or ()
    asked = Wanted(
        streams=names,
        where=where,
        select=select,
        devices=_read("devices", devices, parse_devices),
        sample=_read("sample", sample, parse_sample),
        per=fields,
    )
    pace = Pace(
        _read("conflate", conflate, parse_conflate),
        _read("max_rate", max_rate, parse_rate),
        fields,
    )
    if fields and asked.sample is None and pace.conflate_ms is None:
        raise RequestError(
            "per",
            "per: names what a thing is for sample or conflate; expected one of these beside it",
        )
    return Request(
        normal(asked),
        next(filter(None, cursors), None),
        parse_start(start or LogEnd.LATEST, now_ms),
        OnGap(gap_policy or OnGap.EARLIEST),
        on_gap in (OnGap.EARLIEST, OnGap.LATEST),
        _one_of("checkpoint", checkpoint, ("event", "id")) != "id",
        None if heartbeat is None else parse_heartbeat(heartbeat),
        _one_of("beat", beat, ("comment", "event")) == "event",
        _one_of("absent", absent, ("refuse", "wait")) == "wait",
        pace,
        publication,
    )


def _named(streams: Sequence[str], publication: str | None) -> tuple[str, ...]:
    """The streams that are wanted; of a publication its name, until it is found.

    Raises RequestError.
    """
    if publication is not None:
        if streams:
            raise RequestError(
                "publication", "publication: it says the streams: expected no others"
            )
        return (publication,)
    if not 0 < len(streams) <= STREAMS_PER_SUBSCRIPTION_MAX:
        raise RequestError(
            "streams", f"{len(streams)} streams: expected 1 to {STREAMS_PER_SUBSCRIPTION_MAX}"
        )
    return tuple(streams)


V = TypeVar("V")
F = TypeVar("F")


def _read(name: str, given: V | None, parse: Callable[[V], F]) -> F | None:
    try:
        return None if given is None else parse(given)
    except ValueError as error:
        raise RequestError(name, f"{name}: {error}") from None


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
    """Parse where to start. Raises RequestError.

    It is `earliest`, `latest`, an ISO 8601 time with offset or Z, a time ago (`-15m`), or ms since
    1970 UTC.
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
