"""Decides how a dead letter is replayed to its stream, and whether it was replayed before. No I/O.

The bridges' own check decides: what they would still refuse stays a letter. What passes goes to its
stream past the sequencer, marked late. The sequencer could not distinguish it from a repeat: it
remembers open holes for a day and the last thousand numbers of a plain device, while a letter may
be corrected days later. So duplicates are prevented here, by the letter and by what copies of one
message share. Values are read by the types that an operator has decided meanwhile.

* Frames of agents: device, stream, epoch and numbers, which are never used again.
* Plain readings with `seq`: these and the bytes, within COPIES_APART_MS, for a plain counter starts
  again.
* Plain readings without: nothing; the letter itself.
* Readings of a frame that were set aside, of which only the wrong values come back: the bytes,
  within the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

import orjson

from edgewake.cloud.bridge.admission.admit import admit
from edgewake.cloud.bridge.admission.catalogue import AwaitsCatalogueError, Catalogue
from edgewake.cloud.bridge.admission.envelope import Message
from edgewake.cloud.bridge.admission.items import fields_aside
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.field_names import ODD
from edgewake.protocol.frames.record import Discipline, Placement
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops.replay_row import ReplayRow, letter_key

COPIES_APART_MS: Final = 600_000
"""The longest time between copies of one message: a broker redelivers it when a bridge died, a
device retries after a minute."""
REPLAYS_MAX: Final = 100_000
"""The most rows, about 500 bytes each. At the bound nothing is replayed until letters have expired
and their rows with them."""
FORGOTTEN_AT_ONCE: Final = 100
"""The most rows that one replay removes because their letters have expired."""


class FirstKept(NamedTuple):
    """The oldest letter that Kafka retains."""

    offset: int
    received_at: int


@dataclass(frozen=True, slots=True)
class Replay:
    """A letter's readings, encoded for their stream."""

    device: str
    stream: str
    value: bytes
    same: str
    """A key that copies of this message share; empty where copies cannot be recognized."""
    is_unique: bool
    """Whether `same` is unique for ever; if not, it is within COPIES_APART_MS."""
    learns: Stream | None = None
    """The stream's row with the fields for the texts of odd values, where these are new to it."""


def prepare(letter: DeadLetter, payload: bytes, row: Stream | None, *, now_ms: int) -> Replay:
    """Checks and encodes a letter; `row` is its stream in the catalogue.

    Raises Rejected, NotNow or AwaitsCatalogueError, as the bridges would now.
    """
    topic = topics.parse_up(letter.topic)
    device, stream = topic.device, topic.stream
    wrong = fields_aside(letter.detail)
    sent = payload if wrong is None else _only(payload, wrong)
    catalogue = Catalogue(lambda: 0.0, reads_by_decision=True)
    if row is not None:
        catalogue.follow(stream, row.model_dump_json().encode())
    message = Message(
        letter.topic, sent, letter.content_type or None, response_topic=topics.ack(topic.sender)
    )
    learns = None
    try:
        admitted = admit(message, catalogue, received_at=letter.received_at)
    except AwaitsCatalogueError:
        learns = _with_texts(row, catalogue)
        if learns is None:
            raise
        catalogue.follow(stream, learns.model_dump_json().encode())
        admitted = admit(message, catalogue, received_at=letter.received_at)
    if admitted.aside:  # it would be replayed without what could not stand anywhere
        raise Rejected(RejectReason.FIELD_TYPE, admitted.aside[0].detail)
    placement = Placement.decode(admitted.placement)
    if record.decode(admitted.value).frame.gap is not None:
        raise Rejected(
            RejectReason.SHAPE, "the letter reports a loss and has no readings: expected readings"
        )
    value = record.with_clocks(admitted.value, shift=0, kept_at=now_ms)
    same = _same(device, placement, payload)
    return Replay(
        device,
        stream,
        value,
        same or ("" if wrong is None else f"{device}|{stream}|aside|{_digest(payload)}"),
        placement.discipline is Discipline.ORDERED,
        learns,
    )


def _with_texts(row: Stream | None, catalogue: Catalogue) -> Stream | None:
    """The row that a letter needs, where it lacks nothing but texts of odd values."""
    (wanted,) = catalogue.unpublished()
    known = set() if row is None else row.fields.keys()
    new = wanted.fields.keys() - known
    return wanted if all(name.removesuffix(ODD) in known - {name} for name in new) else None


def _same(device: str, placement: Placement, payload: bytes) -> str:
    if placement.discipline is Discipline.FREE:
        return ""
    sender = f"{device} via {placement.via}" if placement.via else device
    line = f"{sender}|{placement.stream}|{placement.epoch}|{placement.first}|{placement.last}"
    return line if placement.discipline is Discipline.ORDERED else f"{line}|{_digest(payload)}"


def _digest(payload: bytes) -> str:
    return blake2b(payload, digest_size=12).hexdigest()


def _only(payload: bytes, names: Container[str]) -> bytes:
    """A reading without the fields that are on its stream already, with its frame."""
    try:
        body = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return payload  # mended badly, and refused for it
    if not isinstance(body, dict):
        return payload
    return orjson.dumps(
        {name: value for name, value in body.items() if name == "t" or name in names}
    )


class Replays:
    """The letters that were replayed."""

    def __init__(self) -> None:
        self._rows: dict[str, ReplayRow] = {}
        self._same: dict[str, list[ReplayRow]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._rows)

    def change(self, key: str, value: bytes | None) -> None:
        """Applies a row of `ew.replays`. Raises ValueError for an invalid one."""
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
        """Finds the row of this letter, or of another letter with a copy of the same message."""
        own = self._rows.get(letter_key(letter, letter_at))
        if own is not None or not replay.same:
            return own
        for row in self._same.get(replay.same, ()):
            if replay.is_unique or abs(row.received_at - received_at) <= COPIES_APART_MS:
                return row
        return None

    def outlived(self, first_kept: FirstKept) -> Iterable[ReplayRow]:
        """Returns rows whose letters, and copies of these, have all expired."""
        gone = (
            row for row in self._rows.values()
            if row.letter < first_kept.offset
            and row.received_at < first_kept.received_at - COPIES_APART_MS
        )  # fmt: skip
        return list(islice(gone, FORGOTTEN_AT_ONCE))
