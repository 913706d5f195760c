"""Each frame once and in order, for one partition of `ew.up`.

No I/O: records and time in, records and statements out.

`accept` and `tick` return what passes on now, in that order. ORDERED frames are decided in
`ordered`, NUMBERED and KEYED ones in `numbered`; FREE ones pass. `clocks` says of each by how much
its device's clock is wrong. What is known lies in a StateTable; `block_row` and `load_block` make
it the rows of `ew.sequence` and read them again.

After a restart the records from `read_from` on are read again. Those below `emitted_before` were
passed on by the process before: they repeat the changes of state that no row holds yet, and nothing
of them comes out; nothing is decided by time or by a bound meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from edgewake.cloud.sequencer.order.absences import Absences
from edgewake.cloud.sequencer.order.arrival import Arrival, Output
from edgewake.cloud.sequencer.order.bounds import EPOCHS_MAX, KEYS_MAX, Bounds
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.clocks import DeviceClocks, clock_key
from edgewake.cloud.sequencer.order.each_once import EachOnce
from edgewake.cloud.sequencer.order.numbered import NumberedRecords
from edgewake.cloud.sequencer.order.ordered import OrderedFrames
from edgewake.cloud.sequencer.order.state_rows import BlockRow, decode_block, encode_block
from edgewake.cloud.sequencer.order.state_table import (
    BLOCKS,
    State,
    StateTable,
    epoch_of,
    line_digest,
    seconds,
    state_key,
)
from edgewake.protocol.frames.record import Discipline, Placement

_DIGEST_BYTES = 12


class FrameOrder:
    """The order of one partition."""

    def __init__(self, bounds: Bounds, *, emitted_before: int = 0) -> None:
        self._bounds = bounds
        self.outcomes: Counter[str] = Counter()
        """passed, repeat, repeated_reading, held, released, late, opened, unknown, gap, restarted,
        forgotten."""
        self.table = StateTable()
        self.changes = Changes()
        self._ordered = OrderedFrames(bounds, self.table, self.changes, self.outcomes)
        self._numbered = NumberedRecords(bounds, self.table, self.changes, self.outcomes)
        self._clocks = DeviceClocks(bounds, self.table, self.changes)
        self._each_once = EachOnce(bounds.things, self.changes)
        self.absences = Absences(self.changes)
        self._has_things = False
        """Has anything come by a gateway?"""
        self._through = [0] * BLOCKS
        self.emitted_before = emitted_before

    # In

    def replay_before(self, offset: int) -> None:
        """Replay records below this offset, which were emitted before.

        They repeat their changes of state.
        """
        self.emitted_before = offset
        self._ordered.is_replaying = offset > 0

    @property
    def is_replaying(self) -> bool:
        """Are records still read again?"""
        return self._ordered.is_replaying

    def advance(self, position: int, *, now_s: float) -> None:
        """All records below `position` were accepted; ends the replay where it is reached."""
        if self.is_replaying and position >= self.emitted_before:
            self._ordered.is_replaying = False
            self._ordered.holding.wait_anew(now_s)

    def accept(self, arrival: Arrival, *, now_s: float) -> list[Output]:
        """One record in; what passes now, in order."""
        placement = arrival.placement
        out = self._ordered_out(arrival, placement, now_s=now_s)
        if placement.via:
            self._has_things = True
        # A reading comes twice only where two gateways bring it: without any, nobody need look.
        if not self._has_things:
            return [] if arrival.offset < self.emitted_before else out
        if arrival.offset < self.emitted_before:
            passed = out or ([] if self._is_held(arrival) else [arrival])
            self._each_once.learn(passed)
            self.absences.note(passed)
            return []
        return self._new(out)

    def _new(self, out: list[Output]) -> list[Output]:
        """Without readings that another gateway brought before."""
        found = self._each_once.only_new(out)
        self.outcomes["repeated_reading"] += self._each_once.left_out
        self._each_once.left_out = 0
        self.absences.note(found)
        return found

    def _is_held(self, arrival: Arrival) -> bool:
        """Does it wait for an earlier frame?"""
        placement = arrival.placement
        if placement.discipline is not Discipline.ORDERED:
            return False
        digest = line_digest(arrival.sender, placement.stream, placement.discipline)
        held = self._ordered.holding.get(state_key(digest, placement.epoch))
        return held is not None and placement.last in held.arrivals

    def _ordered_out(self, arrival: Arrival, placement: Placement, *, now_s: float) -> list[Output]:
        discipline = placement.discipline
        if arrival.sent_at is not None:
            clock = clock_key(arrival.clock)
            arrival.shift = self._clocks.shift(
                clock, arrival, arrival.sent_at, is_known=self._is_in_row(clock[0], arrival.offset)
            )
        if discipline is Discipline.FREE:
            return self._accept_free(arrival)
        digest = line_digest(arrival.sender, placement.stream, discipline)
        key = state_key(digest, placement.epoch)
        slot = self.table.find(key)
        is_known_before = self._is_in_row(digest[0], arrival.offset)
        if slot < 0:
            if is_known_before:
                return []
            out = self._open(key, digest, arrival, now_s)
        elif discipline is Discipline.ORDERED:
            out = self._ordered.accept(key, slot, arrival, now_s=now_s)
        elif is_known_before:
            return []
        else:
            out = self._numbered.accept(key, slot, arrival)
        return out

    def _is_in_row(self, block: int, offset: int) -> bool:
        """Is it a record that is read again, and that the row of the block has?"""
        return self._ordered.is_replaying and offset < self._through[block]

    def tick(self, *, now_s: float, now_ms: int, offset: int) -> list[Output]:
        """What passes because it has waited long enough. `offset`: the next record's."""
        return self._new(self._ordered.tick(now_s=now_s, now_ms=now_ms, offset=offset))

    def sweep(self, *, now_ms: int, offset: int) -> list[Output]:
        """Count holes that are too old, forget old epochs and what is over the bound.

        Call it about once a minute.
        """
        out = self._ordered.close_old_holes(now_ms=now_ms, offset=offset)
        out += self._forget(self._old_epochs(now_ms), offset=offset, now_ms=now_ms)
        return self._new(out)

    # States

    @property
    def held(self) -> int:
        """Frames that wait for an earlier one."""
        return len(self._ordered.holding)

    @property
    def held_bytes(self) -> int:
        """Bytes that wait."""
        return self._ordered.holding.bytes

    @property
    def open_holes(self) -> int:
        """Holes that may still be filled."""
        return self._ordered.holes_count

    def read_from(self, position: int) -> int:
        """The offset to read the partition from after a restart.

        All records before `position` were accepted and no row is due.
        """
        return min(self._ordered.holding.first_offset(position), self.changes.read_from(position))

    def waits_from(self, position: int) -> int:
        """The first offset that waits for an earlier frame; `position` where none does."""
        return self._ordered.holding.first_offset(position)

    def block_row(self, block: int, *, through: int) -> bytes:
        """The row of a block as it is now."""
        slots = self.table.block(block)
        holes, wide, contents = self._ordered.holes, self._numbered.wide, self._numbered.contents
        keys = [raw[:20] for raw in slots] if holes or wide or contents else []
        return encode_block(
            BlockRow(
                through,
                slots,
                {key: holes[key] for key in keys if key in holes},
                {key: wide[key] for key in keys if key in wide},
                {key: contents[key] for key in keys if key in contents},
                self._each_once.block(block),
                self.absences.block(block),
            )
        )

    def reserve(self, states: int) -> None:
        """Make room for this many more states, which blocks are about to bring."""
        self.table.reserve(states)

    def load_block(self, block: int, value: bytes) -> None:
        """Read the row of a block of which nothing is known yet. Raises ValueError."""
        row = decode_block(value)
        self.table.load(row.slots)
        self._ordered.holes |= row.holes
        self._ordered.holes_count += sum(map(len, row.holes.values()))
        self._numbered.wide |= row.wide
        self._numbered.contents |= row.contents
        self._each_once.load(row.numbers)
        self.absences.load(row.absences)
        self._through[block] = row.through

    def _accept_free(self, arrival: Arrival) -> list[Output]:
        self.outcomes["passed"] += arrival.offset >= self.emitted_before
        return [arrival]

    def _open(self, key: bytes, digest: bytes, arrival: Arrival, now_s: float) -> list[Output]:
        out: list[Output] = []
        if len(self.table) >= self._bounds.states and not self.is_replaying:
            out += self._forget(self._surplus(), offset=arrival.offset, now_ms=arrival.received_at)
        line = self.table.line(digest)
        is_keyed = arrival.placement.discipline is Discipline.KEYED
        if len(line) >= (KEYS_MAX if is_keyed else EPOCHS_MAX):
            slot, more = self._replace_epoch(key, digest, line, arrival)
            out += more
        else:
            slot = self.table.insert(key)
        if arrival.placement.discipline is Discipline.ORDERED:
            return out + self._ordered.open(key, slot, arrival, now_s=now_s)
        return out + self._numbered.open(key, slot, arrival)

    def _replace_epoch(
        self, key: bytes, digest: bytes, line: list[tuple[int, int]], arrival: Arrival
    ) -> tuple[int, list[Output]]:
        """Forget the epoch of the line that was quiet longest, never the highest."""
        highest = max(line)[0]
        epoch, slot = min(
            (one for one in line if one[0] != highest),
            key=lambda one: (self.table.read(one[1]).touched_s, one[0]),
        )
        old = state_key(digest, epoch)
        out = self._ordered.forget(old, offset=arrival.offset, now_ms=arrival.received_at)
        self._numbered.forget(old)
        self.table.rename(slot, key)
        self.outcomes["forgotten"] += 1
        return slot, out

    def _highest_epochs(self) -> dict[bytes, int]:
        highest: dict[bytes, int] = {}
        for key, _ in self.table.states():
            digest, epoch = key[:_DIGEST_BYTES], epoch_of(key)
            highest[digest] = max(epoch, highest.get(digest, epoch))
        return highest

    def _old_epochs(self, now_ms: int) -> list[bytes]:
        highest, oldest_s = self._highest_epochs(), seconds(now_ms) - self._bounds.old_epoch_s
        return [
            key
            for key, state in self.table.states()
            if state.touched_s < oldest_s and epoch_of(key) < highest[key[:_DIGEST_BYTES]]
        ]

    def _surplus(self) -> list[bytes]:
        """At the bound: a twentieth of the states, old epochs first, then the quietest lines.

        So many at once because each time the whole table is sorted and made again.
        """
        highest = self._highest_epochs()

        def worth(one: tuple[bytes, State]) -> tuple[bool, int]:
            return epoch_of(one[0]) == highest[one[0][:_DIGEST_BYTES]], one[1].touched_s

        return [
            key
            for key, _ in sorted(self.table.states(), key=worth)[: self._bounds.states // 20 + 1]
        ]

    def _forget(self, keys: Iterable[bytes], *, offset: int, now_ms: int) -> list[Output]:
        gone = set(keys)
        if not gone:
            return []
        out: list[Output] = []
        for key in gone:
            out += self._ordered.forget(key, offset=offset, now_ms=now_ms)
            self._numbered.forget(key)
            self.changes.note(key[0], offset)
        self.outcomes["forgotten"] += self.table.retain(lambda key, _state: key not in gone)
        return out
