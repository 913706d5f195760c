"""Configuration of sketches."""

from __future__ import annotations

from typing import Annotated, Final

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.processors.config import FieldName, StreamName, distinct
from edgewake.protocol.plain import Check, ConfigTable, Length, key
from edgewake.protocol.sketches.sketch import SketchKind

FIELDS_MAX: Final = 16
"""Fields of one stream: each has sketches of its own in memory. More are refused."""
DAY_S: Final = 86_400
OPEN_MAX: Final = 10
"""Windows that may be open because of the grace: each has sketches of its own in memory."""


def _kinds(kinds: tuple[SketchKind, ...]) -> tuple[SketchKind, ...]:
    if SketchKind.SAMPLE in kinds:
        raise ValueError("kinds: samples are not made on the device")
    if len(set(kinds)) < len(kinds):
        raise ValueError("kinds: expected each kind once")
    return kinds


class SketchConfig(ConfigTable):
    """Summaries of a stream's fields, sent in place of its readings or beside them.

    They are readings of `device_sketches`.
    """

    stream: StreamName
    """The stream, of a source or a chain; with `send = false`, or `beside`."""
    beside: bool = False
    """Is the stream sent as well? Its sketches then answer for the device alone (`edgewake summary
    --devices @DEVICE`), so that no reading counts twice."""
    fields: Annotated[tuple[FieldName, ...], Length(1, FIELDS_MAX), Check(distinct)]
    """The fields that are summed up, each by itself."""
    kinds: Annotated[tuple[SketchKind, ...], Length(1), Check(_kinds)] = (
        SketchKind.NUMBERS,
        SketchKind.HLL,
        SketchKind.KLL,
        SketchKind.TOP,
    )
    """numbers: count, mean, variance, sum, least, most; hll, theta: how many different values; kll:
    quantiles; top: frequent values; count_min: how often a value occurred; bloom:
    whether one did."""
    window_s: int = key(default=60, ge=1, le=DAY_S)
    """Seconds of event time that one sketch sums up; a part of a day. Until it is over its readings
    stay in the log."""
    grace_s: float = key(default=0.0, ge=0, le=DAY_S)
    """Seconds of event time that a window waits for readings that come out of order; later ones are
    left out, counted."""
    lane: Lane = Lane.NORMAL
    """The lane of `device_sketches`; the same for all."""

    def __post_init__(self) -> None:
        if DAY_S % self.window_s:
            raise ValueError("window_s: expected a part of a day, such as 60, 900 or 3600")
        if self.grace_s > OPEN_MAX * self.window_s:
            raise ValueError(
                f"grace_s: expected at most {OPEN_MAX} windows, which stay open meanwhile"
            )
