from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sse_starlette import ServerSentEvent

from edgewake.cloud.ops.tables.event_ring import CLIENTS_MAX, RING_EVENTS, EventRing
from edgewake.cloud.web import Problem
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
    assert ['data: {"n":2}' in e or 'data: {"n":3}' in e for e in await take(first, 2)] == [True, True]
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


async def test_live_streams_are_bounded() -> None:
    ring = EventRing("b")
    streams = [ring._stream(None) for _ in range(CLIENTS_MAX)]
    for stream in streams:
        await take(stream, 1)
    with pytest.raises(Problem):
        ring.response(None)
    for stream in streams:
        await stream.aclose()
    ring.response(None)
