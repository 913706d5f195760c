"""Which things behind gateways said that they are offline, and measured nothing later. No I/O.

The word stands in the field THING_ONLINE of a reading; records without that field are looked at by
their latest event time. What counts is the time at which something happened, not when it came: what
a gateway had kept from before the word changes nothing. Kept in the block rows, so that a process
that takes over knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from edgewake.cloud.sequencer.order.arrival import Arrival, Output
from edgewake.cloud.sequencer.order.by_block import ByBlock
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.state_table import DIGEST_BYTES
from edgewake.protocol.frames import record
from edgewake.protocol.frames.corrected_time import corrected_ms
from edgewake.protocol.names import THING_ONLINE

ABSENCES_MAX: Final = 4096
"""Things of one partition that said that they are offline; of more, the first are shown as silent,
as they are a minute later in any case."""
_MARK: Final = f'"{THING_ONLINE}":['.encode()


@lru_cache(maxsize=16_384)
def absence_key(device: str, via: str) -> bytes:
    """The key of a thing behind a gateway; its first byte is the block."""
    return blake2b(f"{device}\0{via}\0offline".encode(), digest_size=DIGEST_BYTES).digest()


class Absences:
    """The things of one partition that are offline."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._since: ByBlock[int] = ByBlock(ABSENCES_MAX)
        """Event time of the word, ms, by the cloud's clock. A row may know it still of one that was
        dropped, which does no harm."""

    def is_offline(self, device: str, via: str) -> bool:
        """Has it said so by this gateway, and measured nothing later?"""
        return bool(self._since) and absence_key(device, via) in self._since

    def note(self, outputs: Iterable[Output]) -> None:
        """Note what passes, or passed before and is read again."""
        for one in outputs:
            if not isinstance(one, Arrival) or not one.placement.via or one.payload is None:
                continue
            value: bytes = one.payload.value() if one.value is None else one.value
            if _MARK in value:
                self._note_words(one, value)
            elif self._since and one.placement.newest:
                self._is_there(one, one.placement.newest)

    def _note_words(self, arrival: Arrival, value: bytes) -> None:
        frame = record.decode(value).frame
        words = frame.fields.get(THING_ONLINE, ())
        if len(words) != len(frame.t):  # the name stands elsewhere in the frame: it says no word
            if arrival.placement.newest:
                self._is_there(arrival, arrival.placement.newest)
            return
        for t, word in zip(frame.t, words, strict=True):
            if word is False:
                self._is_away(arrival, t)
            else:  # a reading beside is a sign of life, too
                self._is_there(arrival, t)

    def _is_away(self, arrival: Arrival, t: int) -> None:
        key = absence_key(arrival.device, arrival.placement.via)
        self._since.put(key, max(_at(arrival, t), self._since.get(key) or 0))
        self._changes.note(key[0], arrival.offset)

    def _is_there(self, arrival: Arrival, t: int) -> None:
        key = absence_key(arrival.device, arrival.placement.via)
        since = self._since.get(key)
        if since is not None and _at(arrival, t) > since:
            self._since.drop(key)
            self._changes.note(key[0], arrival.offset)

    def block(self, block: int) -> dict[bytes, int]:
        """What a block's row holds of it."""
        return self._since.of(block)

    def load(self, since: Mapping[bytes, int]) -> None:
        """From a row."""
        for key, t in since.items():
            self._since.put(key, t)


def _at(arrival: Arrival, t: int) -> int:
    """A time of a record; one that is ahead of the cloud's clock is that of its arrival."""
    found = corrected_ms(t, shift=arrival.shift, received_at=arrival.received_at)
    return min(found, arrival.received_at)
