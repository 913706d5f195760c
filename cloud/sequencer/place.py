"""Each frame once and in order, per (device, epoch, stream). No I/O: records and time in, records and gap statements out.

One Placer serves one partition of `ew.up`. What `place` and `expire` return is passed on in that order; `dirty` says which states
changed; `resume_offset` says from where the partition must be read again after a restart, so that frames which are held are not lost.

ORDERED frames are numbered from 1 without holes. The next one passes; an older one is a repeat; an early one is held until its turn. A
frame that does not come within the bounds (seconds, frames and bytes) is said as a gap, what was held goes on, and its number is
remembered: should it come after all it passes marked late. NUMBERED frames may have holes: only repeats are dropped. FREE ones pass.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

from edgewake.protocol.record import Discipline, Placement

log = logging.getLogger("edgewake.sequencer")

WINDOW: Final = 1024
"""Numbers below the highest of a NUMBERED stream in which repeats are told from late ones; what is older counts as a repeat."""
MISSING_MAX: Final = 64
"""Ranges of missing frames that are remembered per state. One more, and the oldest is forgotten: its frames would count as repeats;
the gap record that said them missing stands."""

Key: TypeAlias = tuple[str, int, str, bool]
"""(device, epoch, stream, is it ORDERED). A stream that changes from ack to one_way is numbered anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long, and how much, is held for frames that are missing. At a bound the gap is said and the rest goes on."""

    hold_s: float = 60.0
    frames: int = 1024
    """Per state."""
    bytes: int = 8 << 20
    """Per state."""
    bytes_total: int = 64 << 20
    """Of one partition; at the bound the state that has waited longest is released."""
    states: int = 200_000
    """Of one partition; at the bound the states that were idle longest are forgotten, which would make a very old repeat pass again."""
    old_epoch_s: float = 7 * 86_400.0
    """How long the state of an epoch is kept after a newer one of the same device and stream began."""


@dataclass(slots=True)
class Item:
    """A record on its way; `payload` is the caller's."""

    offset: int
    device: str
    placement: Placement
    bytes: int
    payload: Any = None
    late: bool = False
    held_at_s: float = 0.0
    """Monotonic clock, when it was held; set by the Placer."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A gap to be said: frames first to last did not come; `count` readings from number `seq` on."""

    device: str
    epoch: int
    stream: str
    first: int
    last: int
    seq: int
    count: int


Emission: TypeAlias = Item | Missing


@dataclass(slots=True)
class State:
    """What is known of one (device, epoch, stream)."""

    next: int = 1
    """ORDERED: the number whose turn it is. NUMBERED: one above the highest."""
    next_seq: int = 1
    """ORDERED: number of the first reading that has not come."""
    missing: list[tuple[int, int]] = field(default_factory=list)
    """ORDERED: ranges that were said missing, ascending."""
    seen: int = 0
    """NUMBERED: bit i stands for number next - 1 - i."""
    touched_ms: int = 0
    held: dict[int, Item] = field(default_factory=dict)
    """By first number, in the order they came. Not kept: held frames are read again."""
    held_bytes: int = 0

    @property
    def held_since_s(self) -> float:
        """When the frame that waits longest was held; there is one."""
        return next(iter(self.held.values())).held_at_s

    def encode(self) -> bytes:
        """A row of `ew.sequence`."""
        row: dict[str, object] = {"next": self.next, "seq": self.next_seq, "at": self.touched_ms}
        if self.missing:
            row["missing"] = self.missing
        if self.seen:
            row["seen"] = f"{self.seen:x}"
        return orjson.dumps(row)

    @classmethod
    def decode(cls, value: bytes) -> State:
        """Read a row; raises ValueError."""
        try:
            row = orjson.loads(value)
            return cls(
                next=row["next"],
                next_seq=row["seq"],
                missing=[(first, last) for first, last in row.get("missing", ())],
                seen=int(row.get("seen", "0"), 16),
                touched_ms=row["at"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a row of the sequencer: {value[:80]!r}") from error


def encode_key(key: Key) -> str:
    """`device|epoch|stream` for ORDERED, with `|n` behind for NUMBERED."""
    device, epoch, stream, is_ordered = key
    return f"{device}|{epoch}|{stream}" + ("" if is_ordered else "|n")


def decode_key(text: str) -> Key:
    """Read a key; raises ValueError."""
    parts = text.split("|")
    if len(parts) not in (3, 4):
        raise ValueError(f"not a key of the sequencer: {text[:80]!r}")
    return parts[0], int(parts[1]), parts[2], len(parts) == 3


class Placer:
    """The sequence of one partition of `ew.up`."""

    def __init__(self, bounds: Bounds, *, done: int = 0) -> None:
        self._bounds = bounds
        self.done = done
        """Offset up to which records were processed before a restart: below it only ORDERED frames that were held matter."""
        self._states: dict[Key, State] = {}
        self._newest_epoch: dict[tuple[str, str, bool], int] = {}
        self._holding: dict[Key, State] = {}
        self._held_offsets: OrderedDict[int, None] = OrderedDict()
        self.held_bytes = 0
        self.dirty: dict[Key, State | None] = {}
        """States that changed since the caller last cleared this; None: forgotten."""
        self.outcomes: Counter[str] = Counter()

    # In

    def restore(self, key: Key, state: State) -> None:
        """Take a state that was kept."""
        self._states[key] = state
        self._note_epoch(key)

    def forget(self, key: Key) -> None:
        """Its row was deleted."""
        self._states.pop(key, None)

    def place(self, item: Item, *, now_s: float, now_ms: int) -> list[Emission]:
        """One record in; what passes now, in order."""
        placement = item.placement
        if placement.discipline is Discipline.FREE:
            return self._pass_free(item)
        is_ordered = placement.discipline is Discipline.ORDERED
        key = (item.device, placement.epoch, placement.stream, is_ordered)
        state = self._states.get(key)
        if state is None:
            state = self._new_state(key)
        if not is_ordered:
            return self._place_numbered(key, state, item, now_ms)
        if placement.first == state.next and not state.held:
            self._advance(key, state, placement, now_ms)
            self.outcomes["passed"] += 1
            return [item]
        return self._place_ordered(key, state, item, now_s, now_ms)

    def expire(self, *, now_s: float, now_ms: int) -> list[Emission]:
        """Say the gaps of what has been waited for long enough; what passes by that."""
        out: list[Emission] = []
        for key, state in list(self._holding.items()):
            while state.held and now_s - state.held_since_s >= self._bounds.hold_s:
                self._release(key, state, out, now_ms, "time")
        return out

    @property
    def held(self) -> int:
        """Frames that wait for an earlier one."""
        return len(self._held_offsets)

    def resume_offset(self, position: int) -> int:
        """From where the partition is read after a restart, when all before `position` was placed."""
        return min(position, next(iter(self._held_offsets), position))

    def states(self) -> Mapping[Key, State]:
        """All states, for tests and metrics."""
        return self._states

    # The three disciplines

    def _pass_free(self, item: Item) -> list[Emission]:
        if item.offset < self.done:
            return []
        self.outcomes["passed"] += 1
        return [item]

    def _place_numbered(self, key: Key, state: State, item: Item, now_ms: int) -> list[Emission]:
        number = item.placement.last
        back = state.next - 1 - number
        if item.offset < self.done:
            return []
        if back >= WINDOW or (back >= 0 and state.seen >> back & 1):
            self.outcomes["repeat"] += 1
            return []
        if back < 0:
            state.seen = (state.seen << min(-back, WINDOW) | 1) & ((1 << WINDOW) - 1)
            state.next = number + 1
        else:
            state.seen |= 1 << back
        self._touch(key, state, now_ms)
        self.outcomes["passed"] += 1
        return [item]

    def _place_ordered(self, key: Key, state: State, item: Item, now_s: float, now_ms: int) -> list[Emission]:
        placement = item.placement
        if placement.last < state.next:
            return self._place_old(key, state, item, now_ms)
        out: list[Emission] = []
        if placement.first > state.next:
            self._hold(key, state, item, now_s)
        else:
            self._pass_overlapping(key, state, item, out, now_ms)
            self._release_run(key, state, out, now_ms)
        self._keep_bounds(key, state, out, now_ms)
        return out

    def _place_old(self, key: Key, state: State, item: Item, now_ms: int) -> list[Emission]:
        """Its turn is over: late if it was said missing, else a repeat."""
        placement = item.placement
        if placement.first == placement.last and _take(state.missing, placement.first):
            self._touch(key, state, now_ms)
            item.late = True
            self.outcomes["late"] += 1
            return [item]
        self.outcomes["repeat"] += 1
        return []

    def _pass_overlapping(self, key: Key, state: State, item: Item, out: list[Emission], now_ms: int) -> None:
        """A frame or gap frame that reaches the number whose turn it is. A gap frame may cover frames that were held or come later."""
        first, last = item.placement.first, item.placement.last
        covered = [number for number in state.held if number <= last]
        if first != last or covered:
            self._remember_missing(state, state.next, last)
        self._advance(key, state, item.placement, now_ms)
        self.outcomes["passed"] += 1
        out.append(item)
        for number in sorted(covered):
            held = self._unhold(key, state, number)
            if held.placement.last >= state.next:
                self._pass_overlapping(key, state, held, out, now_ms)
            else:
                out += self._place_old(key, state, held, now_ms)

    # Holding

    def _hold(self, key: Key, state: State, item: Item, now_s: float) -> None:
        first = item.placement.first
        if first in state.held:
            self.outcomes["repeat"] += 1
            return
        item.held_at_s = now_s
        self._holding[key] = state
        state.held[first] = item
        state.held_bytes += item.bytes
        self.held_bytes += item.bytes
        self._held_offsets[item.offset] = None
        self.outcomes["held"] += 1

    def _unhold(self, key: Key, state: State, first: int) -> Item:
        item = state.held.pop(first)
        state.held_bytes -= item.bytes
        self.held_bytes -= item.bytes
        del self._held_offsets[item.offset]
        if not state.held:
            del self._holding[key]
        return item

    def _release_run(self, key: Key, state: State, out: list[Emission], now_ms: int) -> None:
        """Pass on what is held and whose turn it is now."""
        while state.next in state.held:
            item = self._unhold(key, state, state.next)
            self._advance(key, state, item.placement, now_ms)
            self.outcomes["released"] += 1
            out.append(item)

    def _keep_bounds(self, key: Key, state: State, out: list[Emission], now_ms: int) -> None:
        while state.held and (len(state.held) > self._bounds.frames or state.held_bytes > self._bounds.bytes):
            self._release(key, state, out, now_ms, "size")
        while self.held_bytes > self._bounds.bytes_total:
            longest, oldest = min(self._holding.items(), key=lambda pair: pair[1].held_since_s)
            self._release(longest, oldest, out, now_ms, "total")

    def _release(self, key: Key, state: State, out: list[Emission], now_ms: int, why: str) -> None:
        """Wait no longer for the frames before the first one that is held: say them missing and go on."""
        device, epoch, stream, _ = key
        first = min(state.held)
        seq = state.held[first].placement.seq
        gap = Missing(device, epoch, stream, state.next, first - 1, state.next_seq, max(0, seq - state.next_seq))
        log.warning(
            "%s, stream %s: frames %d to %d did not come", device, stream, gap.first, gap.last,
            extra={"event": "sequence.gap", "epoch": epoch, "readings": gap.count, "bound": why},
        )  # fmt: skip
        self.outcomes["gap"] += 1
        out.append(gap)
        self._remember_missing(state, gap.first, gap.last)
        state.next, state.next_seq = first, seq
        self._touch(key, state, now_ms)
        self._release_run(key, state, out, now_ms)

    def _remember_missing(self, state: State, first: int, last: int) -> None:
        state.missing.append((first, last))
        del state.missing[:-MISSING_MAX]

    # States

    def _advance(self, key: Key, state: State, placement: Placement, now_ms: int) -> None:
        state.next = placement.last + 1
        state.next_seq = placement.seq + placement.readings
        self._touch(key, state, now_ms)

    def _touch(self, key: Key, state: State, now_ms: int) -> None:
        state.touched_ms = now_ms
        self.dirty[key] = state

    def _new_state(self, key: Key) -> State:
        self._states[key] = state = State()
        self._note_epoch(key)
        return state

    def _note_epoch(self, key: Key) -> None:
        device, epoch, stream, is_ordered = key
        line = (device, stream, is_ordered)
        self._newest_epoch[line] = max(epoch, self._newest_epoch.get(line, epoch))

    def sweep(self, *, now_ms: int) -> None:
        """Forget old epochs that have been quiet for long, and the quietest states over the bound. Call it now and then."""
        old = [key for key, state in self._states.items() if self._is_old(key, state, now_ms)]
        over = len(self._states) - len(old) - self._bounds.states
        if over > 0:
            quiet = sorted((state.touched_ms, key) for key, state in self._states.items() if not state.held)
            old += [key for _, key in quiet[: over + self._bounds.states // 20]]
        for key in old:
            if self._states.pop(key, None) is not None:
                self.dirty[key] = None
                self.outcomes["forgotten"] += 1
        if old:
            self._newest_epoch.clear()
            for key in self._states:
                self._note_epoch(key)

    def _is_old(self, key: Key, state: State, now_ms: int) -> bool:
        device, epoch, stream, is_ordered = key
        is_newest = epoch >= self._newest_epoch[device, stream, is_ordered]
        return not is_newest and not state.held and now_ms - state.touched_ms > self._bounds.old_epoch_s * 1000


def _take(ranges: list[tuple[int, int]], number: int) -> bool:
    """Take a number out of the ranges; False where it is in none."""
    for i, (first, last) in enumerate(ranges):
        if first <= number <= last:
            ranges[i : i + 1] = list(_parts(first, last, number))
            return True
    return False


def _parts(first: int, last: int, number: int) -> Iterator[tuple[int, int]]:
    if first < number:
        yield first, number - 1
    if number < last:
        yield number + 1, last
