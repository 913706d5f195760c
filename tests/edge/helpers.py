"""Builders with defaults and small waits for the agent's tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, OutFrame
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import no_failpoint
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.frame_bytes import read
from tests.services import PATIENCE_S, wait_until

UPLINK = UplinkConfig(frame_readings_max=10)


def reading(n: int = 1, **fields: object) -> Reading:
    """One reading; `n` tells it from others."""
    return 1_790_000_000_000 + n, {"n": n, **fields}  # type: ignore[dict-item]


def frame_of(out: OutFrame) -> Frame:
    """The frame in what is sent."""
    return read(out.payload)


class Sent(list[OutFrame]):
    """Collects the frames that the log hands over."""

    acknowledged = 0

    def take(self, more: object) -> None:
        """As `on_frames`."""
        self.extend(more)  # type: ignore[arg-type]

    def until(self, count: int) -> list[Frame]:
        """Wait for so many frames."""
        wait_until(lambda: len(self) >= count, f"{count} frames")
        return [frame_of(out) for out in self]

    def acknowledge(self, events: EventLog) -> bool:
        """Free what came since the last call; False, to be used in a wait."""
        for out in self[self.acknowledged :]:
            events.free(out.key)
            self.acknowledged += 1
        return False

    def ns(self) -> list[object]:
        """The `n` of all readings, in order."""
        return [n for out in self for n in frame_of(out).fields.get("n", ())]


@contextmanager
def opened(
    directory: Path,
    *,
    sent: Sent | None = None,
    config: LogConfig | None = None,
    uplink: UplinkConfig = UPLINK,
    clock: Clock | None = None,
    failpoint: Callable[[str], None] = no_failpoint,
    seed: int = 1,
    boot: str = "boot",
    lanes: Mapping[str, Lane] | None = None,
    local: frozenset[str] = frozenset(),
) -> Iterator[EventLog]:
    """An open log."""
    events = EventLog(
        directory,
        config or LogConfig(linger_ms=0, reserve_bytes=0),
        uplink,
        clock=clock or SystemClock(),
        rng=random.Random(seed),
        on_frames=(sent if sent is not None else Sent()).take,
        failpoint=failpoint,
        boot_id=boot,
        lanes=lanes,
        local=local,
    )
    try:
        yield events
    finally:
        events.close()


def put(events: EventLog, numbers: range, stream: str = "speed") -> None:
    """Append readings and wait until they are durable."""
    log = events.stream(stream)
    assert log.wait_accepted(log.append_all(reading(n) for n in numbers), timeout_s=PATIENCE_S)


def lose(_count: int, _reason: str) -> None:
    """As `OneWaySink` wants it, where a test asks for no losses."""


def json_of(line: str | bytes) -> dict[str, object]:
    """A JSON object."""
    found: dict[str, object] = orjson.loads(line)
    return found
