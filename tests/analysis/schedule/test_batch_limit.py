"""How many records a lane reads at once: as many as there is time for, whatever a frame holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.schedule.batch_limit import (
    BATCH_S,
    COMPILE_S,
    FIRST,
    LEAST_EXPENSIVE,
    LEAST_READINGS,
    BatchLimit,
)
from edgewake.cloud.analysis.schedule.piece_size import GROWTH
from tests.examples import examples

MOST = 20_000
BESIDE_S = 0.2
"""What a batch takes beside its records."""


def took(
    limit: BatchLimit,
    records: int,
    record_s: float,
    *,
    readings: int = 1,
    compile_s: float = 0.0,
    beside_s: float = BESIDE_S,
) -> list[float]:
    """How long the batches of a backlog take, up to its end."""
    found: list[float] = []
    is_cut_off = True
    while records:
        assert is_cut_off, "the next batch is to be at once"
        read = min(records, limit.records)
        records -= read
        found.append(beside_s + read * record_s + (0.0 if found else compile_s))
        is_cut_off = limit.learn(read, read * readings, found[-1], left=records)
    assert not is_cut_off
    return found


def live(limit: BatchLimit, batches: int) -> None:
    """A lane that keeps up with a stream of few small frames."""
    for _ in range(batches):
        assert not limit.learn(10, 10, BESIDE_S + 0.01, left=3)


@pytest.mark.parametrize("record_s", [0.001, 0.02])
@pytest.mark.parametrize("batches", [0, 5])
def test_a_backlog_of_large_frames_is_read_in_short_batches(record_s: float, batches: int) -> None:
    """A thousand readings in each: by a plan of Spark's, or by the driver.

    All at once they would take 20 or 400 seconds.
    """
    limit = BatchLimit(MOST, is_expensive=record_s > 0.01)
    live(limit, batches)
    found = took(limit, MOST, record_s, readings=1000, compile_s=0.0 if batches else COMPILE_S)
    assert max(found[1:]) < 2 * BATCH_S
    assert found[0] < 2 * BATCH_S + COMPILE_S
    assert sum(found) < 1.2 * MOST * record_s + COMPILE_S + 3, "and is done about as soon"


def test_a_backlog_of_small_frames_is_soon_read_as_fast_as_it_can_be() -> None:
    limit = BatchLimit(MOST, is_expensive=False)
    live(limit, 5)
    found = took(limit, 10 * MOST, 0.00001)
    assert len(found) <= 10 + 3, "three small ones more"
    assert sum(found[:3]) < 1.3


@pytest.mark.parametrize("is_expensive", [False, True])
@pytest.mark.parametrize("readings", [1, 10, 1000])
def test_on_a_busy_machine_batches_do_not_become_ever_smaller(
    readings: int, *, is_expensive: bool
) -> None:
    """Each takes longer than it should, whatever is in it."""
    limit = BatchLimit(MOST, is_expensive=is_expensive)
    live(limit, 3)
    found = took(limit, 5 * MOST // readings, 0.0, readings=readings, beside_s=2 * BATCH_S)
    least = min(
        (100, LEAST_EXPENSIVE // readings) if is_expensive else (FIRST, LEAST_READINGS // readings)
    )
    assert len(found) <= 5 * MOST // readings // least


@given(
    st.lists(
        st.tuples(st.integers(0, 30_000), st.integers(1, 2000), st.floats(0, 600)), max_size=20
    ),
    st.integers(1, MOST),
    st.booleans(),
)
@settings(max_examples=examples(100))
def test_whatever_batches_took_the_next_one_is_bounded(
    batches: list[tuple[int, int, float]], most: int, is_expensive: bool
) -> None:
    limit = BatchLimit(most, is_expensive=is_expensive)
    for i, (read, readings, took_s) in enumerate(batches):
        before = limit.records
        limit.learn(read, read * readings, took_s, left=0)
        assert 1 <= limit.records <= most
        always = (LEAST_EXPENSIVE if is_expensive else LEAST_READINGS) // readings
        assert limit.records <= max(always, GROWTH * max(before, read)) or limit.records == most
        if read and i and took_s > BATCH_S:
            assert limit.records <= max(1, always, read * BATCH_S / took_s + 1e-6)
