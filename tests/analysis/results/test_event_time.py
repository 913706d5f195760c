"""Event time waits for what is unread and for what is on its way, for so long by the clock and no
longer; live streams never wait.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from edgewake.cloud.analysis.results.event_time import LIVE_MS, WAIT_MS, EventTime

NOW = 1_790_000_040_000
DAY_MS = 86_400_000


@dataclass
class Stream:
    """Partitions of readings (received, event time, ms each), and a lane that reads them by
    numbers, a second a batch.
    """

    wait_ms: int = WAIT_MS
    logs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    now_ms: int = NOW
    top: int | None = None
    late: int = 0
    """Readings that were read when event time was more than `lateness_ms` past them."""
    lateness_ms: int = 600_000

    def __post_init__(self) -> None:
        self.event_time = EventTime(64, self.wait_ms)
        self.tops: dict[int, int] = {}
        self.received_at: dict[int, int] = {}

    def put(self, partition: int, t: int) -> None:
        self.logs.setdefault(partition, []).append((self.now_ms, t))

    def read(
        self, most: int, took_ms: int = 1_000, arriving: Mapping[int, list[int]] | None = None
    ) -> int | None:
        """A batch of `most` records at most, shared out by how much each partition has; `arriving`
        while it is computed.
        """
        unread = {p: len(log) - self.reached.get(p, 0) for p, log in self.logs.items()}
        total, oldest = sum(unread.values()), None
        start = dict(self.reached)
        for partition, count in unread.items():
            take = count if total <= most else count * most // total
            at = self.reached.get(partition, 0)
            for received, t in self.logs[partition][at : at + take]:
                self.late += self.top is not None and t < self.top - self.lateness_ms
                self.tops[partition] = max(t, self.tops.get(partition, t))
                self.received_at[partition] = max(
                    received, self.received_at.get(partition, received)
                )
                oldest = t if oldest is None else min(oldest, t)
            self.reached[partition] = at + take
        self.now_ms += took_ms
        for partition, times in (arriving or {}).items():
            for t in times:
                self.put(partition, t)
        left = {p: len(log) - self.reached[p] for p, log in self.logs.items() if p in self.reached}
        self.top = self.event_time.after(
            self.top, tops=self.tops, received_at=self.received_at, start=start,
            reached=self.reached, left=left, oldest=oldest,
            now_ms=self.now_ms,
        )  # fmt: skip
        return self.top


@pytest.mark.parametrize("wait_ms", [WAIT_MS, pytest.param(0, id="control")])
@pytest.mark.parametrize("most", [20, 150, 4_000])
def test_a_recorded_day_that_is_sent_at_once_has_nothing_late(wait_ms: int, most: int) -> None:
    """Three devices, one of them only of the last hour: in time order over all, read by numbers,
    and unevenly passed on.
    """
    stream, rng = Stream(wait_ms), random.Random(7)
    begin = NOW - 300 * DAY_MS
    day = {
        p: [begin + s * 1000 for s in range(82_800 if p == 2 else 0, 86_400, 60 if p == 2 else 600)]
        for p in range(3)
    }
    sent = dict.fromkeys(day, 0)
    for second in range(400):
        for p, times in day.items():
            # A sequencer is up to a second behind the other.
            upto = begin + (second + 1) * DAY_MS // 8 - rng.randrange(DAY_MS // 8)
            while sent[p] < len(times) and times[sent[p]] < upto:
                stream.put(p, times[sent[p]])
                sent[p] += 1
        stream.read(most)
    assert stream.reached == {p: len(times) for p, times in day.items()}
    assert stream.top == max(max(times) for times in day.values()), (
        "in the end event time has come as far as the readings"
    )
    assert (stream.late == 0) is (wait_ms > 0)


def test_a_device_that_sends_a_week_ahead_holds_others_up_only_as_long_as_documented() -> None:
    """It has a partition for itself, of which there is always something left over, received seconds
    ago.
    """
    stream = Stream()
    for _ in range(20):
        stream.put(0, stream.now_ms)
        stream.read(1_000)
    stood_ms, sent = 0, 0
    for _ in range(60):
        before = stream.top
        stream.put(0, stream.now_ms)
        for _ in range(10_000):
            stream.put(1, NOW - 7 * DAY_MS + sent * 1_000)
            sent += 1
        stream.read(len(stream.logs[0]) + len(stream.logs[1]) - sum(stream.reached.values()) - 300)
        stood_ms += 1_000 if stream.top == before else 0
        assert stream.reached[1] < sent
    assert 0 < stood_ms <= WAIT_MS
    assert stream.top is not None
    assert stream.top >= stream.now_ms - 3_000, (
        "and then it goes on as ever, though the week is not read yet"
    )


def test_a_live_stream_that_always_has_some_unread_never_waits() -> None:
    stream = Stream()
    for _ in range(30):
        now = stream.now_ms
        stream.put(0, now)
        stream.read(1_000, arriving={0: [now + 900], 1: [now + 300]})
    assert stream.top is not None
    assert stream.top >= stream.now_ms - 1_100


def test_long_past_event_time_counts_when_it_was_reached_so_long_ago_and_live_at_once() -> None:
    stream = Stream()
    past = NOW - DAY_MS
    stream.put(0, past)
    assert stream.read(10) == past
    stream.put(0, past + 3_600_000)
    assert stream.read(10) == past
    for _ in range(WAIT_MS // 1_000 - 1):
        assert stream.read(10) == past
    assert stream.read(10) == past + 3_600_000
    stream.put(0, stream.now_ms - LIVE_MS + 2_000)
    assert stream.read(10) == stream.now_ms - LIVE_MS + 1_000


def test_a_clock_that_is_set_back_holds_nothing_for_as_long() -> None:
    stream = Stream()
    past = NOW - 10 * DAY_MS
    stream.put(0, past)
    stream.read(10)
    stream.put(0, past + 1_000)
    stream.read(10)
    stream.now_ms -= DAY_MS
    for _ in range(WAIT_MS // 1_000 + 2):
        stream.put(0, past + 1_000)
        stream.read(10)
    assert stream.top == past + 1_000
