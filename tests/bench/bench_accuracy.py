"""How close summaries are to the exact answers, on fields of ten recorded sets.

The first 60,000 readings of each field are cut into minutes of 300, every second one as small as a
device makes it in the mixed run; 60 minutes are merged to an hour, 24 hours to a day, days to the
whole. Asked are 20 minutes, each hour and the whole: figures, distinct, seven quantiles, how many
lie between the quartiles, the 20 most frequent, how often and whether 40 values occurred, and 40
that did not. A share is that of answers whose bounds hold the exact one, of all sets; errors are
the largest of the whole sets. What is exact is counted without our code.
`python -m tests.bench.bench_accuracy [--runs 1] [--json FILE]`; with --markdown 1 it prints the
table of docs/summaries.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgewake.cloud.summaries import answers
from edgewake.cloud.summaries.answers import Estimate
from edgewake.cloud.summaries.summary import Summary, merged
from edgewake.protocol.sketches.sketch import item_text
from tests.bench.figures import Found, run
from tests.bench.recorded_fields import FIELDS, Value
from tests.summaries.made import summary

MINUTE: Final = 300
"""Readings."""
READINGS_MAX: Final = 60_000
"""Of a field."""
RANKS: Final = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
LIMITS: Final = (
    "The bounds of HLL and theta hold in 95 % of cases by their definition, those of KLL in 99 %, "
    "those of Count-Min in 97 %;"
    " the rest is exact."
)


@dataclass
class Score:
    """What came out for one field."""

    held: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def note(self, kind: str, holds: bool, error: float = 0.0) -> None:
        """One answer."""
        self.asked[kind] += 1
        self.held[kind] += holds
        self.worst[kind] = max(self.worst[kind], error)


def score(values: Sequence[Value], *, mixed: bool = False) -> Score:
    """Of a field."""
    found = Score()
    minutes = [values[at : at + MINUTE] for at in range(0, len(values), MINUTE)]
    made = [summary(one, narrow=mixed and i % 2 == 1) for i, one in enumerate(minutes)]
    for exact, one in list(zip(minutes, made, strict=True))[:20]:
        check(found, exact, one, "minute")
    hours = list(_grouped(made, 60))
    for i, one in enumerate(hours):
        check(found, values[i * 60 * MINUTE : (i + 1) * 60 * MINUTE], one, "hour")
    check(found, values, merged(_grouped(hours, 24)), "all")
    return found


def _grouped(made: Sequence[Summary], size: int) -> Iterator[Summary]:
    for at in range(0, len(made), size):
        yield merged(made[at : at + size])


def check(found: Score, values: Sequence[Value], one: Summary, step: str) -> None:
    """All questions about one summary."""
    counts = Counter(item_text(value) for value in values)
    is_whole = step == "all"
    distinct = answers.distinct(one)
    assert distinct is not None
    off = abs(distinct.value / len(counts) - 1) * 100
    found.note("distinct", _holds(distinct, len(counts)), off if is_whole else 0)
    found.note(
        f"distinct in a{'n' if step == 'hour' else ''} {step}"
        if not is_whole
        else "distinct of all",
        off < 0.5,
        off,
    )
    numbers = sorted(float(value) for value in values if not isinstance(value, str))
    if numbers:
        _check_numbers(found, numbers, one, is_whole)
    for item in answers.frequent(one, 20):
        found.note(
            "frequent",
            _holds(item, counts[item.text]),
            abs(item.value - counts[item.text]) / len(values) * 100 if is_whole else 0,
        )
    asked = [*list(counts)[:40], *(f"not {i}" for i in range(40))]
    for present in answers.presence(one, asked):
        text = present.text
        occurred = answers.occurrences(one, text)
        assert occurred is not None
        found.note(
            "count",
            _holds(occurred, counts[text]),
            (occurred.value - counts[text]) / len(values) * 100 if is_whole else 0,
        )
        found.note("contains", present.value in (None, counts[text] > 0))


def _check_numbers(found: Score, numbers: list[float], one: Summary, is_whole: bool) -> None:
    figures = answers.figures(one)
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    exact = {
        "sum": sum(numbers),
        "mean": mean,
        "variance": variance,
        "min": numbers[0],
        "max": numbers[-1],
        "count": len(numbers),
    }
    for name, value in exact.items():
        told = getattr(figures, name)
        found.note("figures", told is not None and abs(told - value) <= 1e-9 * max(abs(value), 1))
    for quantile in answers.quantiles(one, RANKS):
        low, high = _rank_of(numbers, quantile.value)
        off = max(0.0, low - quantile.rank, quantile.rank - high) * 100
        # Several values may be at a rank between two readings; any of them is right.
        place = quantile.rank * len(numbers)
        truth = {numbers[min(len(numbers) - 1, int(place))], numbers[max(0, math.ceil(place) - 1)]}
        found.note(
            "quantile",
            any(quantile.low <= value <= quantile.high for value in truth),
            off if is_whole else 0,
        )
    first, third = numbers[len(numbers) // 4], numbers[3 * len(numbers) // 4]
    between = answers.between(one, first, third)
    assert between is not None
    inside = bisect_left(numbers, third) - bisect_left(numbers, first)
    found.note(
        "between",
        _holds(between, inside),
        abs(between.value - inside) / len(numbers) * 100 if is_whole else 0,
    )


def _rank_of(ordered: Sequence[float], value: float) -> tuple[float, float]:
    return bisect_left(ordered, value) / len(ordered), bisect_right(ordered, value) / len(ordered)


def _holds(estimate: Estimate, exact: float) -> bool:
    return estimate.low <= exact <= estimate.high


def table() -> Iterator[str]:
    """Rows of Markdown: a field each."""
    yield (
        "| set and field | readings | different | distinct | of an hour | quantile (rank) | "
        "between | count | frequent | in bounds |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, load in FIELDS.items():
        values = load()[:READINGS_MAX]
        one = score(values)
        share = (
            100 * sum(one.held[kind] for kind in BOUNDED) / sum(one.asked[kind] for kind in BOUNDED)
        )
        cells = [
            name,
            f"{len(values):,}",
            f"{len({item_text(value) for value in values}):,}",
            *(
                _percent(one, kind)
                for kind in (
                    "distinct",
                    "distinct in an hour",
                    "quantile",
                    "between",
                    "count",
                    "frequent",
                )
            ),
            f"{share:.1f} %",
        ]
        yield "| " + " | ".join(cells) + " |"


BOUNDED: Final = ("figures", "distinct", "quantile", "between", "frequent", "count", "contains")


def _percent(one: Score, kind: str) -> str:
    return f"{one.worst[kind]:.2f} %" if one.asked[kind] else "–"


def measure(_folder: Path, runs: int, *, markdown: int = 0) -> Found:
    """Every field, as the cloud makes it and mixed with devices."""
    if markdown:
        for row in table():
            print(row, flush=True)
        return {}
    found: Found = defaultdict(list)
    for _ in range(runs):
        for mixed in (False, True):
            scores = [score(load()[:READINGS_MAX], mixed=mixed) for load in FIELDS.values()]
            made = "cloud and devices" if mixed else "cloud"
            for kind in BOUNDED:
                share = (
                    100
                    * sum(one.held[kind] for one in scores)
                    / sum(one.asked[kind] for one in scores)
                )
                floor = 100.0 if kind in ("figures", "frequent", "contains") else 95.0
                found[f"accuracy, {made}: {kind} within its bounds", "% of answers", floor].append(
                    share
                )
            for kind, unit in (
                ("distinct", "% off"),
                ("quantile", "% of ranks off"),
                ("count", "% of readings off"),
            ):
                found[f"accuracy, {made}: worst {kind} of a whole set", unit, None].append(
                    max(one.worst[kind] for one in scores)
                )
    return found


if __name__ == "__main__":
    run(measure, __doc__, sizes={"markdown": 0})
