"""Frames of a WebSocket as a server sends them."""

from __future__ import annotations

import orjson
import pytest
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from edgewake.cloud.access.socket_wire import Shown, events, message, text_frame


def read(data: bytes) -> Frame:
    """As another library reads it."""
    reader = StreamReader()
    reader.feed_data(data)
    parser = Frame.parse(reader.read_exact, mask=False)
    try:
        while True:
            next(parser)
    except StopIteration as end:
        found: Frame = end.value
        return found


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_of_any_length_is_read_by_another_library(size: int) -> None:
    data = b"x" * size
    assert read(text_frame(data[: size // 2], data[size // 2 :])) == Frame(Opcode.TEXT, data)


def test_events_and_messages_are_json() -> None:
    assert orjson.loads(read(events('a"b', b'{"n":1},{"n":2}', 3)).data) == {
        "type": "events",
        "id": 'a"b',
        "events": [{"n": 1}, {"n": 2}],
        "superseded": 3,
    }
    assert orjson.loads(read(message("end", id="a", reason="slow", cursor=None)).data) == {
        "type": "end",
        "id": "a",
        "reason": "slow",
    }


def test_a_chunk_is_cut_where_credits_end_and_its_reader_stands_there() -> None:
    texts = [b'{"n":1}', b'{"n":22}', b'{"n":3}']
    shown = Shown(b",".join(texts), [7, 16, 24], [(0, 0, (1, 0)), (0, 1, (5, 0)), (0, 0, (2, 0))])
    for first in range(3):
        for last in range(first + 1, 4):
            assert shown.part(first, last) == b",".join(texts[first:last])
    start = (((0, 0), (4, 0)),)
    assert [shown.positions(start, passed) for passed in range(4)] == [
        start,
        (((1, 0), (4, 0)),),
        (((1, 0), (5, 0)),),
        (((2, 0), (5, 0)),),
    ]
