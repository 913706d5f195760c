"""Configuration of processors: what each kind takes, checked once; the expressions in it too."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.processors.aggregates import AGGREGATES
from edgewake.protocol.names import FIELD_CHARS_MAX, is_field, is_stream
from edgewake.protocol.plain import Check, ConfigTable, Length, TaggedBy, key
from edgewake.protocol.sketches import seen

FIELDS_MAX: Final = 32
"""Fields that one processor works on: each has a state. More are refused."""
PANES_MAX: Final = 100
"""Panes of a sliding window, its size divided by its step: they are the state, which is written at
every commit. More are refused."""
PROCESSORS_MAX: Final = 20
"""Processors in a chain: what each reading passes. More are refused."""
SEQUENCE_MAX: Final = 16
"""Conditions of a pattern. More are refused."""
AggregateName = Literal["count", "mean", "sum", "min", "max", "range", "first", "last", "stddev"]
"""The names of AGGREGATES, for types must be written out."""
assert set(AggregateName.__args__) == set(AGGREGATES)  # type: ignore[attr-defined]


def _field(name: str) -> str:
    if not is_field(name):
        raise ValueError(
            "expected 1-64 of A-Z a-z 0-9 _, no digit first, and no name of the envelope (t, seq, "
            "device, …)"
        )
    return name


def _stream(name: str) -> str:
    if not is_stream(name):
        raise ValueError("expected 1-64 of a-z 0-9 _, a letter first")
    return name


def _expression(text: str) -> str:
    # A device that processes nothing needs none.
    from edgewake.edge.processors.expression import parse

    parse(text)
    return text


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Different fields that something is counted of. Raises ValueError."""
    if len(set(names)) < len(names):
        raise ValueError("expected each field once: its values would count twice")
    return names


EXPLODED_MAX: Final = 256
"""Readings that one list becomes; the items after them are left out, and that is counted."""
FieldName = Annotated[str, Check(_field)]
StreamName = Annotated[str, Check(_stream)]
ExpressionText = Annotated[str, Check(_expression)]
FieldNames = Annotated[tuple[FieldName, ...], Length(1, FIELDS_MAX), Check(distinct)]
"""Fields that something is counted of, each once."""


class ProcessorConfig(ConfigTable):
    """The keys that every processor has."""

    @property
    def behind_s(self) -> float:
        """How old a result may be at birth: seconds from its time to its last reading."""
        return 0.0


class StatefulConfig(ProcessorConfig):
    """What every processor with a state has."""

    by: FieldName | None = None
    """A field for each of whose values the processor has a state of its own, such as the vehicle's
    name on a gateway. None: one state for all."""
    keys_max: int = key(default=100, ge=1, le=10_000)
    """Values of `by` that are remembered; beyond, the state of the one unused longest is given up,
    counted. Each is in the state, which is written at every commit."""


class FilterConfig(ProcessorConfig):
    """Readings for which a condition is true go on."""

    type: Literal["filter"]
    where: ExpressionText
    """The condition, e.g. `speed_kmh > 3 AND NOT (gear = 'P')`. One that is neither true nor false,
    for a field is missing, holds the reading back."""


class SelectConfig(ProcessorConfig):
    """Fields are kept, left out, or get other names."""

    type: Literal["select"]
    keep: tuple[FieldName, ...] = ()
    """Fields that are kept; none: all."""
    drop: tuple[FieldName, ...] = ()
    """Fields that are left out."""
    rename: dict[FieldName, FieldName] = key(default_factory=dict)
    """Old name → new name."""

    def __post_init__(self) -> None:
        if self.keep and self.drop:
            raise ValueError("expected either keep or drop")
        if len(set(self.rename.values())) < len(self.rename):
            raise ValueError("rename: two fields get one name")


class ExplodeConfig(ProcessorConfig):
    """A list becomes a reading for each of its items."""

    type: Literal["explode"]
    field: FieldName
    """The list."""
    into: FieldName | None = None
    """Field of an item, and how fields of an item that is an object begin; none: as the list."""
    position: FieldName | None = None
    """Field with the place of the item in its list, from 0; none: it is not kept."""

    def __post_init__(self) -> None:
        if self.position is not None and self.position == (self.into or self.field):
            raise ValueError("position: expected another name than that of the item")


class UnitChange(ConfigTable):
    """The unit that a field has and the one that it gets, as UCUM symbols."""

    unit: str
    """It has, e.g. `km/h`."""
    to: str
    """It gets, e.g. `m/s`; of the same dimension."""

    def __post_init__(self) -> None:
        from edgewake.edge.processors.units import check_change

        check_change(self.unit, self.to)


class UnitsConfig(ProcessorConfig):
    """Numbers in other units, under the same names."""

    type: Literal["units"]
    fields: Annotated[dict[FieldName, UnitChange], Length(1, FIELDS_MAX)]
    """Field → its unit and the one it gets, e.g. `{ speed = { unit = "km/h", to = "m/s" } }`."""


class DeriveConfig(ProcessorConfig):
    """New fields from expressions over those that are there."""

    type: Literal["derive"]
    fields: Annotated[dict[FieldName, ExpressionText], Length(1, FIELDS_MAX)]
    """New field → expression; none sees another's result. Without a value it is null."""


class DeadbandConfig(StatefulConfig):
    """A reading goes on when it differs enough from the last that went on."""

    type: Literal["deadband"]
    fields: Annotated[tuple[FieldName, ...], Length(0, FIELDS_MAX)] = ()
    """Fields that are compared; none: all."""
    delta: float = key(default=0.0, ge=0, allow_inf_nan=False)
    """What a number must differ by more than, in its unit."""
    percent: float = key(default=0.0, ge=0, le=1000)
    """And in percent of its last value."""
    max_s: float | None = key(default=None, gt=0)
    """Seconds of event time after which one goes on in any case; none: never."""


class RateConfig(StatefulConfig):
    """The growth of a field, as a field beside the others."""

    type: Literal["rate"]
    field: FieldName
    """The field."""
    name: FieldName | None = None
    """The new field; none: `<field>_rate`."""
    per_s: float = key(default=1.0, gt=0, le=86400)
    """Seconds that the rate is over: 3600 for per hour."""
    counter: bool = False
    """It only grows: where it falls it has started again, and the rate is null."""

    def __post_init__(self) -> None:
        if self.name is None:
            _check_made(f"{self.field}_rate")


class SmoothConfig(StatefulConfig):
    """Noise taken out, under the same name."""

    type: Literal["smooth"]
    fields: FieldNames
    """The fields."""
    method: Literal["exponential", "mean", "median"] = "exponential"
    """exponential: weights halve with event time; mean, median: of the last values."""
    half_life_s: float = key(default=10.0, gt=0, le=86400)
    """exponential: seconds after which a value counts half."""
    count: int = key(default=5, ge=2, le=100)
    """mean, median: how many last values."""


class DownsampleConfig(StatefulConfig):
    """One reading for each interval of event time, with an aggregate of each field.

    It is the mean or another one, under the field's own name.
    """

    type: Literal["downsample"]
    fields: FieldNames
    """The fields; others are left out."""
    every_s: float = key(ge=0.01, le=86400)
    """Seconds of event time that become one reading, with the time of their start."""
    aggregate: AggregateName = "mean"
    """What becomes of each field."""
    grace_s: float = key(default=0.0, ge=0, le=86400)
    """Seconds that a stretch waits for readings that come out of order; later ones are left out,
    counted."""

    def __post_init__(self) -> None:
        if self.by in self.fields:
            raise ValueError(
                f"fields: {self.by!r} is the field of `by`, which is there in any case: "
                "expected without it"
            )
        _check_grace(self.grace_s, self.every_s)

    @property
    def behind_s(self) -> float:
        """It waits for the end of its stretch, and is stamped with the start."""
        return self.every_s + self.grace_s


class LttbConfig(StatefulConfig):
    """One reading of each interval of event time, the one that keeps the curve's shape.

    The method is largest triangle three buckets.
    """

    type: Literal["lttb"]
    field: FieldName
    """The field whose curve is kept; the chosen readings have all their fields."""
    every_s: float = key(ge=0.01, le=86400)
    """Seconds of event time of which one reading goes on."""

    @property
    def behind_s(self) -> float:
        """What goes on is chosen when the next stretch is over."""
        return 2 * self.every_s


class WindowConfig(StatefulConfig):
    """Aggregates over tumbling or sliding windows, by event time or by count."""

    type: Literal["window"]
    fields: FieldNames
    """The fields that are aggregated, as `<field>_<aggregate>`; `readings` counts the window's
    readings."""
    aggregates: Annotated[tuple[AggregateName, ...], Length(1)] = ("mean", "min", "max")
    """What becomes of each field."""
    size_s: float | None = key(default=None, ge=0.01, le=7 * 86400)
    """Seconds of event time of a window."""
    every_s: float | None = key(default=None, ge=0.01, le=7 * 86400)
    """Seconds from one window's start to the next; none: `size_s`, so that windows tumble."""
    size_count: int | None = key(default=None, ge=1, le=1_000_000)
    """Readings of a window, instead of `size_s`."""
    every_count: int | None = key(default=None, ge=1, le=1_000_000)
    """Readings from one window to the next; none: `size_count`."""
    grace_s: float = key(default=0.0, ge=0, le=86400)
    """Seconds of event time that a window waits for readings that come out of order; later ones are
    left out, counted."""

    def __post_init__(self) -> None:
        for field in self.fields:
            for aggregate in self.aggregates:
                _check_made(f"{field}_{aggregate}")
        if (self.size_s is None) == (self.size_count is None):
            raise ValueError("expected either size_s or size_count")
        if self.size_s is not None:
            if self.every_count is not None:
                raise ValueError("every_count belongs to size_count")
            _check_panes(
                round(self.size_s * 1000), round((self.every_s or self.size_s) * 1000), "s"
            )
            _check_grace(self.grace_s, self.every_s or self.size_s)
        elif self.size_count is not None:
            if self.every_s is not None or self.grace_s:
                raise ValueError("every_s and grace_s belong to size_s")
            _check_panes(self.size_count, self.every_count or self.size_count, "count")

    @property
    def behind_s(self) -> float:
        """The age of a result: a window of time waits for its end, and is stamped with its start.

        A window by count is stamped with its last reading.
        """
        return 0.0 if self.size_s is None else self.size_s + self.grace_s


def _check_made(name: str) -> None:
    """The bridge refuses a frame with such a name, and all that is in it."""
    if not is_field(name):
        raise ValueError(
            f"it would make a field {name!r}: expected at most {FIELD_CHARS_MAX} characters"
        )


def _check_panes(size: int, every: int, unit: str) -> None:
    if size % every or size // every > PANES_MAX:
        raise ValueError(f"size_{unit}: expected every_{unit}, or up to {PANES_MAX} times that")


def _check_grace(grace_s: float, every_s: float) -> None:
    if grace_s > PANES_MAX * every_s:
        raise ValueError(
            f"grace_s: expected at most {PANES_MAX} times the step of the windows, which stay "
            "open meanwhile"
        )


class RuleConfig(StatefulConfig):
    """An alert when a condition has held long enough, and another when it is over."""

    type: Literal["rule"]
    name: Annotated[str, Length(1, 64)]
    """The field `rule` of its alerts."""
    when: ExpressionText
    """The condition."""
    clear: ExpressionText | None = None
    """What ends it, e.g. `temperature < 75` to `temperature > 80`; none: as soon as `when` is
    false."""
    for_s: float = key(default=0.0, ge=0, le=7 * 86400)
    """Seconds of event time that it must hold."""
    for_count: int = key(default=1, ge=1, le=1_000_000)
    """Readings in a row for which it must hold."""


class SeenConfig(StatefulConfig):
    """A reading goes on when the value of a field was not seen before; or each is marked."""

    type: Literal["seen"]
    field: FieldName
    """The field whose values are remembered; 1 and 1.0 are one value, 1 and "1" too."""
    mark: FieldName | None = None
    """A field that is true where the value was seen before, else false: then all readings go on.
    None: those go on whose value was not seen."""
    capacity: int = key(default=seen.CAPACITY, ge=seen.CAPACITY_MIN, le=seen.CAPACITY_MAX)
    """Values that are remembered, the latest seen; up to 2.25 times as many may be."""
    error: float = key(default=seen.ERROR, ge=seen.ERROR_MIN, le=seen.ERROR_MAX)
    """How often a new value may be taken for one that was seen."""
    forget_s: float | None = key(
        default=None, ge=seen.FORGET_MS_MIN / 1000, le=seen.FORGET_MS_MAX / 1000
    )
    """Seconds of event time after which a value is forgotten, counted from when it was seen last;
    up to a quarter more. None: it is forgotten because of the capacity alone."""

    def __post_init__(self) -> None:
        if self.mark in (self.field, self.by) and self.mark is not None:
            raise ValueError(f"mark: the field {self.mark!r} exists already; expected a new name")


class PatternConfig(StatefulConfig):
    """An alert when conditions came true one after the other, within a time."""

    type: Literal["pattern"]
    name: Annotated[str, Length(1, 64)]
    """The field `rule` of its alerts."""
    sequence: Annotated[tuple[ExpressionText, ...], Length(2, SEQUENCE_MAX)]
    """The conditions, in order; each by a reading of its own, with any others between."""
    within_s: float = key(gt=0, le=7 * 86400)
    """Seconds of event time from the first to the last."""


AnyProcessor = Annotated[
    FilterConfig | SelectConfig | ExplodeConfig | UnitsConfig | DeriveConfig | DeadbandConfig
    | RateConfig | SmoothConfig | DownsampleConfig | LttbConfig | WindowConfig | RuleConfig
    | PatternConfig | SeenConfig,
    TaggedBy("type"),
]  # fmt: skip


class AbsenceConfig(ConfigTable):
    """An alert when a stream has been silent for too long, and another when it speaks again."""

    name: Annotated[str, Length(1, 64)]
    """The field `rule` of its alerts; one of its own."""
    stream: StreamName
    """The stream that is expected to speak: of a source or a chain."""
    into: StreamName
    """The stream of its alerts; other absence rules may share it."""
    after_s: float = key(ge=0.1, le=7 * 86400)
    """Seconds of silence, by the monotonic clock of the device; the count starts again with the
    device."""
    lane: Lane = Lane.URGENT
    """The lane of its alerts."""
    send: bool = True
    """false: its alerts stay on the device, for actions."""


class ChainConfig(ConfigTable):
    """Processors in order: each reading of `stream` passes them.

    What comes out is accepted as a reading of `into`.
    """

    stream: StreamName
    """The stream that is processed: of a source, or of another chain. Its readings are sent too,
    but where it has `send = false`."""
    into: StreamName
    """The stream that it makes; nobody else's."""
    lane: Lane = Lane.NORMAL
    """The lane of the stream that it makes, as a source's: alerts are `urgent`."""
    send: bool = True
    """Whether the stream that it makes is sent, as a source's: false where only later chains read
    it."""
    processor: Annotated[tuple[AnyProcessor, ...], Length(1, PROCESSORS_MAX)]
    """The processors, each given what the one before it made."""
