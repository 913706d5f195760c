"""Cursors: exact, short, bound to streams one by one, and no one but us can make one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.cursor import (
    PARTITIONS_MAX,
    TEXT_MAX,
    Cursor,
    CursorCodec,
    CursorKeys,
    CursorWriter,
    Position,
    StreamPosition,
    filters_hash,
    generation_hash,
    stream_hash,
)
from edgewake.protocol.errors import CursorError

OLD, NEW = b"k" * 32, b"n" * 32
CODEC = CursorCodec(CursorKeys({1: OLD}, 1))
positions = st.tuples(st.integers(0, 2**48), st.integers(0, 10_000))
four_bytes = st.binary(min_size=4, max_size=4)
streams = st.builds(
    StreamPosition, four_bytes, four_bytes, st.lists(positions, max_size=5).map(tuple)
)
cursors = st.builds(
    Cursor,
    st.lists(streams, max_size=4).map(tuple),
    st.binary(min_size=2, max_size=2),
    st.booleans(),
)


def a_cursor(*partitions: tuple[Position, ...]) -> Cursor:
    return Cursor(tuple(StreamPosition(b"name", b"gene", row) for row in partitions))


@given(cursors)
def test_a_cursor_survives_encoding(cursor: Cursor) -> None:
    assert CODEC.decode(CODEC.encode(cursor)) == cursor


@given(cursors, st.data())
def test_a_writer_writes_what_the_codec_writes(cursor: Cursor, data: st.DataObject) -> None:
    writer = CursorWriter(CODEC, cursor)
    rows = [list(stream.partitions) for stream in cursor.streams]
    for i, row in enumerate(rows):
        for p in range(len(row)):
            row[p] = data.draw(positions)
            writer.move(i, p, row[p])
    moved = tuple(
        StreamPosition(s.stream, s.generation, tuple(row))
        for s, row in zip(cursor.streams, rows, strict=True)
    )
    assert CODEC.decode(writer.text().decode()) == Cursor(moved, cursor.filters, cursor.stop)


def test_a_usual_cursor_is_ascii_and_at_most_128_characters() -> None:
    text = CODEC.encode(a_cursor(((10**9, 42),) * 4, ((10**9, 42),) * 4))
    assert text.isascii()
    assert len(text) <= 128


def test_the_largest_cursor_that_a_server_writes_is_read_again() -> None:
    """Sixteen streams of 64 partitions, far into their lives, each inside a record."""
    row = ((2**48 - 1, 2**21 - 1),) * (PARTITIONS_MAX // 16)
    cursor = a_cursor(*[row] * 16)
    text = CODEC.encode(cursor)
    assert len(text) <= TEXT_MAX
    assert CODEC.decode(text) == cursor


@given(st.text(max_size=100))
def test_any_text_is_refused_as_a_cursor(text: str) -> None:
    with pytest.raises(CursorError):
        CODEC.decode(text)


@given(st.integers(0, 50), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, flip: int) -> None:
    text = CODEC.encode(a_cursor(((123_456, 0), (5, 3))))
    at = 3 + at % (len(text) - 3)
    changed = text[:at] + chr((ord(text[at]) ^ flip) & 0x7F) + text[at + 1 :]
    try:
        read = CODEC.decode(changed)
    except CursorError as refused:
        read = refused.reason
    # The last: only padding bits differ.
    assert read in ("garbage", "unverifiable", CODEC.decode(text))


def refusal(codec: CursorCodec, text: str) -> str:
    with pytest.raises(CursorError) as refused:
        codec.decode(text)
    return refused.value.reason


@pytest.mark.parametrize(
    "text",
    ["x", "", "v1", "v2.", "v2.AAAA", "v2.!!", "v2." + "A" * TEXT_MAX, "v\u0662.AAAA", "v2.AAAA\n"],
)
def test_what_no_server_wrote_is_garbage(text: str) -> None:
    assert refusal(CODEC, text) == "garbage"


def test_another_systems_cursor_cannot_be_verified() -> None:
    assert (
        refusal(CursorCodec(CursorKeys({1: b"x" * 32}, 1)), CODEC.encode(a_cursor(())))
        == "unverifiable"
    )


def test_a_later_version_s_cursor_cannot_be_verified_either() -> None:
    """It comes from a server that was updated before this one: no mistake of the client's."""
    assert refusal(CODEC, "v3.AAAABBBBCCCCDDDDEEEEFFFF") == "unverifiable"


def test_a_key_rotates_server_by_server_and_each_verifies_every_cursor() -> None:
    """First all verify with the new key, then all sign with it, then the old one goes: at any
    moment two servers may be one step apart.
    """
    steps = [
        CursorKeys({1: OLD}, 1),
        CursorKeys({1: OLD, 2: NEW}, 1),
        CursorKeys({1: OLD, 2: NEW}, 2),
    ]
    for before, after in pairwise(steps):
        for writer in (before, after):
            for reader in (before, after):
                cursor = a_cursor(((7, 0),))
                assert CursorCodec(reader).decode(CursorCodec(writer).encode(cursor)) == cursor


def test_keys_are_replaced_while_a_codec_is_in_use() -> None:
    codec = CursorCodec(CursorKeys({1: OLD}, 1))
    codec.keys = CursorKeys({1: OLD, 2: NEW}, 2)
    assert CursorCodec(CursorKeys({2: NEW}, 2)).decode(codec.encode(a_cursor(()))) == a_cursor(())


def test_a_stream_its_topic_and_the_filters_are_told_apart() -> None:
    assert stream_hash("a") != stream_hash("b")
    assert generation_hash("id1") != generation_hash("id2")
    assert (
        len({filters_hash(where, select) for where in (None, "x > 1") for select in (None, "x")})
        == 4
    )
    assert filters_hash("a", "") != filters_hash("", "a")


@pytest.mark.parametrize(
    ("secrets", "signing"), [({}, 1), ({1: b"short"}, 1), ({256: OLD}, 256), ({1: OLD}, 2)]
)
def test_bad_keys_are_refused(secrets: dict[int, bytes], signing: int) -> None:
    with pytest.raises(ValueError, match="cursor keys"):
        CursorKeys(secrets, signing)


def test_a_cursor_of_another_version_cannot_be_verified() -> None:
    with pytest.raises(
        CursorError, match="cursor of version 1: this server reads version 2"
    ) as caught:
        CODEC.decode("v1.AAAA")
    assert caught.value.reason == "unverifiable"
