"""The event stream parser against a second one, written as the standard is: a whole text, line by
line, no pieces, no state kept back.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.client.sse import EVENT_BYTES_MAX, RETRY_DIGITS_MAX, Event, Parser, SseError


def reference(data: bytes, last_id: str = "") -> tuple[list[Event], str, int | None]:
    """WHATWG HTML 9.2.5 and 9.2.6: the events of a whole stream, the last event id, the
    reconnection time.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _unfinished = re.split("\r\n|\n|\r", text)
    events, retry = list[Event](), None
    buffer, kind, current, final = list[str](), "", last_id, last_id
    for line in lines:
        if line == "":
            final = current
            if buffer:
                events.append(Event(kind or "message", "\n".join(buffer), final))
            buffer, kind = [], ""
            continue
        name, colon, value = line.partition(":")
        value = value[1:] if colon and value[:1] == " " else value
        if name == "data":
            buffer.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            current = value
        elif name == "retry" and re.fullmatch(f"[0-9]{{1,{RETRY_DIGITS_MAX}}}", value):
            retry = int(value)
    return events, final, retry


def parsed(pieces: list[bytes], last_id: str = "") -> tuple[list[Event], str, int | None]:
    parser = Parser(last_id)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events, parser.last_event_id, parser.retry_ms


WORDS = st.sampled_from(
    [b"data", b"event", b"id", b"retry", b"other", b":", b": ", b" ", b"\n", b"\r", b"\r\n",
        b"\n\n", b"\0", b"\t", b"1", b"250", b"x",
     "é".encode(), b"\xff", b"\xef\xbb\xbf", b"\xef", b"\xbb", "\u2028".encode(), b"data:", b"id:",
     b"event:", b"retry:", b"data: a\n\n"]
)  # fmt: skip


@given(
    st.lists(WORDS, max_size=40).map(b"".join),
    st.lists(st.integers(0, 200), max_size=12),
    st.sampled_from(["", "before"]),
)
def test_any_stream_in_any_pieces_is_what_the_standard_says(
    data: bytes, cuts: list[int], last_id: str
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[begin:end] for begin, end in pairwise(edges)]
    assert parsed(pieces, last_id) == reference(data, last_id)


@given(st.lists(WORDS, max_size=30).map(b"".join))
def test_byte_by_byte_is_as_all_at_once(data: bytes) -> None:
    assert parsed([data[at : at + 1] for at in range(len(data))]) == parsed([data])


@given(st.lists(WORDS, max_size=20).map(b"".join), st.lists(WORDS, max_size=20).map(b"".join))
def test_after_any_nonsense_the_next_event_is_whole(nonsense: bytes, more: bytes) -> None:
    """Two line ends begin anew, whatever came before: one bad event costs itself."""
    clean = b"\n\ndata: after\n\n"
    events, _, _ = parsed([nonsense + clean + more])
    assert "after" in [event.data for event in events]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data\n\n", [Event("message", "", "")]),
        (b"data:\n\n", [Event("message", "", "")]),
        (b"data\ndata\n\n", [Event("message", "\n", "")]),
        (b"data:  two spaces\n\n", [Event("message", " two spaces", "")]),
        (b"data:a:b\n\n", [Event("message", "a:b", "")]),
        (b"Data: x\n\n", []),
        (b" data: x\n\n", []),
        (b"data : x\n\n", []),
        (b"event: e\n\ndata: x\n\n", [Event("message", "x", "")]),
        (b"event: e\nevent: f\ndata: x\n\n", [Event("f", "x", "")]),
        (b"event\ndata: x\n\n", [Event("message", "x", "")]),
        (b"id: 1\nid: 2\ndata: x\n\n", [Event("message", "x", "2")]),
        (b"data: x\nid: 1\n\n", [Event("message", "x", "1")]),
        (b"id: 1\n\nid: 2\0\ndata: x\n\n", [Event("message", "x", "1")]),
        (b":comment\n:\n\n", []),
        (b"data: x\n", []),
        (b"data: x\r\r", [Event("message", "x", "")]),
        (b"data: x\r\n\r", [Event("message", "x", "")]),
    ],
    ids=range(18),
)
def test_examples_of_the_standard_and_beside_it(stream: bytes, events: list[Event]) -> None:
    assert parsed([stream])[0] == events == reference(stream)[0]


@pytest.mark.parametrize("over", [0, 1])
def test_an_event_of_just_the_bound_is_read_and_one_byte_more_is_not(over: int) -> None:
    """Counted with the names of its lines: what is kept in memory."""
    parser = Parser()
    line = b"data:" + b"x" * 65_531 + b"\n"
    whole = EVENT_BYTES_MAX // (len(line) - 1)
    for _ in range(whole):
        parser.feed(line)
    rest = EVENT_BYTES_MAX - whole * (len(line) - 1)
    if over:
        with pytest.raises(SseError, match="more than"):
            parser.feed(b"y" * (rest + 1))
    else:
        assert parser.feed(b"y" * rest) == []
        (event,) = parser.feed(b"\n\n")
        assert len(event.data) == whole * 65_531 + whole - 1


def test_after_an_event_its_bytes_count_no_more() -> None:
    parser = Parser()
    for _ in range(5):
        assert len(parser.feed(b"data:" + b"x" * (EVENT_BYTES_MAX // 2) + b"\n\n")) == 1


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (3,), (1, 2), (1, 2, 3), (1, 3)])
@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"\xef\xbb\xbfdata: x\n\n", ["x"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
        (b"\xef\xbbdata: x\n\n", []),
        (b"\xefdata: x\n\n", []),
        (b"\xef\xbb\n\ndata: x\n\n", ["x"]),
        (b"\n\xef\xbb\xbfdata: x\n\n", []),
    ],
    ids=["one", "two", "two thirds", "a third", "two thirds in a line", "on the second line"],
)
def test_a_byte_order_mark_is_passed_over_however_it_comes_and_nothing_else_is(
    stream: bytes, data: list[str], cuts: tuple[int, ...]
) -> None:
    edges = [0, *cuts, len(stream)]
    events, _, _ = parsed([stream[begin:end] for begin, end in pairwise(edges)])
    assert [event.data for event in events] == data
