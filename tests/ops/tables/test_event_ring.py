from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sse_starlette import ServerSentEvent

from edgewake.cloud.ops.tables.event_ring import CLIENTS_MAX, RING_EVENTS, EventRing
from edgewake.cloud.web.http_part import Problem
from tests.services import PATIENCE_S


async def take(stream: AsyncIterator[ServerSentEvent], count: int) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        return [(await anext(stream)).encode().decode() for _ in range(count)]


async def test_events_come_as_they_happen_and_an_id_resumes_after_itself() -> None:
    ring = EventRing("b")
    ring.publish([{"n": 1}])
    first = ring._stream(None)
    assert "id: b-1" in (await take(first, 1))[0]
    ring.publish([{"n": 2}, {"n": 3}])
    assert ['data: {"n":2}' in e or 'data: {"n":3}' in e for e in await take(first, 2)] == [
        True,
        True,
    ]
    assert 'data: {"n":3}' in (await take(ring._stream("b-2"), 2))[1]


@pytest.mark.parametrize("unknown", ["old-1", "b-99", "b-x", "", "b"])
async def test_an_id_that_cannot_be_resumed_is_answered_with_a_gap(unknown: str) -> None:
    ring = EventRing("b")
    assert "event: gap" in (await take(ring._stream(unknown), 1))[0]


async def test_a_client_that_the_ring_went_over_is_told_of_the_gap() -> None:
    ring = EventRing("b")
    stream = ring._stream(None)
    await take(stream, 1)
    ring.publish({"n": i} for i in range(RING_EVENTS + 10))
    gap, first = await take(stream, 2)
    assert "event: gap" in gap
    assert 'data: {"n":10}' in first


async def test_streams_end_when_the_server_stops() -> None:
    ring = EventRing("b")
    stream = ring._stream(None)
    await take(stream, 1)
    ring.close()
    with pytest.raises(StopAsyncIteration):
        await take(stream, 1)


async def test_live_streams_are_bounded_for_one_holder_and_for_all() -> None:
    ring = EventRing("b")
    for _ in range(CLIENTS_MAX // 2):
        ring.response(None, holder="ann")
    with pytest.raises(Problem, match="you hold 50 live streams"):
        ring.response(None, holder="ann")
    for number in range(CLIENTS_MAX // 2):
        ring.response(None, holder=f"other-{number}")
    with pytest.raises(Problem, match="already serves 100"):
        ring.response(None, holder="one more")


async def test_a_stream_ends_with_the_right_to_it_and_says_so() -> None:
    ring, allowed = EventRing("b"), [True]
    stream = ring._stream(None, lambda: allowed[0])
    await take(stream, 1)
    allowed.clear()
    allowed.append(False)
    assert "event: ended" in (await take(stream, 1))[0]
    with pytest.raises(StopAsyncIteration):
        await take(stream, 1)
