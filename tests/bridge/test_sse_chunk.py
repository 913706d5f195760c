"""Chunks of feeds, gathered from an event stream. Pure."""

from __future__ import annotations

from dataclasses import replace

import orjson

from edgewake.cloud.bridge.sse_chunk import GAPS_MAX, ROOM_BYTES, Gathering
from edgewake.protocol.downlink.downlink import MESSAGE_BYTES_MAX
from edgewake.protocol.downlink.feed import CHUNK_BYTES, FeedAsk, FeedChunk, decode

ASK = FeedAsk(feed="weather", streams=("city",), after="c0")


def fed(gathering: Gathering, *blocks: str) -> Gathering:
    for block in blocks:
        for line in (block + "\n").split("\n")[:-1]:
            gathering.line(line)
        gathering.line("")
    return gathering


def event(n: int, text: str = "") -> str:
    return f"id: c{n}\ndata: " + orjson.dumps({"n": n, "text": text}).decode()


GAP = (
    "event: gap\ndata: "
    '{"scope":"cursor","reason":"retention","stream":"city","from":5,"lost":7,'
    '"continues":"earliest"}'
)
SHOWN_GAP = {"scope": "cursor", "reason": "retention", "stream": "city", "from": 5, "lost": 7}


def test_events_and_the_last_cursor_become_a_chunk_and_the_rest_is_passed_over() -> None:
    found = fed(
        Gathering(ASK),
        "retry: 1500",
        ":",
        event(2),
        'event: warning\ndata: {"code":"x"}',
        'id: c3\nevent: watermark\ndata: {"query":"q"}',
    ).chunk()
    assert found == FeedChunk(
        feed="weather", after="c0", cursor="c3", events=({"n": 2, "text": ""},)
    )


def test_a_gap_stands_where_it_is_in_a_chunk_of_its_own() -> None:
    """What follows is left for the next chunk, which asks with the cursor of this one."""
    blocks = [
        event(1),
        f"id: c2\n{GAP}",
        f"id: c3\n{GAP}",
        event(4, "x" * ROOM_BYTES),
        "id: c4\nevent: watermark\ndata: {}",
        event(5),
    ]
    before = fed(Gathering(ASK), *blocks)
    assert before.is_full
    assert before.chunk() == FeedChunk(
        feed="weather", after="c0", cursor="c1", events=({"n": 1, "text": ""},)
    )
    gaps = fed(Gathering(replace(ASK, after="c1")), *blocks[1:]).chunk()
    assert (gaps.cursor, gaps.events) == ("c4", ())
    assert gaps.gaps == (SHOWN_GAP, SHOWN_GAP, {"reason": "too_large", "lost": 1})
    assert fed(Gathering(replace(ASK, after="c4")), blocks[-1]).chunk().events == (
        {"n": 5, "text": ""},
    )


def test_only_what_the_device_should_know_soon_ends_the_waiting() -> None:
    moved = fed(Gathering(ASK), 'id: c1\nevent: checkpoint\ndata: {"cursor":"c1"}')
    assert (moved.has_something, moved.chunk().cursor) == (False, "c1")
    first = fed(
        Gathering(replace(ASK, after="")), 'id: c1\nevent: checkpoint\ndata: {"cursor":"c1"}'
    )
    assert first.has_something, "where it began is to be kept"


def test_a_chunk_is_bounded_and_what_follows_is_left_for_the_next_one() -> None:
    gathering = Gathering(ASK)
    n = 0
    while not gathering.is_full:
        n += 1
        fed(gathering, event(n, "x" * 1000))
    fed(gathering, event(n + 1))
    chunk = gathering.chunk()
    assert (len(chunk.events), chunk.cursor) == (n, f"c{n}")
    payload = chunk.to_json()
    assert CHUNK_BYTES <= len(payload) <= MESSAGE_BYTES_MAX
    assert decode(FeedChunk, payload) == chunk


def test_the_largest_event_after_an_almost_full_chunk_still_fits_and_a_larger_one_is_a_gap() -> (
    None
):
    room = ROOM_BYTES - CHUNK_BYTES
    gathering = fed(
        Gathering(ASK), *(event(n, "x" * 990) for n in range(31)), event(98, "x" * (room - 30))
    )
    assert gathering.is_full
    assert len(gathering.chunk().to_json()) <= MESSAGE_BYTES_MAX
    found = fed(Gathering(ASK), event(1, "x" * room)).chunk()
    assert (found.events, found.gaps, found.cursor) == (
        (),
        ({"reason": "too_large", "lost": 1},),
        "c1",
    )


def test_texts_of_any_alphabet_count_by_their_bytes() -> None:
    """A character of Chinese has three: a chunk that was counted in characters was larger than a
    device takes, and it asked for the same one for ever.
    """
    gathering = Gathering(ASK)
    fed(gathering, *(event(n, "雨" * 1000) for n in range(100)))
    chunk = gathering.chunk()
    assert decode(FeedChunk, chunk.to_json()) == chunk
    assert (len(chunk.events), chunk.cursor) == (11, "c10")
    large = fed(Gathering(ASK), event(1, "雨" * (ROOM_BYTES // 8))).chunk()
    assert (large.events, large.gaps) == ((), ({"reason": "too_large", "lost": 1},))


def test_gaps_are_bounded_and_a_problem_ends_it() -> None:
    gathering = fed(
        Gathering(ASK),
        *(f'id: c{n}\nevent: gap\ndata: {{"reason":"retention"}}' for n in range(GAPS_MAX + 3)),
    )
    assert (len(gathering.chunk().gaps), gathering.chunk().cursor) == (GAPS_MAX, f"c{GAPS_MAX - 1}")
    ended = fed(
        Gathering(ASK), 'event: problem\ndata: {"code":"x","detail":"its topic is gone"}'
    ).chunk()
    assert (ended.error, ended.cursor) == ("its topic is gone", "c0")
