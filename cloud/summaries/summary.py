"""A summary: exact figures and sketches of one field over some time. Pure.

It also has its form on `ew.summaries.*`.

    key     stream|field|devices|start|maker
    value   {"stream":…,"field":…,"devices":"","start":ms,"end":ms,"maker":"","readings":n,
             "count":…,"sum":…,"min":…,"max":…,"mean":…,"variance":…,
             "hll":base64,"theta":…,"kll":…,"top":…,"count_min":…,"bloom":…,"sample":…,
             "seen":{"kll":n}}

`devices`: a declared set of devices, empty for all. `maker`: empty for what the cloud summed up,
`late:N` for what it summed up of readings that came later (late_part), `DEVICE|END|KIND` for a
device's sketch. `readings`: readings that have the field; `count`: those of them that are numbers.
`seen`: how many readings a sketch has seen where that is not all of them, because some devices did
not send one. A text or boolean field has neither numbers nor KLL.

Which values there were is in theta while that holds all of them (4096 and more), and the same value
in any summary has the same hash there. So there is a Bloom filter only where theta has become an
estimate, made of the thetas that were none yet, or where the analysis has a declaration for the
series.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, Final

import orjson

from edgewake.cloud.summaries import sketches
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.names import is_field, is_stream
from edgewake.protocol.sketches import bloom
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.sketch import Numbers, SketchKind

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000


class Step(StrEnum):
    """The grains in which summaries are kept, of UTC."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def ms(self) -> int:
        """The length of a step, ms."""
        return _LENGTHS[self]

    def floor(self, at_ms: int) -> int:
        """Where the one begins in which a time lies."""
        return at_ms - at_ms % self.ms

    @classmethod
    def around(cls, start_ms: int, end_ms: int) -> Step:
        """The finest in one of which the whole time lies."""
        return next(
            (step for step in cls if step.floor(start_ms) == step.floor(end_ms - 1)), cls.DAY
        )


_LENGTHS: Final = {Step.MINUTE: MINUTE_MS, Step.HOUR: HOUR_MS, Step.DAY: DAY_MS}
KEPT_MS: Final[Mapping[Step, int]] = {
    step: topics.SUMMARIES_KEPT_MS[topics.SUMMARIES_PREFIX + step] for step in Step
}
"""The retention of summaries after they were written, whatever time they are about."""


UNDECLARED: Final = Bloom(bloom.BITS, bloom.ONE_IN, ())
"""The filter of a series without a declaration, empty."""


@dataclass(frozen=True, slots=True)
class Series:
    """A field, or a set of devices in it, that is summed up."""

    stream: str
    field: str
    devices: str = ""


@dataclass(frozen=True, slots=True)
class Sketch:
    """Bytes of a kind, and how many readings they have seen."""

    seen: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Summary:
    """Exact figures and sketches of one field over some time."""

    readings: int = 0
    numbers: Numbers = field(default_factory=Numbers)
    sketches: Mapping[SketchKind, Sketch] = field(default_factory=dict)

    def sketch(self, kind: SketchKind) -> Any:
        """The sketch of a kind, None without one; raises Rejected."""
        found = self.sketches.get(kind)
        return None if found is None else sketches.read(kind, found.data)


def merged(parts: Iterable[Summary], *, with_values: bool = True) -> Summary:
    """All together, in any order and grouping; raises Rejected where a sketch cannot be read.

    `with_values`: false where nobody will ask which values there were, and no Bloom filter is made.
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    numbers = Numbers()
    found: dict[SketchKind, list[Sketch]] = {}
    for part in parts:
        numbers = numbers.merge(part.numbers)
        for kind, sketch in part.sketches.items():
            found.setdefault(kind, []).append(sketch)
    blooms = found.pop(SketchKind.BLOOM, [])
    together = {
        kind: Sketch(
            sum(one.seen for one in ones), sketches.merge(kind, [one.data for one in ones])
        )
        for kind, ones in found.items()
    }
    theta = together.get(SketchKind.THETA)
    is_exact = theta is not None and sketches.exact_theta(theta.data) is not None
    if with_values and (blooms or (theta is not None and not is_exact)):
        values = _values([part.sketches for part in parts])
        together |= {} if values is None else {SketchKind.BLOOM: values}
    return Summary(sum(part.readings for part in parts), numbers, together)


def _values(parts: Iterable[Mapping[SketchKind, Sketch]]) -> Sketch | None:
    """One Bloom filter of the values of all parts that still know them; None where none does."""
    seen = 0
    blooms: list[Bloom] = []
    thetas: list[Iterable[int]] = []
    for part in parts:
        bloom, theta = part.get(SketchKind.BLOOM), part.get(SketchKind.THETA)
        if bloom is not None and (theta is None or theta.seen <= bloom.seen):
            blooms.append(sketches.read(SketchKind.BLOOM, bloom.data))
            seen += bloom.seen
        elif theta is not None and (found := sketches.exact_theta(theta.data)) is not None:
            thetas.append(found)
            seen += theta.seen
    if not blooms and not thetas:
        return None
    whole = Bloom.merged(blooms or [UNDECLARED], chain.from_iterable(thetas))
    return Sketch(seen, whole.encode())


@dataclass(frozen=True, slots=True)
class Record:
    """A summary as it lies on a topic."""

    series: Series
    start_ms: int
    end_ms: int
    summary: Summary
    maker: str = ""

    @property
    def key(self) -> bytes:
        """Returns its key on the topic."""
        return (
            f"{self.series.stream}|{self.series.field}|{self.series.devices}|{self.start_ms}|"
            f"{self.maker}"
        ).encode()

    @staticmethod
    def parse_key(key: bytes) -> tuple[Series, int, str]:
        """Series, start and maker; raises Rejected."""
        parts = key.decode("utf-8", "replace").split("|", 4)
        if len(parts) < 5 or not parts[3].isdecimal():
            raise Rejected(RejectReason.SHAPE, f"expected a summary's key, found {key[:100]!r}")
        stream, field_, devices, start, maker = parts
        return Series(stream, field_, devices), int(start), maker

    def encode(self) -> bytes:
        """The value."""
        series, summary, numbers = self.series, self.summary, self.summary.numbers
        has = numbers.count > 0
        body: dict[str, Any] = {
            "stream": series.stream, "field": series.field, "devices": series.devices,
            "start": self.start_ms, "end": self.end_ms, "maker": self.maker,
            "readings": summary.readings, "count": numbers.count,
            "sum": numbers.sum if has else None, "min": numbers.min if has else None,
            "max": numbers.max if has else None,
            "mean": numbers.mean if has else None, "variance": numbers.variance,
        }  # fmt: skip
        body |= {
            kind.value: base64.b64encode(sketch.data).decode()
            for kind, sketch in summary.sketches.items()
        }
        seen = {
            kind.value: sketch.seen
            for kind, sketch in summary.sketches.items()
            if sketch.seen != summary.readings
        }
        return orjson.dumps(body | ({"seen": seen} if seen else {}))

    @classmethod
    def decode(cls, value: bytes) -> Record:
        """The reverse; raises Rejected.

        Sketches are kept as bytes and read when they are merged.
        """
        try:
            return cls._decode(orjson.loads(value))
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise Rejected(
                RejectReason.SHAPE, f"expected a summary: {type(error).__name__} {str(error)[:100]}"
            ) from error

    @classmethod
    def _decode(cls, body: Mapping[str, Any]) -> Record:
        series = Series(body["stream"], body["field"], body["devices"])
        if (
            not is_stream(series.stream)
            or not is_field(series.field)
            or not isinstance(series.devices, str)
        ):
            raise ValueError("no names")
        start, end, readings = int(body["start"]), int(body["end"]), int(body["readings"])
        if not 0 <= start < end or readings < 0:
            raise ValueError("no window")
        seen = body.get("seen", {})
        found = {
            kind: Sketch(
                int(seen.get(kind.value, readings)),
                base64.b64decode(body[kind.value], validate=True),
            )
            for kind in sketches.KINDS
            if body.get(kind.value)
        }
        return cls(
            series, start, end, Summary(readings, numbers_of(body), found), str(body["maker"])
        )


def numbers_of(body: Mapping[str, Any]) -> Numbers:
    """The exact figures of a record or of a row of the analysis.

    They are count, sum, min, max, variance, and mean where it has one.
    """
    count = int(body["count"] or 0)
    if not count:
        return Numbers()
    total, variance = (_or_nan(body[name]) for name in ("sum", "variance"))
    least, most = float(body["min"]), float(body["max"])
    mean = total / count if body.get("mean") is None else float(body["mean"])
    mean = min(max(mean, least), most) if math.isfinite(mean) else math.nan
    return Numbers.decode(Numbers(count, mean, variance * count, total, least, most).encode())


def _or_nan(value: float | None) -> float:
    """What no double held comes as null from JSON, as NaN or infinite from Spark."""
    return float(value) if value is not None and math.isfinite(value) else math.nan
