"""Ten thousand devices by one look-up: the words of a stream, a page and a socket in a body."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.access.sockets.talk import places as of_socket
from tests.access.sockets.talk import talk
from tests.access.wanted.reading import places, posted
from tests.access.world import Server, open_stream
from tests.feeds import Feed
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services

MANY = [f"car-{number}" for number in range(9_999)]


def path_of(feed: Feed) -> str:
    return f"/v1/streams/{feed.name}/events"


async def test_ten_thousand_devices_are_read_by_stream_page_and_socket_with_one_cursor(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed], ask: Any
) -> None:
    feed = new_feed(partitions=3)
    for device in ("car-7", "bus-1", "car-9998", "car-10001"):
        feed.send(device, 5)
    wanted = {"devices": [*MANY, "bus-1"], "from": "earliest"}
    async with posted(access_a.url, path_of(feed), wanted | {"where": "n > 1"}) as stream:
        seen = places(await stream.until(6))[:6]
        ids = [one.id for one in stream.heard if one.type == "message"]
    cursor = ids[5]
    page = ask(
        access_b.url, path_of(feed), wanted | {"where": "n > 1", "after": cursor, "limit": 4}
    )
    assert page.status_code == 200, page.text
    assert page.headers["cache-control"] == "no-store"
    seen += places(page.json()["events"])
    async with talk(access_a) as socket:
        await socket.say(
            "subscribe",
            streams=[feed.name],
            where="n > 1",
            devices=wanted["devices"],
            after=page.json()["cursor"],
        )
        seen += of_socket(await socket.take(2))
        assert not [m for m in socket.heard if m["type"] == "gap"], "the same filter everywhere"
    assert sorted(seen) == sorted(
        (device, n) for device in ("bus-1", "car-7", "car-9998") for n in range(2, 6)
    )
    async with open_stream(access_a.url, feed.name, cursor=cursor) as plain:
        (gap,) = await plain.take(1, kinds=frozenset({"gap"}))
        assert "filter_changed" in gap.data, "the cursor tells that it was made for another filter"


async def test_what_comes_later_is_found_by_the_index(access_a: Server, feed: Feed) -> None:
    async with posted(access_a.url, path_of(feed), {"devices": MANY}) as stream:
        await stream.until(1, kind="checkpoint")
        for device in ("bus-1", "car-5", "car-20000", "car-6"):
            feed.send(device)
        feed.gap("bus-1", 3)
        feed.gap("car-5", 4)
        assert places(await stream.until(2)) == [("car-5", 1), ("car-6", 1)]
        (gap,) = await stream.until(1, kind="gap")
        assert (gap["device"], gap["lost"]) == ("car-5", 4)


@pytest.mark.parametrize(
    ("body", "query", "status", "said"),
    [
        ({"devices": []}, "", 400, "expected 1 to 10000"),
        ({"devices": ["a b"]}, "", 400, "device 1, 'a b'"),
        ({"devices": ["x"] * 10_001}, "", 422, "at most 10,000 items"),
        ({"device": ["x"]}, "", 422, "device"),
        ({"where": "n > 1"}, "?where=n>1", 400, "in the address and in the body"),
        ({"devices": ["x"], "max_rate": 5}, "?limit=1", 400, "max_rate is for streams"),
        ({"sample": "0"}, "", 400, "a share such as 0.1"),
        ({"conflate": 5}, "", 400, "milliseconds from 20"),
        ({"per": "device"}, "", 400, "for sample or conflate"),
        ({"where": "device IN SET('never_kept')"}, "", 422, "no set is named 'never_kept'"),
    ],
)
def test_what_is_wrong_in_a_body_is_said(
    access_a: Server, feed: Feed, ask: Any, body: dict[str, Any], query: str, status: int, said: str
) -> None:
    answer = ask(access_a.url, path_of(feed) + query, body)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text


def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    access_a: Server, feed: Feed
) -> None:
    connection = HTTPConnection("127.0.0.1", access_a.port, timeout=PATIENCE_S)
    connection.putrequest("POST", path_of(feed))
    connection.putheader("Content-Length", str(2**20 + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, "too_large" in json.loads(answer.read())["type"]) == (413, True)


def test_several_streams_are_posted_for_together(
    access_a: Server, new_feed: Callable[..., Feed], ask: Any
) -> None:
    one, two = new_feed(), new_feed()
    one.send("a", 2)
    two.send("b", 2)
    two.send("a")
    body = {"streams": [one.name, two.name], "devices": ["a"], "from": "earliest", "limit": 9}
    rows = ask(access_a.url, "/v1/events", body).json()["events"]
    assert sorted((row["stream"] == one.name, row["device"]) for row in rows) == [
        (False, "a"), (True, "a"), (True, "a"),
    ]  # fmt: skip


async def test_a_share_of_the_devices_is_the_same_everywhere_and_a_larger_one_has_it(
    access_a: Server, access_b: Server, feed: Feed, ask: Any
) -> None:
    devices = [f"d-{number}" for number in range(60)]
    for device in devices:
        feed.send(device, 2)

    def seen(base: str, sample: str | float, **more: Any) -> list[tuple[str, int]]:
        body = {"sample": sample, "from": "earliest", "limit": 500, **more}
        return places(ask(base, path_of(feed), body).json()["events"])

    third, again, half = seen(access_a.url, 0.3), seen(access_b.url, "30%"), seen(access_a.url, 0.6)
    assert sorted(third) == sorted(again)
    assert 0 < len({device for device, _ in third}) < len({device for device, _ in half}) < 60
    assert set(third) < set(half)
    assert all((device, 3 - n) in third for device, n in third), "all of a device, or nothing"
    by_number = seen(access_a.url, 0.5, per="n")
    assert len({n for _, n in by_number}) <= 1 or len(by_number) == 120
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", sample=0.3)
        assert sorted(of_socket(await socket.take(len(third)))) == sorted(third)
    assert len(seen(access_a.url, 1)) == 120
