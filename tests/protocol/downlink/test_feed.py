"""Questions of devices that follow streams, and the chunks that answer them."""

from __future__ import annotations

import pytest

from edgewake.protocol.downlink.downlink import MESSAGE_BYTES_MAX
from edgewake.protocol.downlink.feed import ASK_BYTES_MAX, FeedAsk, FeedChunk, decode
from edgewake.protocol.errors import Rejected, RejectReason


def test_a_question_and_its_chunk_are_read_as_they_were_written() -> None:
    ask = FeedAsk(feed="weather", streams=("city_weather",), begin="earliest", where="t > 3")
    chunk = FeedChunk(
        feed="weather", after="", cursor="v2.x", events=({"t": 1},), gaps=({"reason": "age"},)
    )
    assert decode(FeedAsk, ask.to_json()) == ask
    assert decode(FeedChunk, chunk.to_json()) == chunk


def test_a_chunk_says_nothing_of_what_is_empty() -> None:
    assert FeedChunk(feed="weather", after="").to_json() == b'{"feed":"weather","after":""}'


@pytest.mark.parametrize(
    ("payload", "reason"),
    [(b" " * (ASK_BYTES_MAX + 1), RejectReason.OVERSIZE), (b"{", RejectReason.JSON),
     (b"[]", RejectReason.SHAPE), (b'{"feed":"w","streams":[]}', RejectReason.SHAPE),
     (b'{"feed":"w","streams":["s"],"after":"\xc3\xa4"}', RejectReason.SHAPE)],
)  # fmt: skip
def test_what_is_no_question_is_refused_with_its_reason(
    payload: bytes, reason: RejectReason
) -> None:
    with pytest.raises(Rejected) as refused:
        decode(FeedAsk, payload)
    assert refused.value.reason is reason


def test_a_chunk_may_be_as_large_as_a_message() -> None:
    head = b'{"feed":"weather","after":"","error":"x"'
    whole = head + b" " * (MESSAGE_BYTES_MAX - len(head) - 1) + b"}"
    assert decode(FeedChunk, whole).error == "x"
    with pytest.raises(Rejected, match="oversize"):
        decode(FeedChunk, whole + b" ")
