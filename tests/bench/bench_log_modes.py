"""The five logging modes side by side: what a reading costs, how long it takes to where it may be
sent, and how soon a restart sends.

Alone on the machine. `python -m tests.bench.bench_log_modes [--runs 3] [--json FILE]`
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Final

import psutil

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, FrameKey, OutFrame, StreamLog
from edgewake.edge.log.mode import LogMode
from edgewake.edge.log.state import LogBusyError
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from tests.bench.bench_log import _readings
from tests.bench.figures import Found, percentile, run

READINGS = 300_000
"""Of the modes that do not wait for the disk."""
WAITED = 1_500
"""Of those that do, one reading after the other."""
GROUP = 100
GROUPS = 300
LONE = 100
BACKLOG = 200_000

LIMITS: Final = """The call, the writer and the acknowledgements share one interpreter, so `none`
saves a part of one core, and the figures of a busy machine differ by half. A synchronous mode
pays a commit for each reading: the wait for the disk, and ten pages of flash. A lone reading waits
two milliseconds for company in `hml` and `none`, and not in the others. `sbml` writes as much as
`hml` while the link is up: frames are boundaries, so there is no second copy to be spared."""


class Cloud:
    """Acknowledges at once, in a thread of its own, as the uplink does from its loop."""

    def __init__(self) -> None:
        self.freed = 0
        self.first = 0.0
        self._keys: deque[tuple[FrameKey, int]] = deque()
        self._come = threading.Event()
        self._over = False

    def take(self, frames: object) -> None:
        """As `on_frames`."""
        for out in frames:  # type: ignore[attr-defined]
            assert isinstance(out, OutFrame)
            self.first = self.first or time.perf_counter()
            self._keys.append((out.key, out.count))
        self._come.set()

    def serve(self, events: EventLog) -> threading.Thread:
        """Begin."""
        thread = threading.Thread(target=self._acknowledge, args=(events,), daemon=True)
        thread.start()
        return thread

    def _acknowledge(self, events: EventLog) -> None:
        while not self._over:
            self._come.wait(0.5)
            self._come.clear()
            while self._keys:
                key, count = self._keys.popleft()
                events.free(key)
                self.freed += count

    def until(self, count: int) -> None:
        """So many readings were acknowledged."""
        while self.freed < count:
            time.sleep(0.0002)

    def end(self) -> None:
        """No more."""
        self._over = True


def measure(folder: Path, runs: int) -> Found:
    """All figures, as medians."""
    found: Found = defaultdict(list)
    for i in range(runs):
        for mode in LogMode:
            place = folder / f"{mode.name}-{i}"
            _stream(place / "stream", mode, found)
            if mode.flags.is_synchronous:
                _groups(place / "groups", mode, found)
            _lone(place / "lone", mode, found)
            if mode.flags.is_durable and mode.flags.on_receipt:
                _restart(place / "restart", mode, found)
        _process(folder / f"process-{i}", found)
    _ratios(found)
    return found


def _open(folder: Path, mode: LogMode, cloud: Cloud) -> EventLog:
    config = LogConfig(
        mode=mode,
        linger_ms=20,
        queue_readings_max=50_000,
        quota_bytes=1 << 30,
        queue_bytes_max=64 << 20,
    )
    folder.mkdir(parents=True)
    return EventLog(
        folder,
        config,
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_frames=cloud.take,
    )


def _stream(folder: Path, mode: LogMode, found: Found) -> None:
    """A call for each reading, to the last acknowledgement."""
    readings, cloud = _readings(), Cloud()
    count = WAITED if mode.flags.is_synchronous else READINGS
    gc.collect()
    with _open(folder, mode, cloud) as events:
        log = events.stream("vehicle_position")
        events.start_sending()
        cloud.serve(events)
        written, wall, cpu = _written_bytes(), time.perf_counter(), time.process_time()
        for i in range(count):
            _give(log, readings[i % 1000], mode)
        cloud.until(count)
        seconds = time.perf_counter() - wall
        found[f"{mode}: reading by reading, received to acknowledged", "readings/s", None].append(
            count / seconds
        )
        found[f"{mode}: processor time", "us/reading", None].append(
            (time.process_time() - cpu) / count * 1e6
        )
        found[f"{mode}: flash written", "bytes/reading", None].append(
            (_written_bytes() - written) / count
        )
        cloud.end()


def _give(log: StreamLog, reading: object, mode: LogMode) -> None:
    while True:
        try:
            ticket = log.append(reading)  # type: ignore[arg-type]
            break
        except LogBusyError:
            log.wait_for_room(timeout_s=10)
    if mode.flags.is_synchronous:
        assert log.wait_accepted(ticket, timeout_s=10)


def _process(folder: Path, found: Found) -> None:
    """Hybrid logging with a consumer beside it that derives one reading of each hundred."""
    readings, cloud, derived = _readings(), Cloud(), READINGS // 100
    with _open(folder, LogMode.HML, cloud) as events:
        log, consumer = (
            events.stream("vehicle_position"),
            events.open_consumer("mean", ["vehicle_position"]),
        )

        def consume() -> None:
            while consumer.cursor["vehicle_position"] < READINGS:
                before = consumer.cursor["vehicle_position"]
                chunk = consumer.poll()
                count = consumer.cursor["vehicle_position"] // 100 - before // 100
                if chunk.items:
                    consumer.submit(
                        chunk.cursor, state=b"state", derived={"mean": readings[:1] * count}
                    )
                else:
                    time.sleep(0.001)

        events.start_sending()
        cloud.serve(events)
        thread = threading.Thread(target=consume)
        wall, cpu = time.perf_counter(), time.process_time()
        thread.start()
        for i in range(READINGS):
            _give(log, readings[i % 1000], LogMode.HML)
        thread.join()
        cloud.until(READINGS + derived)
        found["hml with a consumer: received, derived, acknowledged", "readings/s", None].append(
            READINGS / (time.perf_counter() - wall)
        )
        found["hml with a consumer: processor time", "us/reading", None].append(
            (time.process_time() - cpu) / READINGS * 1e6
        )
        cloud.end()


def _groups(folder: Path, mode: LogMode, found: Found) -> None:
    """A source that hands over a hundred at once."""
    readings, cloud = _readings()[:GROUP], Cloud()
    with _open(folder, mode, cloud) as events:
        log = events.stream("vehicle_position")
        events.start_sending()
        cloud.serve(events)
        wall = time.perf_counter()
        for _ in range(GROUPS):
            assert log.wait_accepted(log.append_all(readings), timeout_s=10)
        cloud.until(GROUP * GROUPS)
        found[f"{mode}: by {GROUP} readings, received to acknowledged", "readings/s", None].append(
            GROUP * GROUPS / (time.perf_counter() - wall)
        )
        cloud.end()


def _lone(folder: Path, mode: LogMode, found: Found) -> None:
    """From the call to where a lone reading's frame may be sent."""
    readings, times = _readings(), []
    cloud = Cloud()
    with _open(folder, mode, cloud) as events:
        log = events.stream("vehicle_position")
        events.start_sending()
        cloud.serve(events)
        for i in range(LONE):
            cloud.first, began = 0.0, time.perf_counter()
            log.append(readings[i])
            cloud.until(i + 1)
            times.append((cloud.first - began) * 1000)
        cloud.end()
    for percent in (50, 99):
        found[f"{mode}: lone reading until it may be sent, p{percent}", "ms", None].append(
            percentile(times, percent)
        )


def _restart(folder: Path, mode: LogMode, found: Found) -> None:
    """A backlog, and the time from opening the log to the first frame and to the last
    acknowledgement.
    """
    readings = _readings()
    with _open(folder, mode, Cloud()) as events:
        log = events.stream("vehicle_position")
        for _ in range(BACKLOG // 1000):
            assert log.wait_accepted(log.append_all(readings), timeout_s=10)
    cloud = Cloud()
    began = time.perf_counter()
    config = LogConfig(mode=mode, linger_ms=20, quota_bytes=1 << 30)
    with EventLog(
        folder,
        config,
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_frames=cloud.take,
    ) as events:
        events.start_sending()
        cloud.serve(events)
        cloud.until(BACKLOG)
        found[f"{mode}: restart with {BACKLOG} waiting, first frame", "ms", None].append(
            (cloud.first - began) * 1000
        )
        found[f"{mode}: drained after the restart", "readings/s", None].append(
            BACKLOG / (time.perf_counter() - began)
        )
        cloud.end()


def _ratios(found: Found) -> None:
    """hml over rbml by the reading, and what it costs over none."""

    def of(mode: LogMode, name: str, unit: str) -> list[float]:
        return found[f"{mode}: {name}", unit, None]

    per_reading = "reading by reading, received to acknowledged"
    pairs = zip(
        of(LogMode.HML, per_reading, "readings/s"),
        of(LogMode.RBML, per_reading, "readings/s"),
        strict=True,
    )
    found["hml against rbml, reading by reading", "times", 50].extend(
        hybrid / receiver for hybrid, receiver in pairs
    )
    both = zip(
        of(LogMode.NONE, "processor time", "us/reading"),
        of(LogMode.HML, "processor time", "us/reading"),
        strict=True,
    )
    found["hml against none, processor time per reading", "×", None].extend(
        hybrid / nothing for nothing, hybrid in both
    )
    speeds = zip(
        of(LogMode.NONE, per_reading, "readings/s"),
        of(LogMode.HML, per_reading, "readings/s"),
        strict=True,
    )
    found["hml against none, time per reading", "×", 1.25].extend(
        nothing / hybrid for nothing, hybrid in speeds
    )


def _written_bytes() -> int:
    found: int = psutil.Process().io_counters().write_bytes
    return found


if __name__ == "__main__":
    run(measure, __doc__)
