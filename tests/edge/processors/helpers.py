"""Chains from a few words, and readings as hypothesis makes them: missing fields, texts in place of
numbers, times that go back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.build import build
from edgewake.edge.processors.chain import Chain
from edgewake.edge.processors.config import ChainConfig

T0 = 1_790_000_000_000


def chain(*processors: Mapping[str, Any]) -> Chain:
    """A chain from `speed` to `derived`."""
    return build(
        ChainConfig.checked({"stream": "speed", "into": "derived", "processor": processors})
    )


def made(one: Chain, readings: Sequence[Reading]) -> list[Reading]:
    """What a chain makes of readings, in one go."""
    return list(one.apply(one.begin(), readings).readings)


def remarks(one: Chain, readings: Sequence[Reading]) -> dict[str, dict[str, int]]:
    """What it remarks on."""
    found: dict[str, dict[str, int]] = one.counts(one.apply(one.begin(), readings).state)["remarks"]
    return found


def at(seconds: float, **fields: Any) -> Reading:
    """A reading, seconds after T0."""
    return T0 + round(seconds * 1000), fields


def series(*values: float, every_s: float = 1.0) -> list[Reading]:
    """Readings of `x`, one every so many seconds."""
    return [at(place * every_s, x=value) for place, value in enumerate(values)]


NUMBERS = st.one_of(
    st.integers(-100, 100),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.1, 1e308, -1e141, 2**63, 1e-320]),
)
VALUES = st.one_of(
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.none(),
    st.booleans(),
    st.sampled_from(["", "a", "b", "1", "k" * 300]),
)
FIELDS = st.dictionaries(st.sampled_from(["x", "y", "k"]), VALUES, min_size=1)
STEPS_MS = st.one_of(
    st.integers(0, 1500),
    st.integers(0, 1500),
    st.integers(-3000, 0),
    st.sampled_from([-3_600_000, 60_000, 10**12]),
)


@st.composite
def readings(draw: st.DrawFn) -> list[Reading]:
    """Up to fifty, whose times mostly go forward."""
    t, found = T0, []
    for step, fields in draw(st.lists(st.tuples(STEPS_MS, FIELDS), max_size=50)):
        t = min(max(0, t + step), 4_102_444_800_000)
        found.append((t, fields))
    return found


FLOATS = st.floats(-1e6, 1e6, allow_nan=False)


def column(found: Sequence[Reading], name: str = "x") -> list[object]:
    """The values of a field; None where a reading has none."""
    return [fields.get(name) for _, fields in found]


def said(processor: Mapping[str, Any], given_readings: Sequence[Reading]) -> dict[str, int]:
    """What one processor remarks on."""
    found = remarks(chain(processor), given_readings)
    return next(iter(found.values()), {})
