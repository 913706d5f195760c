"""A request that is sent again under its key is counted once: whatever form it has, whichever
bridge hears it, and though the first one was killed.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.bridge.running import World, read, read_some
from tests.bridge.web.test_http_door import door, post
from tests.services import wait_until


@pytest.mark.long
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
    at_once = "[device]\nmessages_per_s = 1e5\n"  # it sends twenty thousand readings
    urls = [door(here, f"b-dead-{n}", at_once) for n in (1, 2)]
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
