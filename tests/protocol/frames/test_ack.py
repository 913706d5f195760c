"""Acknowledgements: a token and, where refused, why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import RejectReason, RemoteError
from edgewake.protocol.frames.ack import (
    JOINED_BYTES_MAX,
    RETRY_AFTER_MS_MAX,
    Ack,
    AckToken,
    Later,
    LaterReason,
    decode_answer,
    decode_joined,
    is_joinable,
    joined,
)
from edgewake.protocol.frames.field_type import FieldType


@given(st.integers(0, 10_000), st.integers(0, 2**63 - 1), st.booleans())
def test_a_token_survives_text(partition: int, offset: int, dead: bool) -> None:
    token = AckToken(partition, offset, dead)
    assert AckToken.parse(str(token)) == token


@pytest.mark.parametrize(
    "text", ["", ".", "1", "1.", ".1", "-1.2", "1.x", "x1.2", "1.2.3", "².1", "1" * 40 + ".1"]
)
def test_another_text_is_no_token(text: str) -> None:
    with pytest.raises(RemoteError):
        AckToken.parse(text)


@pytest.mark.parametrize(
    "ack",
    [
        Ack(AckToken(2, 88_123)),
        Ack(AckToken(0, 17, dead=True), RejectReason.FIELD_TYPE, "speed was a number"),
    ],
)
def test_an_ack_survives_encoding(ack: Ack) -> None:
    assert Ack.decode(ack.encode()) == ack


@pytest.mark.parametrize("payload", [b"", b"[]", b"5", b"{}", b'{"token":5}'])
def test_other_bytes_are_no_ack(payload: bytes) -> None:
    with pytest.raises(RemoteError):
        Ack.decode(payload)


@pytest.mark.parametrize(
    "answer",
    [
        Ack(AckToken(2, 88_123)),
        Later(LaterReason.QUOTA, 5_000, "one more stream"),
        Later(LaterReason.BUSY, 0),
    ],
)
def test_each_answer_survives_encoding(answer: Ack | Later) -> None:
    assert decode_answer(answer.encode()) == answer


def test_a_wait_of_more_than_an_hour_is_shortened() -> None:
    assert decode_answer(Later(LaterReason.BUSY, 10**12).encode()) == Later(
        LaterReason.BUSY, RETRY_AFTER_MS_MAX
    )


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"5", b"{}", b'"later"', b'{"later":"busy"}']
    + [
        b'{"later":"busy","retry_after_ms":%b}' % wait
        for wait in (b"-1", b"true", b'"5"', b"1.5", b"null")
    ],
)
def test_other_bytes_are_no_answer(payload: bytes) -> None:
    with pytest.raises(RemoteError):
        decode_answer(payload)


ANSWERS = [
    (b"speed|7|12", Ack(AckToken(2, 88_123))),
    (b"speed|7|13", Ack(AckToken(0, 17, dead=True), RejectReason.FIELD_TYPE, 'a "number"')),
    (b"speed|7|14", Later(LaterReason.BUSY, 5_000)),
]


def test_joined_answers_are_what_the_document_shows() -> None:
    (payload,) = joined(ANSWERS[:1])
    assert payload == b'[["speed|7|12","2.88123"]]'
    assert decode_joined(b"".join(joined(ANSWERS))) == ANSWERS


def test_joined_answers_are_cut_into_messages_that_a_small_device_can_read() -> None:
    many = [(b"speed|7|%d" % i, Ack(AckToken(0, i))) for i in range(10_000)]
    payloads = list(joined(many))
    assert max(map(len, payloads)) <= JOINED_BYTES_MAX
    assert [answer for payload in payloads for answer in decode_joined(payload)] == many


def test_nothing_to_join_is_no_message() -> None:
    assert list(joined([])) == []


@given(st.binary(max_size=140))
def test_joinable_is_what_survives_joining(correlation: bytes) -> None:
    if is_joinable(correlation):
        (payload,) = joined([(correlation, Ack(AckToken(0, 1)))])
        assert decode_joined(payload) == [(correlation, Ack(AckToken(0, 1)))]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"5",
        b"[1]",
        b"[[]]",
        b'[["a"]]',
        b'[[1,"0.1"]]',
        b'[["a","x"]]',
        b'[["a",5]]',
        b'[["a",{}]]',
    ],
)
def test_other_bytes_are_no_joined_answers(payload: bytes) -> None:
    with pytest.raises(RemoteError):
        decode_joined(payload)


def test_a_reason_that_is_newer_than_the_device_refuses_or_postpones_as_well() -> None:
    refused = decode_answer(b'{"token":"d0.17","rejected":"colour","detail":"too blue"}')
    assert refused == Ack(AckToken(0, 17, dead=True), RejectReason.UNKNOWN, "colour: too blue")
    later = decode_answer(b'{"later":"moon","retry_after_ms":5}')
    assert later == Later(LaterReason.BUSY, 5)


def test_an_answer_says_types_that_were_decided_and_only_those_that_are_known() -> None:
    ack = Ack(AckToken(2, 7), types={"speed": FieldType.NUMBER})
    assert decode_answer(ack.encode()) == ack
    (payload,) = joined([(b"a", ack), (b"b", Ack(AckToken(2, 8)))])
    assert decode_joined(payload) == [(b"a", ack), (b"b", Ack(AckToken(2, 8)))]
    refused = Ack(AckToken(2, 9, dead=True), RejectReason.FIELD_TYPE, "text", ack.types)
    assert decode_answer(refused.encode()) == refused
    newer = decode_answer(b'{"token":"2.7","types":{"a":"colour","b":"string"}}')
    assert newer == Ack(AckToken(2, 7), types={"b": FieldType.STRING})
