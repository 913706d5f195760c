"""Records become events: once, in order, and never a line end among them."""

from __future__ import annotations

import orjson

from edgewake.cloud.log.decode import EVENT_BYTES_MAX, Decoder, Record
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.record import Mode


def stream_record(*values: object, offset: int = 0) -> Record:
    frame_bytes = frame.encode(
        Frame(1, 1, 5, [1000 + i for i in range(len(values))], {"x": list(values)})
    )  # type: ignore[arg-type]
    value = record.encode(
        device="d", stream="s", mode=Mode.ACK, sent_at=1, received_at=2, frame_bytes=frame_bytes
    )
    return Record(offset, 0, value, is_result=False)


def test_a_frame_is_its_readings_in_order_and_flat() -> None:
    first, second = Decoder(1 << 20).events(stream_record(1.5, None))
    assert orjson.loads(first.data) == {
        "stream": "s",
        "device": "d",
        "epoch": 1,
        "seq": 5,
        "t": 1000,
        "received_at": 2,
        "x": 1.5,
    }
    assert "x" not in second.fields


def test_a_result_with_line_ends_is_put_into_one_line() -> None:
    (event,) = Decoder(1 << 20).events(Record(0, 0, b'{"query":"q",\n "n":1}\r\n', is_result=True))
    assert event.data == b'{"query":"q","n":1}'


def test_a_record_that_cannot_be_read_is_counted_and_a_gap_that_says_where() -> None:
    decoder = Decoder(1 << 20)
    values = [(value, result) for value in (b"", b"{", b"[1]", b"{}") for result in (True, False)]
    unreadable = [
        Record(7, 0, value, is_result=result, name="s", partition=3) for value, result in values
    ]
    kinds = [[event.kind for event in decoder.events(r)] for r in unreadable]
    # `{}` is an object, so a result; no record of a stream.
    assert kinds == [["gap"]] * 6 + [[""], ["gap"]]
    assert decoder.unreadable == 7
    (gap,) = decoder.events(unreadable[1])
    expected = {
        "scope": "record",
        "reason": "unreadable",
        "lost": None,
        "stream": "s",
        "partition": 3,
        "offset": 7,
        "bytes": 0,
    }
    assert orjson.loads(gap.data) == gap.fields == expected


def test_an_event_too_large_for_clients_is_a_gap_that_says_so() -> None:
    (event,) = Decoder(1 << 20).events(
        Record(0, 0, orjson.dumps({"query": "q", "x": "y" * EVENT_BYTES_MAX}), is_result=True)
    )
    assert (event.kind, event.fields["reason"], event.fields["query"]) == ("gap", "oversize", "q")


def test_what_is_kept_decoded_has_a_bound() -> None:
    decoder = Decoder(50_000)
    records = [stream_record(*range(10), offset=i) for i in range(50)]
    for r in records:
        decoder.events(r)
    kept = [r for r in records if r.decoded is not None]
    assert 1 <= len(kept) < 10
    assert kept[-1] is records[-1]
