"""Passes readings of several streams, and of things behind this device, into the log.

Each thing has a stream of its own, `power/of/meter-7`, so that numbers, gaps, quotas and frames are
the thing's. A reading of another stream than its source's says so under STREAM.

What one call brings of several things becomes durable together, with the place of its source.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.work import Commit
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.things.streams import STREAM
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.names import THING
from edgewake.protocol.topics import of_thing, stream_and_thing

log = logging.getLogger("edgewake.intake")

TOO_MANY: Final = "too_many_things"
"""Reason of what was lost of things beyond the bound."""


class ThingSink:
    """Mode `ack`: the event log, by things. A reading without a thing is the device's own."""

    def __init__(
        self,
        events: EventLog,
        stream: str,
        *,
        device: str,
        things_max: int,
        has_devices: bool = True,
    ) -> None:
        """At most `things_max` things have streams here; readings of others are lost.

        A gap of the device's own stream says how many. A thing counts once for each of the source's
        streams. `has_devices`: are things devices of their own, or is each reading this device's?
        """
        self._events = events
        self._stream = stream
        self._device = device
        self._things_max = things_max
        self._has_devices = has_devices
        self._own = events.stream(stream)
        self._things: set[str] = set()
        """Streams of things here."""
        self._streams: set[str] = set()
        """Streams whose things are in `_things`."""
        self._look_for_things(stream)
        self._newest: Future[None] | None = None
        """When the last call's readings are durable, those before it are, too."""
        self._wanted: tuple[str, ...] = (stream,)
        """Streams that the last call found no room in."""

    async def room(self, *, promised: bool = False) -> None:
        await self._events.room(*self._wanted, promised=promised)

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self._leave(readings, position, {}, is_promised=True)

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        self._leave(readings, position, lost, is_promised=False)

    async def kept(self) -> None:
        if self._events.config.mode.flags.is_synchronous:
            await self.durable()

    async def durable(self) -> None:
        if self._newest is not None:
            await asyncio.wrap_future(self._newest)

    def lose(self, count: int, reason: str) -> None:
        self._own.lose(count, reason)

    def lose_these(self, readings: Sequence[Reading], reason: str) -> None:
        by_stream, too_many = self._by_stream(readings)
        for name, some in by_stream.items():
            self._events.stream(name).lose(len(some), reason)
        if too_many:
            self._own.lose(too_many, TOO_MANY)
        self._note(by_stream)

    def _note(self, names: Iterable[str]) -> None:
        """These have streams here now."""
        self._things |= {name for name in names if stream_and_thing(name)[1]}

    def _look_for_things(self, stream: str) -> None:
        """Find the things that the log has of a stream that is seen for the first time."""
        self._streams.add(stream)
        self._note(name for name in self._events.streams() if stream_and_thing(name)[0] == stream)

    def _leave(
        self,
        readings: Sequence[Reading],
        position: tuple[str, str] | None,
        lost: Mapping[str, int],
        *,
        is_promised: bool,
    ) -> None:
        """Raises LogBusyError, LogClosedError; then nothing is left."""
        by_stream, too_many = self._by_stream(readings)
        reasons = dict(lost)
        if too_many:
            reasons[TOO_MANY] = reasons.get(TOO_MANY, 0) + too_many
        self._wanted = (*by_stream, self._stream)
        commit = Commit(
            by_stream,
            {} if position is None else dict([position]),
            is_promised=is_promised,
            lost={self._stream: reasons} if reasons else {},
        )
        self._newest = self._events.append(commit)
        self._note(by_stream)

    def _by_stream(self, readings: Sequence[Reading]) -> tuple[dict[str, list[Reading]], int]:
        """The readings by stream of the log, and how many are of things beyond the bound."""
        found: dict[str, list[Reading]] = {}
        things = self._things if not self._has_devices else set(self._things)
        too_many = 0
        for marked in readings:
            stream, reading = self._placed(marked)
            thing = self._named(reading[1]) if self._has_devices else ""
            name = of_thing(stream, thing) if thing else stream
            if thing and name not in things:
                if len(things) >= self._things_max:
                    too_many += 1
                    continue
                things.add(name)
            found.setdefault(name, []).append(_without_thing(reading) if thing else reading)
        if too_many:
            log.warning(
                "%d readings are of things beyond the %d that may be behind this device",
                too_many,
                self._things_max,
                extra={"event": "things.too_many", "stream": self._stream},
            )
        return found, too_many

    def _placed(self, reading: Reading) -> tuple[str, Reading]:
        """The stream of a reading, and the reading itself."""
        t, fields = reading
        stream = fields.get(STREAM)
        if not isinstance(stream, str):
            return self._stream, reading
        if self._has_devices and stream not in self._streams:
            self._look_for_things(stream)
        return stream, (t, {name: value for name, value in fields.items() if name != STREAM})

    def _named(self, fields: Mapping[str, Scalar]) -> str:
        """The thing of a reading; empty where it is the device's own."""
        value = fields.get(THING)
        if value is None or isinstance(value, bool):
            return ""
        try:
            name = device_name(value if isinstance(value, str) else f"{value:g}")
        except (ValueError, OverflowError):  # an integer may be larger than any float
            return ""
        return "" if name == self._device else name


def _without_thing(reading: Reading) -> Reading:
    """A reading that says nothing else keeps the name: a reading has a field."""
    t, fields = reading
    rest: dict[str, Any] = {name: value for name, value in fields.items() if name != THING}
    return t, rest or dict(fields)
