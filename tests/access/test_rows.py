"""Rows of the latest by key, by condition and in pages, on a real server; and long lists of
devices in filters of every protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.sockets.talk import places, talk
from tests.access.world import Server, server
from tests.feeds import Feed
from tests.services import PATIENCE_S, Kafka

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def access_a(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    """A server of which one client may hold everything: others' tests hold a share of theirs."""
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    with server(access_directory, config, cursor_key, address_share=1) as running:
        yield running


async def latest(of: Server, name: str, **words: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=of.url, timeout=PATIENCE_S) as client:
        answer = await client.get(f"/v1/latest/{name}", params=words)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def devices(found: dict[str, Any]) -> list[str]:
    return [row["device"] for row in found["rows"]]


async def test_rows_are_found_by_key_and_by_condition(access_a: Server, feed: Feed) -> None:
    for number in range(12):
        feed.send(f"car-{number:02d}", number + 1)
    found = await latest(access_a, feed.name, key=["car-07", "car-03", "car-99"])
    assert devices(found) == ["car-03", "car-07"]
    assert [row["n"] for row in found["rows"]] == [4, 8]
    found = await latest(access_a, feed.name, where="n > 10")
    assert devices(found) == ["car-10", "car-11"]
    assert "next" not in found
    found = await latest(access_a, feed.name, where="n > 10", key="car-11")
    assert devices(found) == ["car-11"]


async def test_pages_have_every_row_once_while_rows_come_and_change(
    access_a: Server, access_b: Server, feed: Feed
) -> None:
    """What changes meanwhile comes from the stream behind the first page's cursor, at another
    server.
    """
    for number in range(0, 40, 2):
        feed.send(f"car-{number:02d}")
    page = first = await latest(access_a, feed.name, limit=6)
    seen = devices(page)
    turned = 0
    while page["next"] is not None:
        feed.send(f"car-{turned:02d}")  # one behind the place, which comes no more in a page
        turned += 1
        page = await latest(access_a, feed.name, limit=6, after=page["next"])
        seen += devices(page)
    assert seen == sorted(set(seen))
    assert {f"car-{number:02d}" for number in range(0, 40, 2)} <= set(seen)
    async with talk(access_b) as socket:
        await socket.say("subscribe", streams=[feed.name], after=first["cursor"])
        changed = places(await socket.take(turned))
    assert [device for device, _ in changed] == [f"car-{n:02d}" for n in range(turned)]


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        ({"limit": "0"}, 400, "limit"),
        ({"limit": "x"}, 400, "limit"),
        ({"limit": "10001"}, 400, "limit"),
        ({"key": [str(n) for n in range(101)]}, 400, "key"),
        ({"where": "n >"}, 422, "filter"),
        ({"page": "2"}, 400, "parameter"),
    ],
)
async def test_what_is_wrong_is_said(
    access_a: Server, feed: Feed, words: dict[str, Any], status: int, code: str
) -> None:
    async with httpx.AsyncClient(base_url=access_a.url, timeout=PATIENCE_S) as client:
        answer = await client.get(f"/v1/latest/{feed.name}", params=words)
    assert (answer.status_code, answer.json()["title"]) == (status, code)


async def test_a_dispatcher_follows_its_vehicles_by_every_protocol(
    access_a: Server, feed: Feed
) -> None:
    """Two hundred in an address, a thousand in a message; 50 were refused."""
    names = [f"vehicle-{number:05d}" for number in range(1000)]
    for device in ("vehicle-00001", "other", "vehicle-00199", "vehicle-00999"):
        feed.send(device)

    def where(count: int) -> str:
        return "device IN (" + ",".join(f"'{name}'" for name in names[:count]) + ")"

    async with httpx.AsyncClient(base_url=access_a.url, timeout=PATIENCE_S) as client:
        words = {"from": "earliest", "limit": 10, "where": where(200)}
        page = (await client.get(f"/v1/streams/{feed.name}/events", params=words)).json()
    assert {row["device"] for row in page["events"]} == {"vehicle-00001", "vehicle-00199"}
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", where=where(1000))
        seen = {device for device, _ in places(await socket.take(3))}
        assert seen == {"vehicle-00001", "vehicle-00199", "vehicle-00999"}
        await socket.say("subscribe", "b", streams=[feed.name], where=where(1000)[:-1] + ",'x')")
        assert (await socket.until("problem"))["code"] == "filter"
