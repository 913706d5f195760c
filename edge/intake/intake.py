"""The border of the agent: checks what sources bring, once, and passes on readings.

A source that has many readings at once gives them all to `check_all`, which looks at whole columns.

A reading that is wrong (NaN, a bad field name, nested too deep, too large, NUL, …) is refused with
its reason, by the rules of `edgewake.protocol.frames.frame`, which the bridge applies too; all
others go on. What happens when the log's queue is full is the source's policy: it waits, or the
reading is dropped. What is refused or dropped is counted, and the log says so in a gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

import orjson

from edgewake.edge.intake.columnwise import bundle_of
from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.event_log import LogBusyError, StreamLog
from edgewake.edge.log.tables.bundle import Bundle
from edgewake.edge.log.tables.codec import Reading
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.event_time import CLOCK_SET_MS, TimeRule, of_plain, with_time
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.field_values import is_nothing
from edgewake.protocol.frames.frame import (
    READING_BYTES_MAX,
    STRING_CHARS_MAX,
    TIME_MS_MAX,
    Scalar,
    is_rounded,
    is_suspect,
    reading_of,
)
from edgewake.protocol.json_text import parse
from edgewake.protocol.names import THING, is_field

log = logging.getLogger("edgewake.intake")

SHAPES_MAX: Final = 1000
"""Sets of field names that are remembered as good. More: they are checked each time."""
SAY_EVERY: Final = 1000
"""A refusal is logged the first time and then once in this many of one reason; the count is exact
in the status."""
BUNDLE_MIN: Final = 8
"""Objects from which on looking at whole columns is cheaper than looking at each: it has a price of
its own."""
_NUMBER, _STRING, _BOOLEAN = FieldType.NUMBER, FieldType.STRING, FieldType.BOOLEAN
"""Looked at for each value."""
Shape: TypeAlias = tuple[FieldType | None, ...]


REMARKS_MAX: Final = 300
"""Different remarks that are counted: one for each field that a reading may have, and some. More
are counted as `others`."""


class LossReason(StrEnum):
    """Why a reading never came to the log; a word in the gap that says so."""

    QUEUE_FULL = "queue_full"
    REFUSED = "refused"
    STOPPED = "stopped"
    """The agent stopped while the queue was full, and nobody will read them again."""
    AWAY = "away"
    """Nobody listened, and what was missed is not sent again. How much it was nobody knows: it
    counts as one."""


class Sink(Protocol):
    """The port that takes checked readings."""

    async def room(self, *, promised: bool = False) -> None:
        """Wait until there is room, for what is promised, too."""

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        """Take readings like `put`, for a sender who will hear that they are kept.

        Raises LogBusyError also where they would be dropped.
        """

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        """Take readings, the source's position after them, and its losses before it by reason.

        Raises LogBusyError.
        """

    async def kept(self) -> None:
        """Wait until they are logged, where the source must not go on before."""

    async def durable(self) -> None:
        """Wait until everything put so far survives a crash.

        The stream's and the log's modes decide what that means.
        """

    def lose(self, count: int, reason: str) -> None:
        """Say that readings were lost."""

    def lose_these(self, readings: Sequence[Reading], reason: str) -> None:
        """Say that these were lost: a thing's loss is the thing's."""


class LogSink:
    """Mode `ack`: the event log."""

    def __init__(self, stream: StreamLog) -> None:
        self._stream = stream

    async def room(self, *, promised: bool = False) -> None:
        await self._stream.room(promised=promised)

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self._stream.append_all(readings, position=position, promised=True)

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        self._stream.append_all(readings, position=position, lost=lost)

    async def kept(self) -> None:
        await self._stream.kept()

    async def durable(self) -> None:
        await self._stream.durable()

    def lose(self, count: int, reason: str) -> None:
        self._stream.lose(count, reason)

    def lose_these(self, readings: Sequence[Reading], reason: str) -> None:
        self._stream.lose(len(readings), reason)


class OneWaySink:
    """Mode `one_way`: straight to the uplink's queue, which drops its oldest."""

    def __init__(
        self, send: Callable[[Sequence[Reading]], None], lose: Callable[[int, str], None]
    ) -> None:
        self._send = send
        self._lose = lose

    async def room(self, *, promised: bool = False) -> None:
        pass

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self.put(readings, position, {})

    def put(
        self,
        readings: Sequence[Reading],
        position: tuple[str, str] | None,  # noqa: ARG002
        lost: Mapping[str, int],
    ) -> None:
        self._send(readings)
        for reason, count in lost.items():
            self._lose(count, reason)

    async def kept(self) -> None:
        pass

    async def durable(self) -> None:
        pass

    def lose(self, count: int, reason: str) -> None:
        """The stream may lose readings, and says how many."""
        self._lose(count, reason)

    def lose_these(self, readings: Sequence[Reading], reason: str) -> None:
        self._lose(len(readings), reason)


class Intake:
    """One source's way in. All counts are since the start."""

    def __init__(
        self,
        name: str,
        sink: Sink,
        policy: Policy,
        clock: Clock,
        *,
        time: TimeRule = TimeRule(),  # noqa: B008  # frozen
        book: FieldBook | None = None,
        book_name: str = "",
        also: Callable[[Mapping[str, Scalar]], None] | None = None,
    ) -> None:
        """`time`: where a reading's time is; `also`: another check of its fields, raises Rejected.

        `book`: the stream's known fields, kept in the log as the position `book_name`, where it has
        one.
        """
        self.name = name
        self.policy = policy
        self.taken = 0
        self.dropped = 0
        self.turned_away = 0
        """Readings that their sender was told to send again: it has them still, so they are not
        lost."""
        self.refused: Counter[str] = Counter()
        self.remarks: Counter[str] = Counter()
        """Readings that were taken although something in them was odd, by what was done about
        it."""
        self._sink = sink
        self._clock = clock
        self._time = time
        self._also = also
        self._is_plain = also is None and not time.path
        """May a reading go the short way at once?"""
        self._book = FieldBook() if book is None else book
        self._book_name = book_name
        self._has_large = False
        """Has a number come that may be beyond 2^53?"""
        self._shapes: dict[tuple[str, ...], Shape] = {}
        """Names of fields that are known as good → their types."""
        self._shapes_of = self._book.version
        """The version of the book that `_shapes` are from."""

    def check_lines(self, lines: Sequence[bytes]) -> Sequence[Reading]:
        """`check_line` of each, in order, without those that are refused."""
        if (bundle := self.bundle_lines(lines)) is not None:
            return bundle
        return [reading for reading in map(self.check_line, lines) if reading is not None]

    def check_line(self, line: bytes) -> Reading | None:
        """A line of JSON as a reading; None where it is refused (and counted)."""
        if len(line) <= READING_BYTES_MAX:
            try:
                body = orjson.loads(line)
            except orjson.JSONDecodeError:
                return self.check_item(line)
            return self.check(body) if type(body) is dict else self.check_item(body)
        return self.check_item(line)

    def check_all(self, bodies: Sequence[Mapping[str, Any]]) -> Sequence[Reading]:
        """`check` of each, in order, without those that are refused."""
        if len(bodies) >= BUNDLE_MIN and (bundle := self.bundle(bodies)) is not None:
            return bundle
        return [reading for reading in map(self.check, bodies) if reading is not None]

    def bundle_lines(self, lines: Sequence[bytes]) -> Bundle | None:
        """Make a bundle of uniform lines of JSON without odd values.

        None: check them one by one.
        """
        if len(lines) < BUNDLE_MIN or max(map(len, lines)) > READING_BYTES_MAX:
            return None
        try:
            bodies = [orjson.loads(line) for line in lines]
        except orjson.JSONDecodeError:
            return None
        return self.bundle(bodies)

    def bundle(self, bodies: Sequence[Any]) -> Bundle | None:
        """Make a bundle of uniform objects without odd values; None: check them one by one."""
        if (
            len(bodies) < BUNDLE_MIN
            or self._also is not None
            or self._time.path
            or set(map(type, bodies)) != {dict}
        ):
            return None
        names = tuple(bodies[0])
        shape = self._shape(names)
        if shape is None:
            return None
        large: list[str] = []
        bundle = bundle_of(bodies, names, self._now_ms(), large=large)
        if bundle is None or not self._has_types(bundle, shape):
            return None
        for name in large:
            self._note_rounded({name: bundle.columns[bundle.names.index(name)]})
        if "t" not in names:
            self._book.arrived += len(bodies)
        return bundle

    def _has_types(self, bundle: Bundle, shape: Shape) -> bool:
        """Has each column the type of its field? It is from now on where none was known."""
        new: dict[str, FieldType] = {}
        for name, known, found in zip(bundle.names, shape, bundle.types, strict=True):
            if known is None and found is not None:
                new[name] = found
            elif found is not None and found is not known:
                return False
        if not new:
            return True
        for name, column in zip(bundle.names, bundle.columns, strict=True):
            if new.get(name) is _STRING and any(map(is_nothing, column)):
                return False
        for name, found in new.items():
            self._book.learn(name, found)
        return True

    def check(self, body: Mapping[str, Any]) -> Reading | None:
        """An object as a reading; None where it is refused (and counted).

        `t` is now where it is missing.
        """
        reading = self._check_plain(body) if self._is_plain else None
        return self.check_item(body) if reading is None else reading

    def check_item(self, item: Any) -> Reading | None:
        """An object, or a line of JSON, as a reading; None where it is refused (and counted)."""
        try:
            return self.reading(item)
        except Rejected as error:
            self.refuse(error.reason, error.detail, thing=_thing_in(item))
            return None

    def reading(self, item: Any) -> Reading:
        """`check_item` for who counts what is refused by itself. Raises Rejected."""
        body = _parsed(item) if isinstance(item, bytes) else item
        if not isinstance(body, Mapping):
            raise Rejected(
                RejectReason.SHAPE, f"expected a JSON object, found {type(body).__name__}"
            )
        if self._time.path:
            body = with_time(body, self._time, self.remark, self._book.timed)
        reading = self._check_plain(body)
        if reading is None:
            reading = self._check_at_length(
                body
                if self._time.path
                else with_time(body, self._time, self.remark, self._book.timed)
            )
        if self._also is not None:
            self._also(reading[1])
        return reading

    def _check_at_length(self, body: Mapping[str, Any]) -> Reading:
        t, fields = reading_of(body, now_ms=self._now_ms(), names=self._book.names)
        if (
            sum(len(value) for value in fields.values() if isinstance(value, str))
            > READING_BYTES_MAX
        ):
            raise Rejected(RejectReason.OVERSIZE, f"expected at most {READING_BYTES_MAX} bytes")
        if of_plain(body.get("t")) is None:
            self._book.arrived += 1
        if self._also is not None:  # its fields are given
            return t, fields
        fields, odd = self._book.sound(fields)
        for name in odd:
            self.remark(f"odd in {name}")
        self._note_rounded({name: (value,) for name, value in fields.items()})
        return t, fields

    def _note_rounded(self, columns: Mapping[str, Sequence[Scalar]]) -> None:
        """Remark whole numbers that keep their digits here, and lose them in SQL and the lake."""
        for name, column in columns.items():
            if count := sum(map(is_rounded, column)):
                self.remark(f"whole numbers beyond 2^53 in {name}: SQL rounds them", count)

    def _check_plain(self, body: Mapping[str, Any]) -> Reading | None:
        """Check flat values with known names quickly; None: the full check says what is wrong."""
        names = tuple(body)
        shape = self._shapes.get(names) if self._shapes_of == self._book.version else None
        if shape is None and (shape := self._shape(names)) is None:
            return None
        fields: dict[str, Scalar] = dict(body)
        t = fields.pop("t") if "t" in fields else self._now_ms()
        if type(t) is not int or not CLOCK_SET_MS <= t <= TIME_MS_MAX:
            return None
        chars = 0
        for value, expected in zip(fields.values(), shape, strict=False):
            kind = type(value)
            if kind is float or kind is int:
                if expected is not _NUMBER or not (
                    -9e15 < value < 9e15 or self._is_large(value)  # type: ignore[operator, arg-type]
                ):
                    return None
            elif kind is str:
                chars += len(value)  # type: ignore[arg-type]
                if expected is not _STRING or chars > STRING_CHARS_MAX or is_suspect(value):  # type: ignore[arg-type]
                    return None
            elif value is not None and not (kind is bool and expected is _BOOLEAN):
                return None
        if len(fields) == len(names):
            self._book.arrived += 1
        if self._has_large:
            self._has_large = False
            self._note_rounded({name: (value,) for name, value in fields.items()})
        return t, fields

    def _is_large(self, value: float) -> bool:
        """Is a number that may be rounded elsewhere sound here? Then it is looked at once more."""
        self._has_large = True
        return -9e18 < value < 9e18

    def _now_ms(self) -> int:
        """The time now, within valid bounds: a clock that is far off must not stop the device."""
        return min(max(0, self._clock.now_ms()), TIME_MS_MAX)

    def _shape(self, names: tuple[str, ...]) -> Shape | None:
        """The types of these fields, without `t`; None: the full check says what is wrong."""
        if self._shapes_of != self._book.version:
            self._shapes, self._shapes_of = {}, self._book.version
        found = self._shapes.get(names)
        return self._learn(names) if found is None else found

    def _learn(self, names: tuple[str, ...]) -> Shape | None:
        if (
            not names
            or names == ("t",)
            or not all(name == "t" or (isinstance(name, str) and is_field(name)) for name in names)
        ):
            return None
        fields = [name for name in names if name != "t"]
        if len(names) > 200 or not all(map(self._book.is_own, fields)):
            return None
        shape = self._book.kinds(fields)
        if shape is not None and len(self._shapes) < SHAPES_MAX:
            self._shapes[names] = shape
        return shape

    def refuse(
        self, reason: RejectReason, detail: str, count: int = 1, *, thing: Scalar = None
    ) -> None:
        """Count refusals and say it; the loss is that thing's, where one is named."""
        before = self.refused[reason.value]
        self.refused[reason.value] += count
        if thing is None:
            self._sink.lose(count, LossReason.REFUSED)
        else:
            self._sink.lose_these([(0, {THING: thing})] * count, LossReason.REFUSED)
        if before == 0 or before // SAY_EVERY != (before + count) // SAY_EVERY:
            log.warning(
                "%s: refused (%s): %s", self.name, reason.value, detail,
                extra={"event": "intake.refused", "source": self.name, "reason": reason.value,
                    "count": before + count},
            )  # fmt: skip

    def remark(self, what: str, count: int = 1) -> None:
        """Count a remark about what comes, and log it the first time."""
        if what not in self.remarks and len(self.remarks) >= REMARKS_MAX:
            what = "others"
        if what not in self.remarks:
            log.warning(
                "%s: %s",
                self.name,
                what,
                extra={"event": "intake.remark", "source": self.name, "remark": what},
            )
        self.remarks[what] += count

    def miss(self, what: str) -> None:
        """Say that something is missing for good, and nobody knows how much: a loss of one."""
        self.remark(what)
        self._sink.lose(1, LossReason.AWAY)

    async def put(
        self,
        readings: Sequence[Reading],
        *,
        position: tuple[str, str] | None = None,
        lost: Mapping[str, int] | None = None,
    ) -> bool:
        """Pass on checked readings and the source's position; False: dropped by its policy.

        `lost`: how many readings before that position are permanently lost, by reason. It goes with
        the position; where that is dropped, it is reported alone.
        """
        if not readings and position is None:
            return True
        while True:
            try:
                self._keep_book()
                self._sink.put(readings, position, lost or {})
            except LogBusyError:
                if self.policy is Policy.DROP_NEWEST:
                    self._drop(readings)
                    for reason, count in (lost or {}).items():
                        self._sink.lose(count, reason)
                    return False
                await self._room(readings, position)
            else:
                self.taken += len(readings)
                await self._sink.kept()
                return True

    def offer(
        self, readings: Sequence[Reading], *, position: tuple[str, str] | None = None
    ) -> bool:
        """Pass on checked readings for a sender who gets an answer: all now, or none. Never waits.

        Returns False without room. Then nothing is kept here and nothing is reported as lost: the
        sender has the readings.
        """
        if not readings and position is None:
            return True
        try:
            self._keep_book()
            self._sink.offer(readings, position)
        except LogBusyError:
            return False
        self.taken += len(readings)
        return True

    async def room(self) -> None:
        """Wait until `offer` may have room."""
        await self._sink.room(promised=True)

    async def durable(self) -> None:
        """Wait until everything put so far survives a crash.

        Only then acknowledge to the sender.
        """
        await self._sink.durable()

    async def _room(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        """Wait until there is room.

        When the source ends meanwhile: without a position nobody reads these again.
        """
        try:
            await self._sink.room()
        except asyncio.CancelledError:
            if position is None:
                self.put_last(readings)
            raise

    def put_last(self, readings: Sequence[Reading]) -> None:
        """Pass on what was read when the source ends, or say that it is lost. Never waits."""
        if not readings:
            return
        try:
            self._keep_book()
            self._sink.put(readings, None, {})
        except LogBusyError:
            self._sink.lose_these(readings, LossReason.STOPPED)
            self.dropped += len(readings)
        else:
            self.taken += len(readings)

    def _keep_book(self) -> None:
        """Names and types before the readings that have them. Raises LogBusyError."""
        if self._book_name and self._book.has_news:
            self._sink.put((), (self._book_name, self._book.encode()), {})
            self._book.kept()

    def _drop(self, readings: Sequence[Reading]) -> None:
        count = len(readings)
        if self.dropped == 0 or self.dropped // SAY_EVERY != (self.dropped + count) // SAY_EVERY:
            log.error(
                "%s: the log's queue is full, readings are dropped",
                self.name,
                extra={"event": "intake.dropped", "source": self.name},
            )
        self.dropped += count
        self._sink.lose_these(readings, LossReason.QUEUE_FULL)

    def note_units(self, units: Mapping[str, str], stream: str = "") -> None:
        """Remember what is known of fields' units. `units`: path → unit. See `note_words`."""
        if units:
            self.note_words({path: {"unit": unit} for path, unit in units.items()}, stream)

    def note_words(
        self,
        words: Mapping[str, Mapping[str, str]],
        stream: str = "",  # noqa: ARG002
    ) -> None:
        """Remember what is known of fields. `words`: path → its `unit`, `label`, `classes`.

        `stream`: the one whose fields they are, where the source gives several.
        """
        self._book.note(words)

    def counts(self) -> dict[str, Any]:
        """The counts for the status."""
        said: dict[str, Any] = {
            "taken": self.taken,
            "dropped": self.dropped,
            "turned_away": self.turned_away,
        }
        return said | {
            "refused": dict(self.refused),
            "remarks": dict(self.remarks),
            "names": self._book.renamed(),
        }


def _thing_in(item: Any) -> Scalar:
    """What a reading that is refused says of itself; None where it cannot be told."""
    try:
        body = _parsed(item) if isinstance(item, bytes) else item
    except Rejected:
        return None
    thing = body.get(THING) if isinstance(body, Mapping) else None
    return thing if isinstance(thing, str | int | float) else None


def _parsed(line: bytes) -> Any:
    """Raises Rejected."""
    if len(line) > READING_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE, f"{len(line)} bytes: expected at most {READING_BYTES_MAX}"
        )
    try:
        return parse(line)
    except orjson.JSONDecodeError as error:
        raise Rejected(RejectReason.JSON, f"not JSON: {error}") from error
