"""A question about one summary, the sketches that it needs, and the row of its answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from edgewake.cloud.summaries import answers
from edgewake.cloud.summaries.answers import Contained, Estimate, Figures, Item, Quantile
from edgewake.cloud.summaries.summary import Step, Summary
from edgewake.protocol.sketches.sketch import SketchKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is wanted beside the exact figures."""

    distinct: bool = False
    ranks: tuple[float, ...] = ()
    between: tuple[float, float] | None = None
    frequent: int = 0
    counted: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()
    sample: int = 0

    @property
    def kinds(self) -> tuple[SketchKind, ...]:
        """The sketches that it needs; the others are not read."""
        needed = {
            SketchKind.HLL: self.distinct,
            SketchKind.THETA: self.distinct or self.contained,
            SketchKind.KLL: self.ranks or self.between,
            SketchKind.TOP: self.frequent,
            SketchKind.COUNT_MIN: self.counted,
            SketchKind.BLOOM: self.contained,
            SketchKind.SAMPLE: self.sample,
        }
        return tuple(kind for kind, is_needed in needed.items() if is_needed)


TO_COMPARE = (SketchKind.THETA, SketchKind.COUNT_MIN)
"""The sketches that two summaries are compared by."""


class Row(BaseModel):
    """A step, or the whole time."""

    start: int
    """ms since 1970 UTC."""
    end: int
    figures: Figures
    distinct: Estimate | None = None
    """Different values."""
    quantiles: list[Quantile] = []
    between: Estimate | None = None
    """Readings with low <= value < high."""
    frequent: list[Item] = []
    occurrences: list[Item] = []
    contains: list[Contained] = []
    sample: list[str] = []
    """Some readings' values as text, each reading as likely as any other."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in whole steps."""

    start_ms: int
    end_ms: int

    @classmethod
    def of(cls, start_ms: int, end_ms: int, step: Step | None) -> Span:
        """The steps (without one: minutes) that the time touches."""
        unit = step or Step.MINUTE
        return cls(unit.floor(start_ms), unit.floor(max(start_ms, end_ms - 1)) + unit.ms)

    def steps(self, step: Step | None) -> int:
        """Rows of an answer at most."""
        return 1 if step is None else (self.end_ms - self.start_ms) // step.ms


def answered(start_ms: int, end_ms: int, found: Summary, asked: Asked) -> Row:
    """The row. Raises Rejected where kept bytes are not a sketch."""
    between = answers.between(found, *asked.between) if asked.between else None
    items = [answers.occurrences(found, text) for text in asked.counted]
    counted = [item for item in items if item is not None]
    return Row(
        start=start_ms,
        end=end_ms,
        figures=answers.figures(found),
        distinct=answers.distinct(found) if asked.distinct else None,
        quantiles=answers.quantiles(found, asked.ranks) if asked.ranks else [],
        between=between,
        frequent=answers.frequent(found, asked.frequent) if asked.frequent else [],
        occurrences=counted,
        contains=answers.presence(found, asked.contained),
        sample=answers.sample(found, asked.sample) if asked.sample else [],
    )
