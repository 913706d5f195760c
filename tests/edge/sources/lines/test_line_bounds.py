"""Where a line begins and ends: at its bound and one byte past it, after a byte order mark, after a
hole, cut anywhere.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.lines.lines import EXTRA_BYTES, Line, LineSplitter

BOUND = 8


def split(data: bytes, *, start: int = 0) -> list[Line]:
    splitter = LineSplitter(start=start, line_bytes_max=BOUND)
    return splitter.feed(data) + splitter.last()


def cut(data: bytes, places: list[int], *, start: int = 0) -> list[Line]:
    """The same, fed in pieces."""
    splitter = LineSplitter(start=start, line_bytes_max=BOUND)
    edges = [0, *sorted(place for place in places if place <= len(data)), len(data)]
    found = [line for begin, end in pairwise(edges) for line in splitter.feed(data[begin:end])]
    return found + splitter.last()


def expected(data: bytes, *, start: int = 0) -> list[Line]:
    """By the words of the module, all at once: no state, no pieces."""
    lines, end = [], start
    parts = data.split(b"\n")
    for number, part in enumerate(parts):
        end += len(part) + (number < len(parts) - 1)
        text = part.removesuffix(b"\r").lstrip(b"\0")
        if number == 0 and start == 0:
            text = text.removeprefix(BOM_UTF8)
        if len(text) > BOUND:
            lines.append(Line(b"", end, too_long=True))
        elif text.strip():
            lines.append(Line(text, end))
    return lines


PIECES = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\0" * 40,
        BOM_UTF8,
        BOM_UTF8[:2],
        b"a",
        b"bcd",
        b" ",
        b"x" * (BOUND - 1),
        b"y" * 40,
    ]
)


@given(
    st.lists(PIECES, max_size=12).map(b"".join),
    st.lists(st.integers(0, 120), max_size=8),
    st.sampled_from([0, 50]),
)
def test_any_bytes_cut_anywhere_are_the_lines_that_the_words_say(
    data: bytes, places: list[int], start: int
) -> None:
    assert cut(data, places, start=start) == expected(data, start=start)


@given(st.lists(PIECES, min_size=1, max_size=12).map(b"".join))
def test_the_end_of_a_line_is_where_a_reader_that_begins_there_finds_the_next_one(
    data: bytes,
) -> None:
    """What the log keeps as a position must not lose or repeat a line after a restart."""
    whole = split(data, start=1)
    for number, line in enumerate(whole):
        assert split(data[line.end - 1 :], start=line.end) == whole[number + 1 :]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CR LF"])
@pytest.mark.parametrize(
    "before", [b"", BOM_UTF8, b"\0" * 100], ids=["nothing", "byte order mark", "hole"]
)
def test_a_line_of_just_the_bound_is_taken_and_one_byte_more_is_not(
    before: bytes, end: bytes
) -> None:
    (line,) = split(before + b"x" * BOUND + end)
    assert (line.text, line.too_long) == (b"x" * BOUND, False)
    (line,) = split(before + b"x" * (BOUND + 1) + end)
    assert (line.text, line.too_long) == (b"", True)


def test_what_is_held_of_a_line_is_bounded_however_it_comes() -> None:
    splitter = LineSplitter(line_bytes_max=BOUND)
    for _ in range(100):
        splitter.feed(b"x")
        assert len(splitter._rest) <= BOUND + EXTRA_BYTES


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (BOM_UTF8 + b"a\n" + b"b\n", [b"a", b"b"]),
        (BOM_UTF8 + b"\na\n", [b"a"]),
        (b"a\n" + BOM_UTF8 + b"b\n", [b"a", BOM_UTF8 + b"b"]),
        (BOM_UTF8, []),
        (BOM_UTF8 + BOM_UTF8 + b"a\n", [BOM_UTF8 + b"a"]),
    ],
    ids=[
        "before the first line",
        "alone in it",
        "in the middle it is a text's own",
        "nothing else",
        "two: one is a text's own",
    ],
)
def test_a_byte_order_mark_is_no_part_of_the_first_line(data: bytes, texts: list[bytes]) -> None:
    assert [line.text for line in split(data)] == texts


def test_a_reader_that_begins_in_the_middle_of_a_file_takes_no_byte_order_mark_away() -> None:
    assert split(BOM_UTF8 + b"a\n", start=10) == [Line(BOM_UTF8 + b"a", 15)]


@pytest.mark.parametrize("size", [1, BOUND, 10 * BOUND, 100_000])
def test_a_hole_of_any_size_costs_no_line_and_counts_in_the_place(size: int) -> None:
    """The line before, the hole, the line after: none is lost, and the place is behind all
    bytes.
    """
    data = b"ab\n" + b"\0" * size + b"cd\nef\n"
    assert [(line.text, line.end) for line in split(data)] == [
        (b"ab", 3),
        (b"cd", size + 6),
        (b"ef", size + 9),
    ]


def test_a_hole_that_comes_in_pieces_is_none_the_longer() -> None:
    splitter = LineSplitter(line_bytes_max=BOUND)
    for _ in range(1000):
        assert splitter.feed(b"\0" * 100) == []
    assert splitter.feed(b"ab\n") == [Line(b"ab", 100_003)]


def test_a_nul_inside_a_line_is_the_lines_own() -> None:
    assert split(b"a\0b\n") == [Line(b"a\0b", 4)]


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n", b" \t\n", b"\n\n\n", b"\r", b"\0\0\n"])
def test_lines_of_nothing_are_left_out(data: bytes) -> None:
    assert split(data) == []


def test_a_lone_cr_ends_no_line() -> None:
    assert split(b"a\rb\n") == [Line(b"a\rb", 4)]


def test_a_last_line_counts_once_and_reading_goes_on_behind_it() -> None:
    splitter = LineSplitter(line_bytes_max=BOUND)
    assert splitter.feed(b"ab") == []
    assert splitter.last() == [Line(b"ab", 2)]
    assert splitter.last() == []
    assert splitter.feed(b"cd\n") == [Line(b"cd", 5)]


def test_after_a_line_that_was_too_long_the_bound_is_that_of_the_next_one() -> None:
    lines = split(b"x" * 100 + b"\n" + b"y" * BOUND + b"\n" + b"z" * 100 + b"\nok\n")
    assert [(line.text, line.too_long) for line in lines] == [
        (b"", True),
        (b"y" * BOUND, False),
        (b"", True),
        (b"ok", False),
    ]
