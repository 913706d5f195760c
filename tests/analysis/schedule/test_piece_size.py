"""How many records are summed up at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.schedule.piece_size import FIRST, GROWTH, SHRINK, PieceSize

ROWS = 5_000


def test_a_stream_of_few_minutes_is_soon_read_in_large_pieces() -> None:
    size, pieces = PieceSize(), []
    while size.records < 20_000:
        pieces.append(size.records)
        size = size.after(size.records, 12 / ROWS)
    assert pieces == [100, 800, 6400]


def test_an_idle_stream_changes_nothing() -> None:
    assert PieceSize(7).after(0, 0) == PieceSize(7)


@given(st.lists(st.floats(min_value=0, max_value=320_000), min_size=1, max_size=20))
def test_pieces_shrink_at_once_where_records_give_many_rows(rows_per_record: list[float]) -> None:
    """A piece is too large only where its records give more than those before, and the next one is
    right for such.
    """
    size = PieceSize(FIRST)
    for ratio in rows_per_record:
        rows = round(size.records * ratio)
        after = size.after(size.records, rows / ROWS)
        assert 1 <= after.records <= size.records * GROWTH
        assert after.records == 1 or after.records * rows <= ROWS * size.records
        size = after


def test_a_piece_that_failed_makes_the_next_ones_small_down_to_one_record_and_they_grow_again() -> (
    None
):
    size = PieceSize(20_000)
    tried: list[int] = []
    while not tried or tried[-1] > 1:
        tried.append(size.records)
        size = size.after_failure(size.records)
    assert tried == [20_000, 20_000 // SHRINK, 19, 1]
    assert size.after(1, 3 / ROWS) == PieceSize(GROWTH)
