"""When a stream's next frame is formed. Pure: time is an argument.

A frame costs its own packet, acknowledgement and row, however few readings are in it. A commit made
for an urgent reading takes along what waits in other lanes, and would put each of these few into a
frame. So a frame waits for company as long as its lane lingers, counted from its first reading,
unless it is full, or too few come to wait for: the busier a stream, the less each of its readings
costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.writing.batching import COMPANY, RATE_S

STREAMS_MAX: Final = 10_000
"""Streams whose rate is remembered; beyond that the frames of the one unheard for longest do not
wait."""


@dataclass(slots=True)
class _Rate:
    """Readings of one stream."""

    last_s: float
    per_s: float = 0.0
    since_s: float | None = None
    """When the first one without a frame came."""


class Filling:
    """Learns from the commits.

    `linger_s`: how long a frame of each lane waits at most; `readings_max`: how many fill one.
    """

    def __init__(self, linger_s: Mapping[Lane, float], *, readings_max: int) -> None:
        self._linger_s = linger_s
        self._readings_max = readings_max
        self._rates: dict[str, _Rate] = {}

    def committed(self, stream: str, readings: int, now_s: float, *, since_s: float) -> None:
        """A commit took this many readings, the first of which came at `since_s`."""
        rate = self._rates.pop(stream, None) or _Rate(now_s)
        if now_s > rate.last_s:
            seconds = now_s - rate.last_s
            weight = 1 - math.exp(-seconds / RATE_S)
            rate.per_s += weight * (readings / seconds - rate.per_s)
        rate.last_s = now_s
        rate.since_s = since_s if rate.since_s is None else rate.since_s
        self._rates[stream] = rate
        if len(self._rates) > STREAMS_MAX:
            del self._rates[next(iter(self._rates))]

    @property
    def waiting(self) -> list[str]:
        """Streams that may have something without a frame."""
        return [stream for stream, rate in self._rates.items() if rate.since_s is not None]

    def framed(self, stream: str) -> None:
        """Nothing of the stream waits for a frame any more."""
        if stream in self._rates:
            self._rates[stream].since_s = None

    def due_s(self, stream: str, lane: Lane, waiting: int) -> float | None:
        """When to form the next frame, of which `waiting` readings are there; None: now."""
        rate = self._rates.get(stream)
        linger_s = self._linger_s[lane]
        if (
            rate is None
            or rate.since_s is None
            or waiting >= self._readings_max
            or rate.per_s * linger_s < COMPANY
        ):
            return None
        return rate.since_s + linger_s
