"""Dead letters, newest first.

Kafka returns headers only together with the payload, which may be a MiB. So each letter is read
once: an index keeps what its headers say, and later lists ask Kafka only for letters that the index
lacks.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Final, NamedTuple

from confluent_kafka import Message
from pydantic import BaseModel, ValidationError

from edgewake.cloud.ops.letters.letter_replay import FirstKept
from edgewake.cloud.ops.letters.letter_replayer import Letter
from edgewake.cloud.ops.lookups.kafka_lookup import DeadlinePassed, KafkaSession
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason, RemoteError, Unavailable
from edgewake.protocol.frames import frame, packed
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.frame import FRAME_ZSTD_TYPE
from edgewake.protocol.frames.packed import PACKED_TYPE

SCANNED_MAX: Final = 5000
"""The most letters scanned for one page; where a filter finds fewer than asked for, `next`
continues there."""
CHUNKS: Final = (20, 500)
"""The first and the largest number of letters read at once, backwards. Each chunk is twice the
previous one."""
INDEX_MAX: Final = 20_000
"""The most letters in the index, about 700 bytes each; the earliest indexed are dropped."""
PREVIEW_CHARS: Final = 200
HOUR_MS: Final = 3_600_000


class DeadLetterView(BaseModel):
    """A refused message, without its payload."""

    offset: int
    device: str
    reason: str
    detail: str
    topic: str
    part: str
    received_at: int
    content_type: str
    bytes: int
    preview: str
    """The first 200 characters of the payload, of an agent's frame as JSON; what is not UTF-8 is
    replaced."""


class DeadLetterPage(BaseModel):
    """A page of dead letters, newest first."""

    items: list[DeadLetterView]
    next: int | None
    """`before` of the next page; null at the oldest."""
    complete: bool
    """False where Kafka was too slow to fill this page within the request's time. No letter is
    skipped: `next` continues where it ended."""
    kept: int
    """An upper bound of the letters in Kafka: it counts offsets without a record, too."""


class LettersOfHour(BaseModel):
    """How many letters came in one hour, by reason."""

    at: int
    """When the hour began, ms since 1970 UTC."""
    reasons: dict[str, int]


class LetterCounts(BaseModel):
    """Letters by hour, oldest first; hours without letters are omitted."""

    hours: list[LettersOfHour]
    letters: int
    """How many letters were counted."""
    newest: int
    """The offset after the newest counted letter."""
    is_cut: bool
    """Whether older letters exist that were not scanned."""


class Filter(NamedTuple):
    """A filter of letters; None matches any."""

    reason: RejectReason | None = None
    device: str | None = None

    def allows(self, letter: DeadLetterView) -> bool:
        """Returns whether a letter matches."""
        return (self.reason is None or letter.reason == self.reason) and (
            self.device is None or letter.device == self.device
        )


class DeadLetterIndex:
    """Offset → letter, or None for an offset without a letter. Thread-safe."""

    def __init__(self) -> None:
        self._letters: dict[int, DeadLetterView | None] = {}
        self._lock = threading.Lock()

    def add(self, message: Message) -> DeadLetterView:
        """Indexes a letter that was read."""
        letter = view(message)
        self._put(letter.offset, letter)
        return letter

    def get(self, session: KafkaSession, first: int, end: int) -> list[DeadLetterView]:
        """Returns the letters from `first` to before `end`, reading those not indexed from Kafka.

        Raises DeadlinePassed; letters read until then are indexed.
        """
        while missing := self._missing(first, end):
            position = missing[0]
            for message in session.read(topics.DEAD, 0, position, missing[1]):
                self._put_empty(position, message.offset())
                self.add(message)
                position = message.offset() + 1
            self._put_empty(position, missing[1])
        with self._lock:
            found = [self._letters.get(offset) for offset in range(first, end)]
        return [letter for letter in found if letter is not None]

    def forget_from(self, offset: int) -> None:
        """Forgets letters from `offset` on, where the topic ends now.

        They belong to an earlier topic of that name.
        """
        with self._lock:
            if any(indexed >= offset for indexed in self._letters):
                self._letters.clear()

    def _missing(self, first: int, end: int) -> tuple[int, int] | None:
        with self._lock:
            missing = [offset for offset in range(first, end) if offset not in self._letters]
        return (missing[0], missing[-1] + 1) if missing else None

    def _put_empty(self, first: int, end: int) -> None:
        for offset in range(first, end):
            self._put(offset, None)

    def _put(self, offset: int, letter: DeadLetterView | None) -> None:
        with self._lock:
            self._letters.pop(offset, None)
            self._letters[offset] = letter
            while len(self._letters) > INDEX_MAX:
                del self._letters[next(iter(self._letters))]


def page(
    session: KafkaSession, index: DeadLetterIndex, *, before: int | None, limit: int, wanted: Filter
) -> DeadLetterPage:
    """Returns up to `limit` matching letters below offset `before`.

    Raises Unavailable where Kafka returned not a single letter in time.
    """
    low, high = session.range(topics.DEAD, 0)
    index.forget_from(high)
    end = high if before is None else max(low, min(high, before))
    stop, chunk = max(low, end - SCANNED_MAX), CHUNKS[0]
    found: list[DeadLetterView] = []
    complete = True
    while end > stop and len(found) < limit:
        first = max(stop, end - chunk)
        try:
            letters = index.get(session, first, end)
        except DeadlinePassed as passed:
            if passed.offset == first and end == (before or high):
                raise Unavailable("Kafka gave no dead letter in time") from passed
            complete = False
            break
        matching = [letter for letter in reversed(letters) if wanted.allows(letter)]
        room = limit - len(found)
        found += matching[:room]
        end = found[-1].offset if len(matching) > room else first
        chunk = min(2 * chunk, CHUNKS[1])
    return DeadLetterPage(
        items=found, next=end if end > low else None, complete=complete, kept=high - low
    )


def counts(
    session: KafkaSession, index: DeadLetterIndex, *, since: int, wanted: Filter
) -> LetterCounts:
    """Counts the matching letters since a time, among the newest SCANNED_MAX."""
    low, high = session.range(topics.DEAD, 0)
    index.forget_from(high)
    stop = max(low, high - SCANNED_MAX)
    end, chunk, counted = high, CHUNKS[0], 0
    hours: dict[int, Counter[str]] = {}
    while end > stop:
        first = max(stop, end - chunk)
        try:
            letters = index.get(session, first, end)
        except DeadlinePassed:
            return _counted(hours, counted, high, is_cut=True)
        recent = [letter for letter in letters if letter.received_at >= since]
        for letter in filter(wanted.allows, recent):
            counted += 1
            hour = letter.received_at - letter.received_at % HOUR_MS
            hours.setdefault(hour, Counter())[letter.reason] += 1
        if letters and not recent:
            return _counted(hours, counted, high, is_cut=False)
        end, chunk = first, min(2 * chunk, CHUNKS[1])
    return _counted(hours, counted, high, is_cut=stop > low)


def _counted(
    hours: dict[int, Counter[str]], counted: int, newest: int, *, is_cut: bool
) -> LetterCounts:
    rows = [LettersOfHour(at=at, reasons=dict(found)) for at, found in sorted(hours.items())]
    return LetterCounts(hours=rows, letters=counted, newest=newest, is_cut=is_cut)


def ahead(
    session: KafkaSession,
    index: DeadLetterIndex,
    *,
    first: int,
    before: int,
    limit: int,
    wanted: Filter,
) -> tuple[list[int], int | None]:
    """Returns offsets of up to `limit` matching letters from `first` on, and where to continue.

    The offsets are sorted, oldest first. At most SCANNED_MAX letters are scanned; None: no letters
    follow. Raises Unavailable where Kafka returned not a single letter in time.
    """
    low, high = session.range(topics.DEAD, 0)
    index.forget_from(high)
    begin, end = max(low, first), min(high, before)
    stop = min(end, begin + SCANNED_MAX)
    found: list[int] = []
    while begin < stop and len(found) < limit:
        until = min(stop, begin + CHUNKS[1])
        try:
            letters = index.get(session, begin, until)
        except DeadlinePassed as passed:
            if not found and passed.offset <= max(low, first):
                raise Unavailable("Kafka gave no dead letter in time") from passed
            return found, begin
        matching = [letter.offset for letter in letters if wanted.allows(letter)]
        room = limit - len(found)
        found += matching[:room]
        begin = found[-1] + 1 if len(matching) >= room else until
    return found, begin if begin < end else None


def view(message: Message) -> DeadLetterView:
    """Makes the view of a letter."""
    value = message.value() or b""
    try:
        why: dict[str, Any] = DeadLetter.from_headers(message.headers() or ()).model_dump()
    except ValidationError:  # A record that no bridge wrote is shown all the same.
        why = {
            "reason": "unknown",
            "detail": "",
            "topic": "",
            "part": "",
            "received_at": message.timestamp()[1],
            "content_type": "",
        }
    return DeadLetterView(
        offset=message.offset(),
        device=(message.key() or b"").decode("utf-8", "replace"),
        bytes=len(value),
        preview=preview_of(value, str(why["content_type"] or "")),
        **why,
    )


def preview_of(value: bytes, content_type: str) -> str:
    """Returns the first characters of a payload; an intact frame of an agent as JSON."""
    text = value
    try:
        if content_type == PACKED_TYPE:
            text = frame.encode(packed.unpack(value)[0])
        elif content_type == FRAME_ZSTD_TYPE:
            text = frame.inflate(value)
    except Rejected:
        text = value
    return text[: PREVIEW_CHARS * 4].decode("utf-8", "replace")[:PREVIEW_CHARS]


def payload(session: KafkaSession, offset: int) -> tuple[bytes, DeadLetterView]:
    """Reads a letter with its payload. Raises OutOfRange."""
    message = session.record(topics.DEAD, 0, offset)
    return message.value() or b"", view(message)


def for_replay(session: KafkaSession, offset: int) -> tuple[DeadLetter, bytes, Letter]:
    """Reads a letter with its origin and payload.

    Raises OutOfRange, RemoteError (no bridge wrote it), DeadlinePassed or Unavailable.
    """
    message = session.record(topics.DEAD, 0, offset)
    try:
        origin = DeadLetter.from_headers(message.headers() or ())
    except ValidationError as error:
        raise RemoteError(f"dead letter {offset} does not name its origin") from error
    low, high = session.range(topics.DEAD, 0)
    first = next(session.read(topics.DEAD, 0, low, high), message)
    first_kept = FirstKept(first.offset(), view(first).received_at)
    return (
        origin,
        message.value() or b"",
        Letter(offset, message.timestamp()[1], origin.received_at, first_kept),
    )
