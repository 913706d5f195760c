"""Bytes to lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.lines.lines import Line, LineSplitter


@given(st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"a", b"\n"))))
def test_any_cut_gives_the_same_lines_at_the_same_ends(pieces: list[bytes]) -> None:
    whole, cut = LineSplitter(line_bytes_max=8), LineSplitter(line_bytes_max=8)
    expected = [(line.end, line.too_long) for line in whole.feed(b"".join(pieces)) + whole.last()]
    assert [(line.end, line.too_long) for piece in pieces for line in cut.feed(piece)] + [
        (line.end, line.too_long) for line in cut.last()
    ] == expected


def test_lines_end_with_lf_or_crlf_and_empty_ones_are_left_out() -> None:
    assert LineSplitter().feed(b"a\r\n\n  \nb\nrest") == [Line(b"a", 3), Line(b"b", 9)]


def test_a_line_past_its_bound_is_skipped_to_its_end_and_memory_stays_bounded() -> None:
    splitter = LineSplitter(line_bytes_max=10)
    for _ in range(1000):
        assert splitter.feed(b"x" * 100) == []
    assert len(splitter._rest) <= 10
    assert splitter.feed(b"\nok\n") == [Line(b"", 100_001, too_long=True), Line(b"ok", 100_004)]


def test_ends_count_from_where_reading_began() -> None:
    assert LineSplitter(start=50).feed(b"ab\n")[0].end == 53
