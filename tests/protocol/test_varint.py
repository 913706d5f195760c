"""Numbers in base 128, least first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol import varint


@pytest.mark.parametrize(
    ("number", "body"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_a_number_is_written_as_protocol_buffers_write_it(number: int, body: bytes) -> None:
    assert varint.encode(number) == body


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_numbers_are_read_as_they_were_written(numbers: list[int]) -> None:
    reader = varint.Reader(b"".join(map(varint.encode, numbers)), 0)
    assert [reader.number() for _ in numbers] == numbers
    assert reader.ended


@pytest.mark.parametrize(("number", "signed"), [(0, 0), (1, -1), (2, 1), (3, -2), (4, 2)])
def test_a_signed_number_goes_zigzag(number: int, signed: int) -> None:
    assert varint.Reader(varint.encode(number), 0).signed() == signed


@pytest.mark.parametrize("body", [b"", b"\x80", b"\x80" * 10 + b"\x01"])
def test_a_number_that_ends_early_or_never_is_refused(body: bytes) -> None:
    with pytest.raises(IndexError):
        varint.Reader(body, 0).number()


def test_bytes_are_read_from_where_the_reader_stands() -> None:
    reader = varint.Reader(b"abcdef", 1)
    assert (reader.byte(), reader.exactly(2), reader.bytes(9)) == (ord("b"), b"cd", b"ef")
    with pytest.raises(IndexError, match="expected 1 bytes, found 0"):
        reader.exactly(1)
