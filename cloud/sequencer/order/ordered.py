"""ORDERED frames: numbered from 1 without holes (agents). No I/O.

The next one passes; an older one is a repeat; an early one waits for its turn. What has waited too
long passes, and the hole before it is stated OPEN, not lost: the device still has the frame and
sends it again, and when it comes it passes once, marked late. A hole is lost, and counted, when the
device's own gap frame says so or when a day has passed.

A state that is not known begins with number 1, at once. Any other number waits a short time for the
ones before it and then begins the state there: UNKNOWN_BEFORE, without a count, for not to know is
not to miss.
"""

from __future__ import annotations

from collections import Counter

from edgewake.cloud.sequencer.order.arrival import Arrival, Output, Statement, StatementKind
from edgewake.cloud.sequencer.order.bounds import WINDOW, Bounds
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.holding import Holding
from edgewake.cloud.sequencer.order.holes import Hole, Holes
from edgewake.cloud.sequencer.order.state_table import StateTable, seconds

OPENING = 0
"""`next` of a state whose first number is not known yet."""


class OrderedFrames:
    """The ORDERED states of one partition.

    `now_ms` is the time of what happens: a record's, or the clock's.
    """

    def __init__(
        self, bounds: Bounds, table: StateTable, changes: Changes, outcomes: Counter[str]
    ) -> None:
        self._bounds, self._table, self._changes, self._outcomes = bounds, table, changes, outcomes
        self.holding = Holding()
        self.holes: dict[bytes, Holes] = {}
        self.holes_count = 0
        self.is_replaying = False
        """Records are read again that were passed on before: no bound may decide about them a
        second time."""

    # In

    def open(self, key: bytes, slot: int, arrival: Arrival, *, now_s: float) -> list[Output]:
        """The first frame of a state."""
        if arrival.placement.first <= 1:
            self._write(key, slot, 1, 1, arrival)
            return self.accept(key, slot, arrival, now_s=now_s)
        self._write(key, slot, OPENING, 1, arrival)
        self._hold(key, arrival, now_s)
        return self._within_bounds(key, arrival)

    def accept(self, key: bytes, slot: int, arrival: Arrival, *, now_s: float) -> list[Output]:
        """A further frame, or a gap frame."""
        placement = arrival.placement
        next_number, next_seq, _, _ = self._table.read(slot)
        if placement.first == placement.last == next_number and key not in self.holding:
            self._write(key, slot, next_number + 1, placement.seq + placement.readings, arrival)
            self._outcomes["passed"] += 1
            return [arrival]
        if next_number == OPENING and placement.first <= 1:
            self._write(key, slot, 1, 1, arrival)
            next_number, next_seq = 1, 1
        if next_number != OPENING and placement.last < next_number:
            return self._accept_old(key, arrival)
        out: list[Output] = []
        if next_number == OPENING or placement.first > next_number:
            self._hold(key, arrival, now_s)
        else:
            self._outcomes["passed"] += 1
            self._pass_in_turn(key, slot, next_number, next_seq, arrival, out)
            self._pass_run(key, slot, out)
        return out + self._within_bounds(key, arrival)

    def tick(self, *, now_s: float, now_ms: int, offset: int) -> list[Output]:
        """Let pass what has waited long enough. `offset`: the next record's."""
        out: list[Output] = []
        for key in self.holding:
            while (held := self.holding.get(key)) is not None:
                slot = self._table.find(key)
                is_opening = self._table.read(slot).next == OPENING
                if now_s - held.since_s < (
                    self._bounds.unknown_s if is_opening else self._bounds.hold_s
                ):
                    break
                self._open_hole(key, slot, now_ms, offset, out)
        return out

    def close_old_holes(self, *, now_ms: int, offset: int) -> list[Output]:
        """Count what has not come for too long."""
        out: list[Output] = []
        oldest_s = max(0, seconds(now_ms) - int(self._bounds.hole_s))
        for key, holes in list(self.holes.items()):
            before = len(holes)
            out += self._lost(holes, holes.close_before(oldest_s))
            if len(holes) != before:
                self._holes_changed(key, holes, before, offset)
        return out

    def forget(self, key: bytes, *, offset: int, now_ms: int) -> list[Output]:
        """The state is about to be forgotten: nothing of it may stay behind."""
        out: list[Output] = []
        while self.holding.get(key) is not None:
            self._open_hole(key, self._table.find(key), now_ms, offset, out)
        holes = self.holes.get(key)
        if holes is not None:
            before = len(holes)
            while len(holes):
                out += self._lost(holes, holes.close_lowest())
            self._holes_changed(key, holes, before, offset)
        return out

    # A frame whose turn it is, or was

    def _write(
        self, key: bytes, slot: int, next_number: int, next_seq: int, arrival: Arrival
    ) -> None:
        self._table.write(slot, next_number, next_seq, seconds(arrival.received_at), 0)
        self._changes.note(key[0], arrival.offset)

    def _pass_in_turn(
        self,
        key: bytes,
        slot: int,
        next_number: int,
        next_seq: int,
        arrival: Arrival,
        out: list[Output],
    ) -> None:
        """A frame or gap frame that reaches the number whose turn it is.

        A gap frame may cover frames that wait or come later.
        """
        placement = arrival.placement
        first, last, end_seq = placement.first, placement.last, placement.seq + placement.readings
        if (
            first < next_number
            and (holes := self.holes.get(key)) is not None
            and holes.count(first, last)
        ):
            self._changes.decided(key[0], arrival.offset)
        held = self.holding.get(key)
        covered = (
            sorted(number for number in held.arrivals if number <= last)
            if held is not None and last >= held.lowest()[0]
            else []
        )
        if first != last:
            hole = Hole(
                next_number,
                last,
                next_seq,
                max(next_seq, end_seq),
                seconds(arrival.received_at),
                counted=True,
            )
            self._remember(key, arrival, hole, arrival.offset, out)
        self._write(key, slot, last + 1, end_seq, arrival)
        out.append(arrival)
        for number in covered:
            out += self._accept_old(key, self.holding.remove(key, number))

    def _accept_old(self, key: bytes, arrival: Arrival) -> list[Output]:
        """Its turn is over: late if it was not there then, else a repeat."""
        placement = arrival.placement
        holes = self.holes.get(key)
        out: list[Output] = []
        is_late = False
        if holes is not None:
            before = len(holes)
            if placement.first == placement.last:
                is_late, lost = holes.fill(
                    placement.first, seq=placement.seq, readings=placement.readings
                )
                out += self._lost(holes, lost)
            else:
                is_late = holes.count(placement.first, placement.last)
            if is_late:
                self._holes_changed(key, holes, before, arrival.offset)
        if not is_late:
            self._outcomes["repeat"] += 1
            return []
        arrival.late = True
        self._outcomes["late"] += 1
        return [*out, arrival]

    # Waiting

    def _hold(self, key: bytes, arrival: Arrival, now_s: float) -> None:
        if self.holding.add(key, arrival):
            arrival.held_at_s = now_s
            self._outcomes["held"] += 1
        else:
            self._outcomes["repeat"] += 1

    def _pass_run(self, key: bytes, slot: int, out: list[Output]) -> None:
        """Pass what waits and whose turn it is now."""
        while (held := self.holding.get(key)) is not None:
            next_number, next_seq, _, _ = self._table.read(slot)
            first, number = held.lowest()
            if first > next_number:
                return
            waiting = self.holding.remove(key, number)
            self._outcomes["released"] += 1
            self._pass_in_turn(key, slot, next_number, next_seq, waiting, out)

    def _within_bounds(self, key: bytes, arrival: Arrival) -> list[Output]:
        out: list[Output] = []
        if self.is_replaying:
            return out
        bounds = self._bounds
        while (held := self.holding.get(key)) is not None and (
            len(held.arrivals) > bounds.frames or held.bytes > bounds.bytes
        ):
            self._open_hole(key, self._table.find(key), arrival.received_at, arrival.offset, out)
        while self.holding.bytes > bounds.bytes_total:
            largest = self.holding.largest()
            self._open_hole(
                largest, self._table.find(largest), arrival.received_at, arrival.offset, out
            )
        return out

    # Holes

    def _open_hole(
        self, key: bytes, slot: int, now_ms: int, offset: int, out: list[Output]
    ) -> None:
        """Wait no longer for the frames before the lowest one that waits."""
        held = self.holding.get(key)
        assert held is not None
        first, number = held.lowest()
        arrival = held.arrivals[number]
        device, placement = arrival.device, arrival.placement
        next_number, next_seq, touched_s, _ = self._table.read(slot)
        names = (device, placement.epoch, placement.stream)
        if next_number == OPENING:
            hole = Hole(
                max(1, first - WINDOW), first - 1, 0, placement.seq, seconds(now_ms), counted=True
            )
            out.append(
                Statement(StatementKind.UNKNOWN_BEFORE, *names, 1, first - 1, 1, via=placement.via)
            )
            self._outcomes["unknown"] += 1
        else:
            hole = Hole(
                next_number,
                first - 1,
                next_seq,
                max(next_seq, placement.seq),
                seconds(now_ms),
                counted=False,
            )
            out.append(
                Statement(
                    StatementKind.OPEN,
                    *names,
                    hole.first,
                    hole.last,
                    hole.seq,
                    via=placement.via,
                )
            )
            self._outcomes["opened"] += 1
        self._remember(key, arrival, hole, offset, out)
        self._table.write(slot, first, placement.seq, touched_s, 0)
        self._pass_run(key, slot, out)

    def _remember(
        self, key: bytes, arrival: Arrival, hole: Hole, offset: int, out: list[Output]
    ) -> None:
        holes = self.holes.get(key)
        if holes is None:
            placement = arrival.placement
            holes = self.holes[key] = Holes(
                arrival.device, placement.stream, placement.epoch, placement.via
            )
        before = len(holes)
        lost = holes.open(hole)
        if self.holes_count + len(holes) - before > self._bounds.holes_total:
            lost += holes.close_lowest()
        out += self._lost(holes, lost)
        self._holes_changed(key, holes, before, offset)

    def _holes_changed(self, key: bytes, holes: Holes, before: int, offset: int) -> None:
        self.holes_count += len(holes) - before
        if not len(holes):
            self.holes.pop(key, None)
        self._changes.decided(key[0], offset)

    def _lost(self, holes: Holes, lost: list[Hole]) -> list[Output]:
        self._outcomes["gap"] += len(lost)
        names = (holes.device, holes.epoch, holes.stream)
        return [
            Statement(
                StatementKind.MISSING,
                *names,
                hole.first,
                hole.last,
                hole.seq,
                max(0, hole.end_seq - hole.seq),
                holes.via,
            )
            for hole in lost
        ]
