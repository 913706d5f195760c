"""The ledger: what was put in, what came out, and what is wrong between the two. It imports nothing of ours.

Whoever drives the system from outside writes down, in the order in which it happened:

* `put`        a reading was given to a device: device, its number `n` there (from 1, carried inside the reading), event time, value
* `refused`    the device said that it did not take number n
* `delivered`  a client was shown a reading, with the cursor of its event
* `window`     a client was shown a result row
* `gap`        a client was told of a loss

`judge` then compares. It knows nothing of frames, epochs of logs, micro-batches or Kafka: a reading is known by (device, n) and by what
was put into it, so an error of the system's own numbering is found as well. The names follow jepsen.tests.kafka where they can.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeAlias

Key: TypeAlias = tuple[str, int]
"""Device and the number of the reading on it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading as it was put in."""

    device: str
    n: int
    t_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """A reading as a client was shown it. `epoch` and `seq` are the system's own numbers."""

    client: str
    cursor: str
    reading: Reading
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A result of one window and device as a client was shown it."""

    client: str
    cursor: str
    device: str
    start_ms: int
    end_ms: int
    revision: int
    count: int
    total: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SaidGap:
    """A loss that a client was told of. Without a device it excuses `count` readings of any."""

    client: str
    count: int
    device: str | None = None
    epoch: int | None = None
    first_seq: int | None = None


@dataclass
class Judgement:
    """Every anomaly, one sentence each. All empty: the system kept its promises."""

    lost: list[str] = field(default_factory=list)
    """Taken by a device and not delivered to a client that must have it."""
    twice: list[str] = field(default_factory=list)
    """Delivered twice to one client, or one cursor given to two events."""
    disorder: list[str] = field(default_factory=list)
    """Of one device, in another order than put in."""
    phantom: list[str] = field(default_factory=list)
    """Delivered and never put in."""
    corrupt: list[str] = field(default_factory=list)
    """Delivered with another time or value than put in."""
    wrong_windows: list[str] = field(default_factory=list)
    """A window whose last revision is not what its readings say, that is missing, or that none explain."""
    unsaid_gaps: list[str] = field(default_factory=list)
    """A hole in a device's numbers that no gap explained."""

    @property
    def clean(self) -> bool:
        """Nothing wrong?"""
        return not any(getattr(self, anomaly.name) for anomaly in fields(self))

    def counts(self) -> dict[str, int]:
        """Anomaly → how often."""
        return {anomaly.name: len(getattr(self, anomaly.name)) for anomaly in fields(self)}

    def __str__(self) -> str:
        lines = [f"{name} {count}" for name, count in self.counts().items()]
        for anomaly in fields(self):
            lines += [f"  {anomaly.name}: {sentence}" for sentence in getattr(self, anomaly.name)[:5]]
        return "\n".join(lines)


class Ledger:
    """Append-only notes and the judge over them."""

    def __init__(self) -> None:
        self.readings: dict[Key, Reading] = {}
        self.refusals: set[Key] = set()
        self.deliveries: dict[str, list[Delivery]] = defaultdict(list)
        self.windows: dict[str, list[WindowRow]] = defaultdict(list)
        self.gaps: dict[str, list[SaidGap]] = defaultdict(list)

    def put(self, reading: Reading) -> None:
        """A reading was given to its device."""
        assert (reading.device, reading.n) not in self.readings, f"{reading} put in twice: the ledger's user is wrong"
        self.readings[reading.device, reading.n] = reading

    def refused(self, device: str, n: int) -> None:
        """The device said that it did not take it."""
        self.refusals.add((device, n))

    def delivered(self, delivery: Delivery) -> None:
        """A client was shown a reading."""
        self.deliveries[delivery.client].append(delivery)

    def window(self, row: WindowRow) -> None:
        """A client was shown a result."""
        self.windows[row.client].append(row)

    def gap(self, gap: SaidGap) -> None:
        """A client was told of a loss."""
        self.gaps[gap.client].append(gap)

    @property
    def accepted(self) -> set[Key]:
        """What must arrive."""
        return set(self.readings) - self.refusals

    # --- waiting for the end ----------------------------------------------------------------------------------------------------------

    def missing(self, client: str) -> set[Key]:
        """What a client that reads everything has not been shown yet."""
        return self.accepted - {(d.reading.device, d.reading.n) for d in self.deliveries[client]}

    def unfinished_windows(self, client: str, window_ms: int) -> list[str]:
        """Windows whose last shown revision does not hold all readings yet."""
        return _wrong_windows(client, self._latest(client), self._expected_windows(window_ms))

    # --- judging ----------------------------------------------------------------------------------------------------------------------

    def judge(self, *, raw_clients: Iterable[str], window_clients: Iterable[str], window_ms: int) -> Judgement:
        """Compare. `raw_clients` must have every reading since the first, `window_clients` every window."""
        verdict = Judgement()
        for client in raw_clients:
            self._judge_raw(client, verdict)
        expected = self._expected_windows(window_ms)
        for client in window_clients:
            verdict.twice += _row_repeats(client, self.windows[client])
            verdict.wrong_windows += _wrong_windows(client, self._latest(client), expected)
            verdict.wrong_windows += _falling_revisions(client, self.windows[client])
        return verdict

    def _judge_raw(self, client: str, verdict: Judgement) -> None:
        deliveries = self.deliveries[client]
        said = self.gaps[client]
        missing = sorted(self.missing(client))
        excused = sum(gap.count for gap in said)
        if len(missing) > excused:
            verdict.lost += [f"{client} was never shown {device} n={n}" for device, n in missing[excused:]]
        verdict.twice += _repeats(client, deliveries)
        verdict.disorder += _disorder(client, deliveries)
        verdict.unsaid_gaps += _holes(client, deliveries, said)
        for delivery in deliveries:
            self._judge_content(client, delivery.reading, verdict)

    def _judge_content(self, client: str, shown: Reading, verdict: Judgement) -> None:
        put = self.readings.get((shown.device, shown.n))
        if put is None:
            verdict.phantom.append(f"{client} was shown {shown}, which nobody put in")
        elif (put.t_ms, put.value) != (shown.t_ms, shown.value):
            verdict.corrupt.append(f"{client} was shown {shown}, put in as {put}")

    def _expected_windows(self, window_ms: int) -> dict[tuple[str, int], tuple[int, float, float, float]]:
        """(device, start) → count, total, low, high of what was accepted."""
        values: dict[tuple[str, int], list[float]] = defaultdict(list)
        for key in self.accepted:
            reading = self.readings[key]
            values[reading.device, reading.t_ms - reading.t_ms % window_ms].append(reading.value)
        return {key: (len(inside), math.fsum(inside), min(inside), max(inside)) for key, inside in values.items()}

    def _latest(self, client: str) -> dict[tuple[str, int], WindowRow]:
        latest: dict[tuple[str, int], WindowRow] = {}
        for row in self.windows[client]:
            key = (row.device, row.start_ms)
            if key not in latest or row.revision >= latest[key].revision:
                latest[key] = row
        return latest


def _repeats(client: str, deliveries: Sequence[Delivery]) -> list[str]:
    found = []
    by_content: set[Key] = set()
    by_number: set[tuple[str, int, int]] = set()
    cursors: set[str] = set()
    for delivery in deliveries:
        content = (delivery.reading.device, delivery.reading.n)
        number = (delivery.reading.device, delivery.epoch, delivery.seq)
        if content in by_content:
            found.append(f"{client} was shown {content[0]} n={content[1]} again, as seq {delivery.seq} of epoch {delivery.epoch}")
        elif number in by_number:
            found.append(f"{client} was shown seq {delivery.seq} of {content[0]} epoch {delivery.epoch} again, now as n={content[1]}")
        elif delivery.cursor in cursors:
            found.append(f"{client} was given one cursor for two events; the second is {content[0]} n={content[1]}")
        by_content.add(content)
        by_number.add(number)
        cursors.add(delivery.cursor)
    return found


def _row_repeats(client: str, rows: Sequence[WindowRow]) -> list[str]:
    found = []
    seen: set[tuple[str, int, int]] = set()
    for row in rows:
        key = (row.device, row.start_ms, row.revision)
        if key in seen:
            found.append(f"{client} was shown revision {row.revision} of the window {row.start_ms} of {row.device} again")
        seen.add(key)
    return found


def _disorder(client: str, deliveries: Sequence[Delivery]) -> list[str]:
    found = []
    last: dict[str, int] = {}
    for delivery in deliveries:
        device, n = delivery.reading.device, delivery.reading.n
        if n < last.get(device, 0):
            found.append(f"{client} was shown {device} n={n} after n={last[device]}")
        last[device] = max(n, last.get(device, 0))
    return found


def _holes(client: str, deliveries: Sequence[Delivery], said: Sequence[SaidGap]) -> list[str]:
    """Numbers that are missing between the first and the last of a device and epoch, and that no gap explains."""
    numbers: dict[tuple[str, int], set[int]] = defaultdict(set)
    for delivery in deliveries:
        numbers[delivery.reading.device, delivery.epoch].add(delivery.seq)
    anywhere = sum(gap.count for gap in said if gap.device is None)
    found = []
    for (device, epoch), seqs in numbers.items():
        explained = _explained(said, device, epoch)
        holes = sorted(set(range(min(seqs), max(seqs) + 1)) - seqs - explained)
        found += [f"{client}: seq {seq} of {device} epoch {epoch} is missing and nobody said so" for seq in holes[anywhere:]]
        anywhere = max(0, anywhere - len(holes))
    return found


def _explained(said: Sequence[SaidGap], device: str, epoch: int) -> set[int]:
    explained: set[int] = set()
    for gap in said:
        if gap.device == device and gap.epoch in (None, epoch) and gap.first_seq is not None:
            explained.update(range(gap.first_seq, gap.first_seq + gap.count))
    return explained


def _falling_revisions(client: str, rows: Sequence[WindowRow]) -> list[str]:
    found = []
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        key = (row.device, row.start_ms)
        if row.revision < last.get(key, -1):
            found.append(f"{client}: the window {row.start_ms} of {row.device} fell from revision {last[key]} to {row.revision}")
        last[key] = max(row.revision, last.get(key, -1))
    return found


def _wrong_windows(
    client: str, latest: dict[tuple[str, int], WindowRow], expected: dict[tuple[str, int], tuple[int, float, float, float]]
) -> list[str]:
    found = [f"{client}: the window {start} of {device} never came" for device, start in sorted(expected.keys() - latest.keys())]
    for (device, start), row in sorted(latest.items()):
        if (device, start) not in expected:
            found.append(f"{client}: the window {start} of {device} holds nothing that was put in")
            continue
        count, total, low, high = expected[device, start]
        same = row.count == count and math.isclose(row.total, total, rel_tol=1e-9, abs_tol=1e-9) and (row.low, row.high) == (low, high)
        if not same:
            shown = (row.count, row.total, row.low, row.high)
            found.append(
                f"{client}: the window {start} of {device} says {shown} at revision {row.revision}, is {(count, total, low, high)}"
            )
    return found
