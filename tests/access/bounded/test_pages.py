"""Bounded reads: pages that end at their limit, at the live end, or when time is up, with the
cursor of exactly what they have.
"""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import orjson
import pytest

from edgewake.cloud.access.bounded.answer import VARY
from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, open_stream
from tests.feeds import DEADLINE_S, Feed, QueryFeed
from tests.services import PATIENCE_S


async def get(
    server: Server,
    name: str,
    *,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    **query: Any,
) -> httpx.Response:
    words = {key.rstrip("_"): value for key, value in query.items()}
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
        return await client.get(f"/v1/streams/{name}/events", params=words, headers=headers)


async def page(server: Server, name: str, **query: Any) -> dict[str, Any]:
    answer = await get(server, name, **query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def places(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(event["device"], int(event["n"])) for event in events]


async def test_pages_one_after_the_other_have_every_event_once_and_end_at_the_live_end(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    """In order of each device, also where a page ends within a frame, and on another server each
    time.
    """
    feed = new_feed(partitions=3)
    for device in ("a", "b", "c"):
        feed.send(device, 7, frames=20)
    seen: list[tuple[str, int]] = []
    found = await page(access_a, feed.name, from_="earliest", limit=50)
    while True:
        assert len(found["events"]) <= 50
        seen += places(found["events"])
        if found["live"]:
            break
        assert len(found["events"]) == 50, "it ends before the live end at its limit only"
        found = await page(
            access_b if len(seen) % 100 else access_a, feed.name, after=found["cursor"], limit=50
        )
    assert sorted(seen) == [(device, n) for device in ("a", "b", "c") for n in range(1, 141)]
    assert all(
        [n for device, n in seen if device == one] == list(range(1, 141)) for one in ("a", "b", "c")
    )


async def test_a_page_and_a_stream_have_one_cursor(access_a: Server, feed: Feed) -> None:
    feed.send(n=5)
    found = await page(access_a, feed.name, from_="earliest", limit=2)
    async with open_stream(access_a.url, feed.name, cursor=found["cursor"]) as stream:
        third, fourth = await stream.take(2)
    assert [orjson.loads(event.data)["n"] for event in (third, fourth)] == [3, 4]
    cursor = fourth.id
    rest = await page(access_a, feed.name, last_event_id=cursor, limit=10)
    assert (places(rest["events"]), rest["live"]) == ([("dev-1", 5)], True)


async def test_who_waits_is_answered_with_the_first_event_and_no_later_than_asked(
    access_a: Server, feed: Feed
) -> None:
    start = await page(access_a, feed.name, limit=1)
    assert (start["events"], start["live"]) == ([], True)
    waiting = asyncio.create_task(page(access_a, feed.name, after=start["cursor"], wait=30))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await asyncio.to_thread(feed.send)
    async with asyncio.timeout(DEADLINE_S):
        found = await waiting
    assert (places(found["events"]), found["live"]) == ([("dev-1", 1)], True)
    began = time.monotonic()
    again = {"after": found["cursor"], "wait": 1.5}
    first = asyncio.create_task(get(access_a, feed.name, **again))
    await asyncio.sleep(0.75)  # who comes while another one waits is served by the next reading
    for answer in (await get(access_a, feed.name, **again), await first):
        assert answer.json() | {"events": [], "live": True} == answer.json()
        assert "no-cache" in answer.headers["cache-control"]
    empty = await page(access_a, feed.name, after=found["cursor"], wait=1)
    assert (empty["events"], empty["live"]) == ([], True)
    assert 0.9 <= time.monotonic() - began < 15


async def test_filters_hold_and_what_they_hide_moves_the_cursor(
    access_a: Server, feed: Feed
) -> None:
    feed.send(n=40)
    found = await page(access_a, feed.name, from_="earliest", where="n > 38", select="n", limit=10)
    assert [event["n"] for event in found["events"]] == [39, 40]
    hidden = await page(access_a, feed.name, from_="earliest", where="n > 100", limit=10)
    assert (hidden["events"], hidden["live"]) == ([], True)
    assert (await page(access_a, feed.name, after=hidden["cursor"], where="n > 0"))["events"] == [
        {
            "$event": "gap",
            "scope": "cursor",
            "reason": "filter_changed",
            "lost": 0,
            "continues": "here",
        }
    ]


async def test_lines_have_the_events_and_last_the_cursor(access_a: Server, feed: Feed) -> None:
    feed.send(n=3)
    answer = await get(
        access_a, feed.name, from_="earliest", limit=2, headers={"Accept": "application/x-ndjson"}
    )
    assert answer.headers["content-type"] == "application/x-ndjson"
    *events, end = [orjson.loads(line) for line in answer.text.splitlines()]
    assert places(events) == [("dev-1", 1), ("dev-1", 2)]
    assert end == {"$event": "end", "cursor": answer.headers["edgewake-cursor"], "live": False}


@pytest.mark.parametrize(
    ("words", "headers"),
    [
        ({"format": "csv"}, {}),
        ({"format": "csv"}, {"Accept": "text/html"}),
        ({}, {"Accept": "text/csv"}),
    ],
)
async def test_a_spreadsheet_is_given_a_table_and_goes_on_behind_it(
    access_a: Server, feed: Feed, words: dict[str, Any], headers: dict[str, str]
) -> None:
    feed.send(n=3)
    first = await get(access_a, feed.name, headers=headers, from_="earliest", limit=2, **words)
    assert first.headers["content-type"] == "text/csv; charset=utf-8"
    assert first.headers["edgewake-live"] == "false"
    cursor = first.headers["edgewake-cursor"]
    second = await get(access_a, feed.name, after=cursor, headers=headers, **words)
    found = [row for answer in (first, second) for row in csv.DictReader(answer.text.splitlines())]
    assert [(row["device"], row["n"]) for row in found] == [
        ("dev-1", "1.0"),
        ("dev-1", "2.0"),
        ("dev-1", "3.0"),
    ]


async def test_gaps_and_watermarks_stand_among_the_events(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed], query_feed: QueryFeed
) -> None:
    query_feed.batch(1, [{"device": "a", "window_start": 0, "value": 1}], 10_000)
    events = (await page(access_a, query_feed.name, from_="earliest", limit=10))["events"]
    assert [event.get("$event") for event in events] == [None, "watermark"]
    assert events[1]["watermark"] == 10_000
    feed = new_feed(partitions=1)
    feed.send(frames=5)
    start = await page(access_a, feed.name, from_="earliest", limit=1)
    feed.trim(0, 4)  # what access_a has in memory it still shows; access_b has never read it
    gap, *rest = (await page(access_b, feed.name, after=start["cursor"], limit=10))["events"]
    assert (gap["$event"], gap["reason"], gap["continues"]) == ("gap", "retention", "earliest")
    assert places(rest) == [("dev-1", 5)]
    stopped = await page(access_b, feed.name, after=start["cursor"], on_gap="stop")
    assert ([event.get("reason") for event in stopped["events"]], stopped["live"]) == (
        ["retention"],
        False,
    )
    assert (await page(access_b, feed.name, after=stopped["cursor"], on_gap="stop"))["events"] == []
    assert (
        len(
            (await page(access_b, feed.name, after=stopped["cursor"], on_gap="earliest"))["events"][
                1:
            ]
        )
        == 1
    )


async def test_a_full_page_may_be_kept_and_the_live_end_is_asked_for_by_its_etag(
    access_a: Server, feed: Feed
) -> None:
    feed.send(n=4)
    first = await get(access_a, feed.name, from_="earliest", limit=2)
    assert first.headers["cache-control"] == "no-store", (
        "where it begins is another place each time"
    )
    after = first.json()["cursor"]
    full, again = [await get(access_a, feed.name, after=after, limit=1) for _ in range(2)]
    assert (full.headers["cache-control"], full.content) == ("public, max-age=60", again.content)
    live = await get(access_a, feed.name, after=after, limit=10)
    assert (live.headers["cache-control"], live.headers["vary"], live.headers["edgewake-live"]) == (
        "public, no-cache",
        VARY,
        "true",
    )
    tag = live.headers["etag"]
    for sent in ([tag], [f"W/{tag}"], [f'"x", {tag}'], ['"x"', tag], ["*"]):
        headers = [("If-None-Match", one) for one in sent]
        same = await get(access_a, feed.name, after=after, limit=10, headers=headers)
        assert (same.status_code, same.content, same.headers["etag"]) == (
            304,
            b"",
            live.headers["etag"],
        )
    await asyncio.to_thread(feed.send)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            more = await get(
                access_a,
                feed.name,
                after=after,
                limit=10,
                headers={"If-None-Match": live.headers["etag"]},
            )
            if more.status_code == 200:
                break
    assert len(more.json()["events"]) == 3


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"format": "xlsx"}, "format"),
        ({"limit": "0"}, "limit"),
        ({"limit": "10001"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"wait": "61"}, "wait"),
        ({"wait": "-1"}, "wait"),
        ({"wait": "nan"}, "wait"),
        ({"after": "x"}, "cursor_garbage"),
        ({"limit": "5", "from": "yesterday"}, "from"),
    ],
)
async def test_a_wrong_bound_is_refused_by_name(
    access_a: Server, feed: Feed, query: dict[str, str], code: str
) -> None:
    answer = await get(access_a, feed.name, **query)
    assert (answer.status_code, answer.json()["type"]) == (400, f"urn:edgewake:problem:{code}")


async def test_the_accepted_type_decides_where_both_are_possible(
    access_a: Server, feed: Feed
) -> None:
    feed.send()
    for accept in ("application/json", "application/json, text/plain, */*"):
        assert (
            await get(access_a, feed.name, from_="earliest", headers={"Accept": accept})
        ).json()["live"] is True
    refused = await get(access_a, feed.name, limit=5, headers={"Accept": "text/event-stream"})
    assert (refused.status_code, refused.json()["title"]) == (400, "accept")


@pytest.mark.long
async def test_a_server_that_stops_answers_those_who_wait(
    access_directory: Any, kafka_config: KafkaConfig, cursor_key: Any, feed: Feed
) -> None:
    from tests.access.world import server

    with server(access_directory, kafka_config, cursor_key) as mortal:
        start = await page(mortal, feed.name, limit=1)
        waiting = asyncio.create_task(page(mortal, feed.name, after=start["cursor"], wait=60))
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await asyncio.to_thread(mortal.process.stop)
        assert (await waiting)["events"] == []
        assert time.monotonic() - began < 5
