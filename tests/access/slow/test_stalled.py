"""A reader is cut off for taking nothing, not for taking little."""

from __future__ import annotations

from edgewake.cloud.access.slow.stalled import Progress, is_stalled, observe


def test_a_reader_with_nothing_waiting_never_stalls() -> None:
    progress = observe(Progress(0, 0.0), written=100, waiting=0, now=500.0)
    assert not is_stalled(progress, now=500.0, stall_s=30)


def test_a_reader_that_takes_one_byte_is_slow_and_stays() -> None:
    progress = observe(Progress(50, 0.0), written=100, waiting=49, now=29.0)
    assert not is_stalled(progress, now=58.0, stall_s=30)


def test_a_reader_that_takes_nothing_stalls() -> None:
    progress = observe(Progress(50, 0.0), written=100, waiting=50, now=29.0)
    assert is_stalled(progress, now=30.0, stall_s=30)


def test_what_is_written_meanwhile_is_not_taken_for_progress() -> None:
    progress = observe(Progress(50, 0.0), written=4000, waiting=3950, now=29.0)
    assert progress == Progress(50, 0.0)
