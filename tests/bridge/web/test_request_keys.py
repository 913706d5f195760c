"""A request that is sent again under its key is counted once: whatever form it has, whichever
bridge hears it, and though the first one was killed.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.bridge.admission.request_key import numbered, of_request, placement_of
from edgewake.cloud.sequencer.order.arrival import Arrival, Statement
from edgewake.cloud.sequencer.order.bounds import KEYS_MAX, Bounds
from edgewake.cloud.sequencer.order.frame_order import FrameOrder
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames import record
from edgewake.protocol.frames.record import Discipline
from tests.bridge.running import World, read, read_some
from tests.bridge.web.test_http_door import door, post
from tests.services import wait_until

DAY_MS = 86_400_000


def arrival(offset: int, key: str, index: int, *, at_ms: int = 0) -> Arrival:
    placement = placement_of(numbered(key, index), "s", b"")
    assert placement is not None
    assert placement.discipline is Discipline.KEYED
    return Arrival(offset, "d", placement, 10, 1_790_000_000_000 + at_ms)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1500)), min_size=1, max_size=12))
def test_of_requests_that_are_sent_again_in_parts_each_reading_passes_once(
    sent: list[tuple[int, int]],
) -> None:
    """Each try is a beginning of its request, as bridges send it, a minute after the one before."""
    order = FrameOrder(Bounds())
    passed: list[tuple[int, int]] = []
    offset = 0
    for at, (key, count) in enumerate(sent):
        for index in range(count):
            one = arrival(offset, f"k{key}", index, at_ms=at * 120_000)
            offset += 1
            out = order.accept(one, now_s=0.0)
            assert not any(isinstance(each, Statement) for each in out)
            passed += [(key, index)] * len(out)
    most = {key: max(count for other, count in sent if other == key) for key, _ in sent}
    wanted = {(key, index) for key, count in most.items() for index in range(count)}
    assert len(passed) == len(set(passed))
    assert set(passed) == wanted


def test_the_keys_of_a_device_are_bounded_and_cost_no_other() -> None:
    order = FrameOrder(Bounds())
    offset = 0
    for number in range(3 * KEYS_MAX):
        assert order.accept(arrival(offset, f"k{number}", 0, at_ms=number * 1000), now_s=0.0)
        offset += 1
    assert len(order.table) == KEYS_MAX
    again = [
        bool(order.accept(arrival(offset + n, f"k{n}", 0, at_ms=DAY_MS), now_s=0.0))
        for n in reversed(range(3 * KEYS_MAX - KEYS_MAX // 2, 3 * KEYS_MAX))
    ]
    assert not any(again), "the last ones are known"


def test_other_contents_under_a_key_are_another_request() -> None:
    assert of_request("k", b"1") != of_request("k", b"2")
    first, second = (placement_of([("idempotency_key", "k")], "s", one) for one in (b"1", b"2"))
    assert first != second
    assert placement_of([("sent_at", "1")], "s", b"1") is None


@pytest.mark.parametrize(
    "properties",
    [
        [("idempotency_key", "")],
        [("idempotency_key", "x" * 201)],
        [("idempotency_key", "k"), ("idempotency_index", "-1")],
    ],
)
def test_a_key_that_is_none_is_refused(properties: list[tuple[str, str]]) -> None:
    with pytest.raises(Rejected, match="expected"):
        placement_of(properties, "s", b"{}")


async def test_requests_of_every_form_are_counted_once_at_whichever_bridge(here: World) -> None:
    urls = [door(here, f"b-key-{n}") for n in (1, 2)]
    here.sequencer()
    event = {"specversion": "1.0", "source": "ev-1", "id": "7", "type": "keyed_ce"}
    binary = {
        "ce_specversion": "1.0", "ce_source": "ev-1", "ce_type": "keyed_ce",
        "Content_Type": "application/json",
    }  # fmt: skip
    lines = "\n".join(f"keyed_influx,host=in-1 v={n}" for n in range(200)).encode()
    several = json.dumps([{"x": n} for n in range(100)]).encode()
    sent: list[tuple[str, bytes, dict[str, str]]] = [
        ("/write?db=d", lines, {"Idempotency_Key": "a"}),
        ("/ew/v1/kd-1/up/keyed_list", several, {"Idempotency_Key": "a"}),
        ("/", json.dumps(event | {"data": {"x": 1}}).encode(),
         {"Content_Type": "application/cloudevents+json"}),
        ("/", b'{"x": 2}', binary | {"ce_id": "8"}),
        ("/", b'{"x": 2}', binary | {"ce_id": "9"}),
    ]  # fmt: skip
    for path, body, headers in sent:
        for url in (*urls, urls[0]):
            got = await post(url + path, body, **headers)
            assert got.status_code in (200, 204), got.text
    assert (await post(f"{urls[0]}/ew/v1/kd-1/up/keyed_list", several)).status_code == 200
    wanted = {
        ("keyed_influx", "in-1"): list(range(200)),
        ("keyed_list", "kd-1"): [*range(100), *range(100)],  # the last had no key: the control
        ("keyed_ce", "ev-1"): [1, 2, 2],
    }
    for (stream, device), values in wanted.items():
        found = await _values(here, stream, device, len(values))
        assert found == values
    dropped = await _values(here, "keyed_influx", "in-1", 0, raw=True)
    assert len(dropped) == 600, "control: the bridges wrote each of them three times"


async def _values(
    here: World, stream: str, device: str, count: int, *, raw: bool = False
) -> list[Any]:
    topic = topics.UP if raw else topics.stream_topic(stream)
    messages = (
        read(here.config, topic, device=device)
        if raw
        else await read_some(here.config, topic, device, count)
    )
    records = [record.decode(one.value() or b"") for one in messages]
    fields = [one.frame.fields for one in records if one.stream == stream]
    return [next(one[name][0] for name in ("v", "x") if name in one) for one in fields]


async def test_a_killed_bridge_s_request_is_finished_by_another_one(here: World) -> None:
    """Killed while it takes requests; their sender heard no answer and sends them again."""
    urls = [door(here, f"b-dead-{n}") for n in (1, 2)]
    here.sequencer()
    victim = here.parts[0]
    bodies = [
        json.dumps([{"x": request * 1000 + n} for n in range(500)]).encode()
        for request in range(40)
    ]
    unanswered: list[int] = []

    async def send(number: int, url: str) -> bool:
        headers = {"Idempotency-Key": f"request-{number}"}
        try:
            async with httpx.AsyncClient(timeout=30) as client:
                got = await client.post(
                    f"{url}/ew/v1/kd-2/up/keyed_kill", content=bodies[number], headers=headers
                )
        except httpx.TransportError:
            return False
        return got.status_code == 200

    async def kill() -> None:
        taken = 'edgewake_bridge_messages_total{outcome="acked"}'
        await asyncio.to_thread(
            wait_until, lambda: here.metric("b-dead-1", taken) > 1000, "it has begun"
        )
        victim.kill()

    killing = asyncio.create_task(kill())
    for number in range(len(bodies)):
        if not await send(number, urls[0]):
            unanswered.append(number)
    await killing
    assert unanswered, "it was killed when all was done: the test shows nothing"
    for number in unanswered:
        assert await send(number, urls[1])
    for number in range(3):  # those that were answered, too
        assert await send(number, urls[1])
    found = await _values(here, "keyed_kill", "kd-2", 500 * len(bodies))
    assert sorted(found) == [
        request * 1000 + n for request in range(len(bodies)) for n in range(500)
    ]
