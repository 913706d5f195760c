"""The parser is WHATWG HTML 9.2.6 to the letter, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.client.sse import EVENT_BYTES_MAX, Event, Parser, SseError


def parsed(*pieces: bytes) -> list[Event]:
    parser = Parser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: one\n\n", [("message", "one", "")]),
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [("message", "YHOO\n+2\n10", "")]),
        (b": test\n\ndata: first\nid: 1\n\ndata:second\nid\n\n",
            [("message", "first", "1"), ("message", "second", "")]),
        (b"data:  third\n\n", [("message", " third", "")]),
        (b"data\n\ndata\ndata\n\ndata:", [("message", "", ""), ("message", "\n", "")]),
        (b"data:test\n\ndata: test\n\n", [("message", "test", ""), ("message", "test", "")]),
        (b"event: gap\ndata: x\n\ndata: y\n\n", [("gap", "x", ""), ("message", "y", "")]),
        (b"event: gap\n\ndata: y\n\n", [("message", "y", "")]),
        (b"\xef\xbb\xbfdata: bom\n\n", [("message", "bom", "")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: twice\n\n", []),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\n\n",
            [("message", "a", ""), ("message", "b", ""), ("message", "c", "")]),
        (b"id: 1\0\ndata: x\n\n", [("message", "x", "")]),
        (b"id: 5\n\ndata: x\n\n", [("message", "x", "5")]),
        (b"Data: x\nfoo: y\n\n", []),
        (b"data: torn", []),
        (b"data: torn\n", []),
        ("data: \u2028\x85\n\n".encode(), [("message", "\u2028\x85", "")]),
        (b"data: \xff\n\n", [("message", "\ufffd", "")]),
    ],
)  # fmt: skip
def test_a_stream_means_what_the_standard_says(
    stream: bytes, events: list[tuple[str, str, str]]
) -> None:
    assert [(event.type, event.data, event.id) for event in parsed(stream)] == events


LINES = [
    b"data: x",
    b"data:",
    b"id: 1",
    b"id",
    b"event: e",
    b": c",
    b"retry: 5",
    b"",
    b"\xef\xbb\xbfdata: y",
    b"data: \xc3\xa9",
]


@given(
    st.lists(st.sampled_from(LINES), max_size=12),
    st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=12, max_size=12),
    st.lists(st.integers(0, 120), max_size=8),
)
def test_cuts_make_no_difference(lines: list[bytes], ends: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert parsed(*pieces) == parsed(stream)
    assert parsed(*(stream[i : i + 1] for i in range(len(stream)))) == parsed(stream)


@given(st.text())
def test_what_an_event_holds_is_what_was_put_in(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    stream = "".join(f"data: {line}\n" for line in lines) + "\n"
    (event,) = parsed(stream.encode("utf-8", "replace"))
    assert event.data == "\n".join(lines).encode("utf-8", "replace").decode()


def test_an_id_without_data_moves_the_place_and_is_no_event() -> None:
    parser = Parser("before")
    assert parser.feed(b"id: after\n\n") == []
    assert parser.last_event_id == "after"


def test_an_id_counts_only_once_its_block_is_whole() -> None:
    parser = Parser("before")
    parser.feed(b"id: after\n")
    assert parser.last_event_id == "before"


@pytest.mark.parametrize(
    ("line", "ms"),
    [
        (b"retry: 1500", 1500),
        (b"retry:7", 7),
        (b"retry: x", None),
        (b"retry: -1", None),
        (b"retry", None),
    ],
)
def test_retry_is_digits_or_nothing(line: bytes, ms: int | None) -> None:
    parser = Parser()
    parser.feed(line + b"\n")
    assert parser.retry_ms == ms


def test_a_stream_without_line_ends_is_refused_before_it_fills_the_memory() -> None:
    parser = Parser()
    for _ in range(EVENT_BYTES_MAX // 65536):
        parser.feed(b"x" * 65536)
    with pytest.raises(SseError):
        parser.feed(b"x" * 65536)


def test_a_wait_that_is_no_sensible_number_is_none() -> None:
    parser = Parser()
    parser.feed(b"retry: 500\nretry: " + b"9" * 5000 + b"\nretry: -1\nretry: 1e3\nretry:\n")
    assert parser.retry_ms == 500


def test_comments_keep_a_connection_alive_for_as_long_as_it_likes() -> None:
    parser, month = Parser(), b": a comment a second\n" * 10_000
    for _ in range(15):
        assert parser.feed(month) == []
    assert 15 * len(month) > EVENT_BYTES_MAX
    parser.feed(month.replace(b":", b"data:") * 9)
    with pytest.raises(SseError):
        parser.feed(b"data: more\n")
