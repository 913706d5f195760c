"""Cursors: exact, short, and no one but us can make one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.cursor import Cursor, CursorCodec, generation_hash, subscription_hash
from edgewake.protocol.errors import CursorError

CODEC = CursorCodec({1: b"k" * 32})
positions = st.lists(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 10_000)), max_size=5).map(tuple), max_size=4).map(tuple)


@given(positions)
def test_a_cursor_survives_encoding(places: tuple[tuple[tuple[int, int], ...], ...]) -> None:
    cursor = Cursor(b"subs", b"gene", places)
    assert CODEC.decode(CODEC.encode(cursor)) == cursor


def test_a_usual_cursor_is_ascii_and_at_most_128_characters() -> None:
    text = CODEC.encode(Cursor(b"subs", b"gene", (((10**9, 42),) * 4,) * 2))
    assert text.isascii()
    assert len(text) <= 128


@given(st.text(max_size=100))
def test_any_text_is_refused_as_a_cursor(text: str) -> None:
    with pytest.raises(CursorError):
        CODEC.decode(text)


@given(st.integers(0, 50), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, flip: int) -> None:
    text = CODEC.encode(Cursor(b"subs", b"gene", (((123_456, 0), (5, 3)),)))
    at = 3 + at % (len(text) - 3)
    changed = text[:at] + chr((ord(text[at]) ^ flip) & 0x7F) + text[at + 1 :]
    try:
        read = CODEC.decode(changed)
    except CursorError as refused:
        read = refused.reason
    assert read in ("garbage", "forged", CODEC.decode(text))  # the last: only padding bits differ


def test_another_systems_key_does_not_read_ours() -> None:
    with pytest.raises(CursorError) as refused:
        CursorCodec({1: b"x" * 32}).decode(CODEC.encode(Cursor(b"subs", b"gene", ())))
    assert refused.value.reason == "forged"


def test_an_old_key_still_reads_while_the_newest_signs() -> None:
    old = CODEC.encode(Cursor(b"subs", b"gene", ()))
    both = CursorCodec({1: b"k" * 32, 2: b"n" * 32})
    assert both.decode(old).subscription == b"subs"
    with pytest.raises(CursorError):
        CODEC.decode(both.encode(Cursor(b"subs", b"gene", ())))


def test_a_future_version_is_named_as_such() -> None:
    with pytest.raises(CursorError) as refused:
        CODEC.decode("v2.AAAA")
    assert refused.value.reason == "version"


def test_moving_one_partition_leaves_the_others() -> None:
    cursor = Cursor(b"s", b"g", (((1, 0), (2, 0)), ((3, 0),)))
    assert cursor.moved(0, 1, (9, 4)).positions == (((1, 0), (9, 4)), ((3, 0),))


def test_a_subscription_is_its_streams_in_any_order_and_its_filters() -> None:
    assert subscription_hash(["a", "b"], None, None) == subscription_hash(["b", "a"], None, None)
    assert len({subscription_hash(["a"], w, s) for w in (None, "x > 1") for s in (None, "x")}) == 4
    assert generation_hash(["id1"]) != generation_hash(["id2"])


@pytest.mark.parametrize("keys", [{}, {1: b"short"}, {256: b"k" * 32}])
def test_bad_keys_are_refused(keys: dict[int, bytes]) -> None:
    with pytest.raises(ValueError, match="cursor keys"):
        CursorCodec(keys)
