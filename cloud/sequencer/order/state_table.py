"""The states of one partition in one block of memory, without a Python object per state.

It is a hash table with open addressing, 45 bytes a slot.

A *line* is a device's stream under one discipline; its states, one per epoch, have the same digest
and so lie side by side. A slot:

    digest 12 · epoch 8 · next 8 · detail 8 · touched 4 · began 4 · used 1        little endian

`next`: the number whose turn it is (ORDERED; 0: not known yet), or one above the highest
(NUMBERED). `detail`: number of the first reading that has not come (ORDERED), or a bit for each of
the last 64 numbers (NUMBERED). Times are seconds since 2020 by Kafka's clock.

With 80 % of the slots in use at most and growth by a third a state costs 56 to 76 bytes. The digest
of 96 bits makes two lines collide with a probability of 10^-16 among two million. Slots lie in the
order of their digests, so a block (BLOCKS) is found without searching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from edgewake.protocol.frames.record import Discipline

BLOCKS: Final = 256
"""Blocks of a partition: states whose digests begin with the same byte. A block is one row of
`ew.sequence`."""
SLOT: Final = Struct("<12sQQQIIB")
SLOT_BYTES: Final = SLOT.size
EPOCH_S: Final = 1_577_836_800
"""2020-01-01 UTC, from which the times in a slot are counted."""
DIGEST_BYTES: Final = 12
"""Bytes of a digest; its first one is the block."""
_KEY: Final = Struct("<12sQ")
_STATE: Final = Struct("<QQII")
_USED: Final = SLOT_BYTES - 1
_FULL_PERCENT: Final = 80
_SLOTS_MIN: Final = 16


class State(NamedTuple):
    """What is known of one device, stream and epoch."""

    next: int
    detail: int
    touched_s: int
    began_s: int


def seconds(ms: int) -> int:
    """Convert milliseconds since 1970 to a slot's seconds, clamped to its range (2020 to 2156)."""
    return min(max(ms // 1000 - EPOCH_S, 0), 0xFFFF_FFFF)


@lru_cache(maxsize=16_384)
def line_digest(device: str, stream: str, discipline: Discipline) -> bytes:
    """The digest of a line; its first byte is the block."""
    return blake2b(f"{device}\0{stream}\0{discipline}".encode(), digest_size=DIGEST_BYTES).digest()


def state_key(digest: bytes, epoch: int) -> bytes:
    """The key of a state: its line's digest and its epoch."""
    return _KEY.pack(digest, epoch)


def epoch_of(key: bytes) -> int:
    """The epoch in a key."""
    return int(_KEY.unpack(key)[1])


class StateTable:
    """States by key. A slot number is good until the next `insert`, `load` or `retain`."""

    def __init__(self) -> None:
        self._count = 0
        self._allocate(_SLOTS_MIN)

    def __len__(self) -> int:
        return self._count

    @property
    def memory_bytes(self) -> int:
        """Memory of the table."""
        return len(self._slots)

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._slots = bytearray(capacity * SLOT_BYTES)

    def _home(self, key: bytes) -> int:
        return (int.from_bytes(key[:4], "big") * self._capacity >> 32) * SLOT_BYTES

    def find(self, key: bytes) -> int:
        """The slot of a state; -1 where it is not known."""
        slots = self._slots
        # `_home`, written out: this runs for every record.
        at = (int.from_bytes(key[:4], "big") * self._capacity >> 32) * SLOT_BYTES
        while slots[at + _USED]:
            if slots.startswith(key, at):
                return at
            at += SLOT_BYTES
            if at == len(slots):
                at = 0
        return -1

    def read(self, slot: int) -> State:
        """The state in a slot."""
        return State._make(_STATE.unpack_from(self._slots, slot + _KEY.size))

    def write(self, slot: int, next_number: int, detail: int, touched_s: int, began_s: int) -> None:
        """Change the state in a slot."""
        _STATE.pack_into(self._slots, slot + _KEY.size, next_number, detail, touched_s, began_s)

    def insert(self, key: bytes) -> int:
        """A slot for a state that is not known yet; `write` it next."""
        if (self._count + 1) * 100 > self._capacity * _FULL_PERCENT:
            self._rebuild(self._capacity * 4 // 3 + 8, self._used())
        slot = self._insert(key)
        self._count += 1
        return slot

    def _insert(self, key: bytes) -> int:
        slots = self._slots
        at = self._home(key)
        while slots[at + _USED]:
            at += SLOT_BYTES
            if at == len(slots):
                at = 0
        slots[at : at + _KEY.size] = key
        slots[at + _USED] = 1
        return at

    def rename(self, slot: int, key: bytes) -> None:
        """Give the slot to another epoch of the same line."""
        # It need not move: the place of a state comes from the digest, which the epochs share.
        self._slots[slot : slot + _KEY.size] = key

    def line(self, digest: bytes) -> list[tuple[int, int]]:
        """(epoch, slot) of every epoch that is known of a line."""
        found = []
        at = self._home(digest)
        while self._slots[at + _USED]:
            if self._slots.startswith(digest, at):
                found.append((int(_KEY.unpack_from(self._slots, at)[1]), at))
            at += SLOT_BYTES
            if at == len(self._slots):
                at = 0
        return found

    def states(self) -> Iterator[tuple[bytes, State]]:
        """Every key and state."""
        for at in range(0, len(self._slots), SLOT_BYTES):
            if self._slots[at + _USED]:
                yield bytes(self._slots[at : at + _KEY.size]), self.read(at)

    def retain(self, wanted: Callable[[bytes, State], bool]) -> int:
        """Forget the others; their number."""
        before = self._count
        key = _KEY.size
        # A slot that was only emptied would end the search for those that lie behind it.
        self._rebuild(
            self._capacity,
            [
                raw
                for raw in self._used()
                if wanted(raw[:key], State._make(_STATE.unpack_from(raw, key)))
            ],
        )
        return before - self._count

    def _used(self) -> list[bytes]:
        """The raw slots in use."""
        slots = bytes(self._slots)
        return [
            slots[at : at + SLOT_BYTES]
            for at in range(0, len(slots), SLOT_BYTES)
            if slots[at + _USED]
        ]

    def _rebuild(self, capacity: int, raws: Sequence[bytes]) -> None:
        self._allocate(capacity)
        self._count = 0
        self.load(raws)

    def block(self, number: int) -> list[bytes]:
        """The raw slots of one block."""
        found = []
        at = self._home(bytes([number, 0, 0, 0]))
        last = self._home(bytes([number, 255, 255, 255]))
        is_past = False
        # States that found their slot taken lie behind it, some of them beyond `last` and perhaps
        # at the table's beginning: the block ends with the first free slot after `last`.
        while not (is_past and not self._slots[at + _USED]):
            if self._slots[at + _USED] and self._slots[at] == number:
                found.append(bytes(self._slots[at : at + SLOT_BYTES]))
            is_past = is_past or at == last
            at += SLOT_BYTES
            if at == len(self._slots):
                at = 0
        return found

    def reserve(self, count: int) -> None:
        """Make room for `count` more states at once, so that loading them moves none."""
        capacity = (self._count + count) * 100 // _FULL_PERCENT + 1
        if capacity > self._capacity:
            self._rebuild(capacity, self._used())

    def load(self, raws: Sequence[bytes]) -> None:
        """Add raw slots of states that are not known yet. Raises ValueError."""
        self.reserve(len(raws))
        slots, capacity, end = self._slots, self._capacity, len(self._slots)
        for raw in raws:
            if len(raw) != SLOT_BYTES or raw[_USED] != 1:
                raise ValueError("not a slot of the state table")
            at = (int.from_bytes(raw[:4], "big") * capacity >> 32) * SLOT_BYTES
            while slots[at + _USED]:
                at += SLOT_BYTES
                if at == end:
                    at = 0
            slots[at : at + SLOT_BYTES] = raw
        self._count += len(raws)
