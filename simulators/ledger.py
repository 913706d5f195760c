"""The ledger: what was put in, what came out, and what is wrong between the two.

It imports nothing of ours.

Whoever drives the system from outside writes down, in the order in which it happened:

* `put`        a reading was given to a device: device, its number `n` there (from 1, carried inside
               the reading), event time, value
* `refused`    the device said that it did not take number n
* `delivered`  a client was shown a reading, with the cursor of its event
* `window`     a client was shown a result row
* `watermark`  a client was told up to when windows are final
* `gap`        a client was told of a loss

A gap excuses only what it names: readings of its own device and range of numbers, or, where it
names no device (what a client's own position lost), readings that are missing at the very place in
that client's history where it was told.

`judge` then compares. It knows nothing of frames, epochs of logs, micro-batches or Kafka: a reading
is known by (device, n) and by what was put into it, so an error of the system's own numbering is
found as well. The names follow jepsen.tests.kafka where they can.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
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
class ReportedGap:
    """A loss that was reported to a client.

    It is `count` readings of a device from `first_seq` on, or of any device at this place.

    With a device and `count` 0 nothing is lost: readings from `first_seq` up to the next one that
    the client is shown were not there in time and may still come, out of order, once each. It
    excuses no reading that never comes.
    """

    client: str
    count: int
    device: str | None = None
    epoch: int | None = None
    first_seq: int | None = None


@dataclass(frozen=True, slots=True)
class _Hole:
    """Consecutive readings of one device that a client never got, and their neighbours."""

    device: str
    numbers: tuple[int, ...]
    before: Delivery | None
    after: Delivery | None


@dataclass
class Judgement:
    """Every anomaly, one sentence each. All empty: the system kept its promises."""

    lost: list[str] = field(default_factory=list)
    """Taken by a device and not delivered to a client that must have it."""
    twice: list[str] = field(default_factory=list)
    """Delivered twice to one client, or one cursor given to two events."""
    disorder: list[str] = field(default_factory=list)
    """Readings of one device in another order than put in."""
    phantom: list[str] = field(default_factory=list)
    """Delivered and never put in."""
    corrupt: list[str] = field(default_factory=list)
    """Delivered with another time or value than put in."""
    wrong_windows: list[str] = field(default_factory=list)
    """A window whose last revision is not what its readings say, that is missing, or that none
    explain."""
    changed_after_final: list[str] = field(default_factory=list)
    """Windows that were shown again after the client had been told that they are final."""
    unreported_gaps: list[str] = field(default_factory=list)
    """A hole in a device's numbers that no gap explained."""

    @property
    def clean(self) -> bool:
        """Is nothing lost, repeated or wrong?"""
        return not any(getattr(self, anomaly.name) for anomaly in fields(self))

    def counts(self) -> dict[str, int]:
        """Anomaly → how often."""
        return {anomaly.name: len(getattr(self, anomaly.name)) for anomaly in fields(self)}

    def __str__(self) -> str:
        lines = [f"{name} {count}" for name, count in self.counts().items()]
        for anomaly in fields(self):
            lines += [
                f"  {anomaly.name}: {sentence}" for sentence in getattr(self, anomaly.name)[:5]
            ]
        return "\n".join(lines)


class Ledger:
    """Append-only notes and the judge over them."""

    def __init__(self) -> None:
        self.readings: dict[Key, Reading] = {}
        self.refusals: set[Key] = set()
        self.deliveries: dict[str, list[Delivery]] = defaultdict(list)
        self.windows: dict[str, list[WindowRow]] = defaultdict(list)
        self.changed_after_final: dict[str, list[str]] = defaultdict(list)
        self.gaps: dict[str, list[tuple[int, ReportedGap]]] = defaultdict(list)
        """Client → gaps, each with the number of readings that it had been shown before."""
        self._watermarks: dict[str, int] = {}

    def put(self, reading: Reading) -> None:
        """A reading was given to its device."""
        assert (reading.device, reading.n) not in self.readings, (
            f"{reading} put in twice: the ledger's user is wrong"
        )
        self.readings[reading.device, reading.n] = reading

    def refused(self, device: str, n: int) -> None:
        """The device said that it did not take it."""
        self.refusals.add((device, n))

    def delivered(self, delivery: Delivery) -> None:
        """A client was shown a reading."""
        self.deliveries[delivery.client].append(delivery)

    def window(self, row: WindowRow) -> None:
        """A client was shown a result."""
        if row.end_ms <= self._watermarks.get(row.client, -1):
            self.changed_after_final[row.client].append(
                f"{row.client}: the window {row.start_ms} of {row.device} came as revision "
                f"{row.revision} after it was final"
            )
        self.windows[row.client].append(row)

    def watermark(self, client: str, until_ms: int) -> None:
        """A client was told that windows that end at or before `until_ms` are final."""
        self._watermarks[client] = max(until_ms, self._watermarks.get(client, -1))

    def gap(self, gap: ReportedGap) -> None:
        """A client was told of a loss."""
        self.gaps[gap.client].append((len(self.deliveries[gap.client]), gap))

    @property
    def accepted(self) -> set[Key]:
        """The readings that must arrive."""
        return set(self.readings) - self.refusals

    # --- waiting for the end ----------------------------------------------------------------------

    def missing(self, client: str) -> set[Key]:
        """What a client that reads everything has not been shown yet."""
        return self.accepted - {(d.reading.device, d.reading.n) for d in self.deliveries[client]}

    def unfinished_windows(self, client: str, window_ms: int) -> list[str]:
        """Windows whose last shown revision does not hold all readings yet."""
        return _wrong_windows(client, self._latest(client), self._expected_windows(window_ms))

    # --- judging ----------------------------------------------------------------------------------

    def judge(
        self, *, raw_clients: Iterable[str], window_clients: Iterable[str], window_ms: int
    ) -> Judgement:
        """Compare what was sent with what clients got.

        `raw_clients` must have every reading since the first, `window_clients` every window.
        """
        verdict = Judgement()
        for client in raw_clients:
            self._judge_raw(client, verdict)
        expected = self._expected_windows(window_ms)
        for client in window_clients:
            verdict.twice += _row_repeats(client, self.windows[client])
            verdict.wrong_windows += _wrong_windows(client, self._latest(client), expected)
            verdict.wrong_windows += _falling_revisions(client, self.windows[client])
            verdict.changed_after_final += self.changed_after_final[client]
        return verdict

    def _judge_raw(self, client: str, verdict: Judgement) -> None:
        deliveries, gaps = self.deliveries[client], self.gaps[client]
        excused = _Excuses(deliveries, gaps)
        for hole in self._holes(client):
            verdict.lost += [
                f"{client} was never shown {hole.device} n={n}" for n in excused.rest_of(hole)
            ]
        verdict.twice += _repeats(client, deliveries)
        verdict.disorder += _disorder(client, deliveries, gaps)
        verdict.unreported_gaps += _missing_seqs(client, deliveries, gaps)
        for delivery in deliveries:
            self._judge_content(client, delivery.reading, verdict)

    def _holes(self, client: str) -> list[_Hole]:
        """Runs of accepted readings that the client was never shown."""
        shown: dict[Key, Delivery] = {}
        for delivery in self.deliveries[client]:
            shown.setdefault((delivery.reading.device, delivery.reading.n), delivery)
        holes: list[_Hole] = []
        for device, keys in groupby(sorted(self.accepted), key=lambda key: key[0]):
            before: Delivery | None = None
            run: list[int] = []
            for key in keys:
                if (found := shown.get(key)) is None:
                    run.append(key[1])
                    continue
                if run:
                    holes.append(_Hole(device, tuple(run), before, found))
                before, run = found, []
            if run:
                holes.append(_Hole(device, tuple(run), before, None))
        return holes

    def _judge_content(self, client: str, shown: Reading, verdict: Judgement) -> None:
        put = self.readings.get((shown.device, shown.n))
        if put is None:
            verdict.phantom.append(f"{client} was shown {shown}, which was never put in")
        elif (put.t_ms, put.value) != (shown.t_ms, shown.value):
            verdict.corrupt.append(f"{client} was shown {shown}, put in as {put}")

    def _expected_windows(
        self, window_ms: int
    ) -> dict[tuple[str, int], tuple[int, float, float, float]]:
        """(device, start) → count, total, low, high of what was accepted."""
        values: dict[tuple[str, int], list[float]] = defaultdict(list)
        for key in self.accepted:
            reading = self.readings[key]
            values[reading.device, reading.t_ms - reading.t_ms % window_ms].append(reading.value)
        return {
            key: (len(inside), math.fsum(inside), min(inside), max(inside))
            for key, inside in values.items()
        }

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
            found.append(
                f"{client} was shown {content[0]} n={content[1]} again, as seq {delivery.seq} of "
                f"epoch {delivery.epoch}"
            )
        elif number in by_number:
            found.append(
                f"{client} was shown seq {delivery.seq} of {content[0]} epoch {delivery.epoch} "
                f"again, now as n={content[1]}"
            )
        elif delivery.cursor in cursors:
            found.append(
                f"{client} was given one cursor for two events; the second is {content[0]} "
                f"n={content[1]}"
            )
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
            found.append(
                f"{client} was shown revision {row.revision} of the window {row.start_ms} of "
                f"{row.device} again"
            )
        seen.add(key)
    return found


def _disorder(
    client: str, deliveries: Sequence[Delivery], gaps: Sequence[tuple[int, ReportedGap]]
) -> list[str]:
    found = []
    last: dict[str, int] = {}
    announced = _announced_late(deliveries, gaps)
    for i, delivery in enumerate(deliveries):
        device, n = delivery.reading.device, delivery.reading.n
        is_announced = announced.get((device, delivery.epoch, delivery.seq), i + 1) <= i
        if n < last.get(device, 0) and not is_announced:
            found.append(f"{client} was shown {device} n={n} after n={last[device]}")
        last[device] = max(n, last.get(device, 0))
    return found


def _announced_late(
    deliveries: Sequence[Delivery], gaps: Sequence[tuple[int, ReportedGap]]
) -> dict[tuple[str, int, int], int]:
    """Readings that a gap of count 0 announced as possibly out of order.

    It is (device, epoch, seq) → the number of readings shown before.
    """
    announced: dict[tuple[str, int, int], int] = {}
    for place, gap in gaps:
        if gap.device is None or gap.first_seq is None or gap.count:
            continue
        following = (
            d
            for d in deliveries[place:]
            if d.reading.device == gap.device and gap.epoch in (None, d.epoch)
        )
        if (after := next(following, None)) is not None:
            for seq in range(gap.first_seq, after.seq):
                announced.setdefault((gap.device, after.epoch, seq), place)
    return announced


class _Excuses:
    """What a client's gaps excuse. Each gap excuses each of its readings once."""

    def __init__(
        self, deliveries: Sequence[Delivery], gaps: Sequence[tuple[int, ReportedGap]]
    ) -> None:
        self._index = {
            (d.reading.device, d.reading.n): i for i, d in reversed(list(enumerate(deliveries)))
        }
        self._gaps = gaps
        self._left = [gap.count for _, gap in gaps]

    def rest_of(self, hole: _Hole) -> tuple[int, ...]:
        """The numbers of the hole that no gap excuses."""
        rest = hole.numbers
        for i, (moment, gap) in enumerate(self._gaps):
            if not rest:
                break
            covers = (
                self._covers_moment(moment, hole)
                if gap.device is None
                else _covers_range(gap, hole)
            )
            excused = min(self._left[i], len(rest), _room(gap, hole)) if covers else 0
            self._left[i] -= excused
            rest = rest[excused:]
        return rest

    def _covers_moment(self, moment: int, hole: _Hole) -> bool:
        """Was the gap reported between the readings before and after the hole?"""
        before, after = self._index_of(hole.before), self._index_of(hole.after)
        return (before is None or before < moment) and (after is None or moment <= after)

    def _index_of(self, delivery: Delivery | None) -> int | None:
        return (
            None if delivery is None else self._index[delivery.reading.device, delivery.reading.n]
        )


def _covers_range(gap: ReportedGap, hole: _Hole) -> bool:
    """Does the gap's range lie between the readings around the hole?

    Without numbers it covers its whole device.
    """
    if gap.device != hole.device:
        return False
    if gap.first_seq is None:
        return True
    first, last = gap.first_seq, gap.first_seq + gap.count - 1
    before, after = hole.before, hole.after
    epochs = {delivery.epoch for delivery in (before, after) if delivery is not None}
    if (
        gap.epoch is not None
        and before is not None
        and after is not None
        and not before.epoch <= gap.epoch <= after.epoch
    ):
        return False
    starts_after = before is None or gap.epoch not in (None, before.epoch) or last > before.seq
    ends_before = after is None or gap.epoch not in (None, after.epoch) or first < after.seq
    return starts_after and ends_before and (gap.epoch is not None or len(epochs) < 2)


def _room(gap: ReportedGap, hole: _Hole) -> int:
    """The number of readings of the gap's range that can lie inside the hole."""
    if gap.device is None or gap.first_seq is None:
        return gap.count
    first, last = gap.first_seq, gap.first_seq + gap.count - 1
    if hole.before is not None and gap.epoch in (None, hole.before.epoch):
        first = max(first, hole.before.seq + 1)
    if hole.after is not None and gap.epoch in (None, hole.after.epoch):
        last = min(last, hole.after.seq - 1)
    return max(0, last - first + 1)


def _missing_seqs(
    client: str, deliveries: Sequence[Delivery], gaps: Sequence[tuple[int, ReportedGap]]
) -> list[str]:
    """Numbers missing between the first and last of a device and epoch that no gap explains."""
    numbers: dict[tuple[str, int], set[int]] = defaultdict(set)
    for delivery in deliveries:
        numbers[delivery.reading.device, delivery.epoch].add(delivery.seq)
    anywhere = sum(gap.count for _, gap in gaps if gap.device is None)
    found = []
    for (device, epoch), seqs in numbers.items():
        holes = sorted(
            set(range(min(seqs), max(seqs) + 1)) - seqs - _explained(gaps, device, epoch)
        )
        found += [
            f"{client}: seq {seq} of {device} epoch {epoch} is missing and no gap was reported"
            for seq in holes[anywhere:]
        ]
        anywhere = max(0, anywhere - len(holes))
    return found


def _explained(gaps: Sequence[tuple[int, ReportedGap]], device: str, epoch: int) -> set[int]:
    explained: set[int] = set()
    for _, gap in gaps:
        if gap.device == device and gap.epoch in (None, epoch) and gap.first_seq is not None:
            explained.update(range(gap.first_seq, gap.first_seq + gap.count))
    return explained


def _falling_revisions(client: str, rows: Sequence[WindowRow]) -> list[str]:
    found = []
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        key = (row.device, row.start_ms)
        if row.revision < last.get(key, -1):
            found.append(
                f"{client}: the window {row.start_ms} of {row.device} fell from revision "
                f"{last[key]} to {row.revision}"
            )
        last[key] = max(row.revision, last.get(key, -1))
    return found


def _wrong_windows(
    client: str,
    latest: dict[tuple[str, int], WindowRow],
    expected: dict[tuple[str, int], tuple[int, float, float, float]],
) -> list[str]:
    found = [
        f"{client}: the window {start} of {device} never came"
        for device, start in sorted(expected.keys() - latest.keys())
    ]
    for (device, start), row in sorted(latest.items()):
        if (device, start) not in expected:
            found.append(f"{client}: the window {start} of {device} holds nothing that was put in")
            continue
        count, total, low, high = expected[device, start]
        same = (
            row.count == count
            and math.isclose(row.total, total, rel_tol=1e-9, abs_tol=1e-9)
            and (row.low, row.high) == (low, high)
        )
        if not same:
            shown = (row.count, row.total, row.low, row.high)
            found.append(
                f"{client}: the window {start} of {device} says {shown} at revision "
                f"{row.revision}, is {(count, total, low, high)}"
            )
    return found
