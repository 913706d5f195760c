"""What a dead letter becomes when it is given back to its stream, and whether that was done before.

No I/O.

The bridges' own check decides: what they would still refuse stays a letter. What passes goes to its
stream past the sequencer, marked late. The sequencer could not tell it from a repeat: it remembers
open holes for a day and the last thousand numbers of a plain device, and a letter is mended after a
weekend. So that nothing comes twice is decided here: by the letter, and by what copies of one
message share.

* Frames of agents: device, stream, epoch and numbers, which are never used again.
* Plain readings with `seq`: these and the bytes, within COPIES_APART_MS, for a plain counter starts
  again.
* Plain readings without: nothing; the letter itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from edgewake.cloud.bridge.admission.admit import admit
from edgewake.cloud.bridge.admission.catalogue import Catalogue
from edgewake.cloud.bridge.admission.envelope import Message
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.record import Discipline, Placement
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops.replay_row import ReplayRow, letter_key

COPIES_APART_MS: Final = 600_000
"""How much time may lie between copies of one message: a broker delivers it again when a bridge
died, a device asks again after a minute."""
REPLAYS_MAX: Final = 100_000
"""Rows remembered, about 500 bytes each. With more, nothing is given back until letters have aged
out and their rows with them."""
FORGOTTEN_AT_ONCE: Final = 100
"""Rows that one replay removes because their letters are gone."""


class FirstKept(NamedTuple):
    """The oldest letter that Kafka keeps."""

    offset: int
    received_at: int


@dataclass(frozen=True, slots=True)
class Replay:
    """A letter's readings, ready for their stream."""

    device: str
    stream: str
    value: bytes
    same: str
    """What copies of this message have in common; empty where they cannot be recognized."""
    is_unique: bool
    """Is `same` never used again, however late? Else within COPIES_APART_MS."""


def prepare(letter: DeadLetter, payload: bytes, row: Stream | None, *, now_ms: int) -> Replay:
    """`row`: the stream as the catalogue has it.

    Raises Rejected, NotNow or AwaitsCatalogueError, as the bridges would now.
    """
    topic = topics.parse_up(letter.topic)
    device, stream = topic.device, topic.stream
    catalogue = Catalogue(lambda: 0.0)
    if row is not None:
        catalogue.follow(stream, row.model_dump_json().encode())
    message = Message(
        letter.topic, payload, letter.content_type or None, response_topic=topics.ack(topic.sender)
    )
    admitted = admit(message, catalogue, received_at=letter.received_at)
    placement = Placement.decode(admitted.placement)
    if record.decode(admitted.value).frame.gap is not None:
        raise Rejected(
            RejectReason.SHAPE, "the letter states a loss and holds no reading: expected readings"
        )
    value = record.with_clocks(admitted.value, shift=0, kept_at=now_ms)
    return Replay(
        device,
        stream,
        value,
        _same(device, placement, payload),
        placement.discipline is Discipline.ORDERED,
    )


def _same(device: str, placement: Placement, payload: bytes) -> str:
    if placement.discipline is Discipline.FREE:
        return ""
    sender = f"{device} via {placement.via}" if placement.via else device
    line = f"{sender}|{placement.stream}|{placement.epoch}|{placement.first}|{placement.last}"
    return (
        line
        if placement.discipline is Discipline.ORDERED
        else f"{line}|{blake2b(payload, digest_size=12).hexdigest()}"
    )


class Replays:
    """The letters that were replayed, by what identifies them."""

    def __init__(self) -> None:
        self._rows: dict[str, ReplayRow] = {}
        self._same: dict[str, list[ReplayRow]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._rows)

    def change(self, key: str, value: bytes | None) -> None:
        """Take a row of `ew.replays` in. Raises ValueError for one that cannot be read."""
        after = None if value is None else ReplayRow.model_validate_json(value)
        before = self._rows.pop(key, None)
        if before is not None:
            rows = self._same[before.same]
            rows.remove(before)
            if not rows:
                del self._same[before.same]
        if after is not None:
            self._rows[key] = after
            self._same[after.same].append(after)

    def find(
        self, letter: int, letter_at: int, *, received_at: int, replay: Replay
    ) -> ReplayRow | None:
        """The row of this letter, or of another that holds a copy of the same message."""
        own = self._rows.get(letter_key(letter, letter_at))
        if own is not None or not replay.same:
            return own
        for row in self._same.get(replay.same, ()):
            if replay.is_unique or abs(row.received_at - received_at) <= COPIES_APART_MS:
                return row
        return None

    def outlived(self, first_kept: FirstKept) -> Iterable[ReplayRow]:
        """Rows whose letters are no longer retained, nor any copy of their messages."""
        gone = (
            row for row in self._rows.values()
            if row.letter < first_kept.offset
            and row.received_at < first_kept.received_at - COPIES_APART_MS
        )  # fmt: skip
        return list(islice(gone, FORGOTTEN_AT_ONCE))
