"""The cases of the web platform's tests for `EventSource` that a server has a part in, in Chromium
against this server: what opens, what ends for good, what comes again, and what is seen of an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from playwright.async_api import Page, Request

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, server
from tests.cutting_proxy import cutting_proxy
from tests.feeds import Feed, eventually
from tests.services import PATIENCE_S

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.services]
"""One browser serves all tests."""

KINDS: Final = ("open", "message", "error", "checkpoint", "gap", "heartbeat")
FOLLOW: Final = """([address, options, kinds]) => {
  window.seen = [];
  window.source = new EventSource(address, options);
  for (const kind of kinds) source.addEventListener(kind, (event) => seen.push({
    kind, type: event.type, data: event.data, id: event.lastEventId, origin: event.origin,
    state: source.readyState, constructor: event.constructor.name,
  }));
}"""
ODD: Final = (
    "a\nb\r\nc\rd",
    "\u2028 \u2029 \x85 \ufeff",
    "日本 🚗 é",
    "data: x\n\nid: y",
    ": no comment",
    "",
)


def address(running: Server, feed: Feed, query: str = "from=earliest") -> str:
    return f"{running.url}/v1/streams/{feed.name}/events?{query}"


async def follow(page: Page, url: str, *, kinds: tuple[str, ...] = KINDS, **options: Any) -> None:
    """Open an EventSource in the page; what it hears is in `seen`."""
    await page.evaluate(FOLLOW, [url, options, kinds])


async def until(page: Page, condition: str) -> list[dict[str, Any]]:
    """What was heard, once a condition of the page holds."""
    await page.wait_for_function(condition, timeout=1000 * PATIENCE_S)
    found: list[dict[str, Any]] = await page.evaluate("seen")
    return found


CLOSED: Final = "source.readyState === EventSource.CLOSED"
HAS_MESSAGES: Final = "seen.filter((one) => one.kind === 'message').length >= {}"


def of(seen: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in seen if one["kind"] == kind]


async def test_it_opens_and_each_event_is_whole(
    access_a: Server, new_feed: Callable[..., Feed], browser_page: Page
) -> None:
    """Constructor, url, readyState, open, message, origin, lastEventId; any text of UTF-8."""
    feed = new_feed(partitions=1)
    for text in ODD:
        await asyncio.to_thread(feed.send, fields={"text": [text]})
    await browser_page.goto(f"{access_a.url}/healthz")
    await follow(browser_page, address(access_a, feed))
    seen = await until(browser_page, HAS_MESSAGES.format(len(ODD)))
    assert await browser_page.evaluate("[source.url, source.withCredentials]") == [
        address(access_a, feed),
        False,
    ]
    assert seen[0]["kind"] == "open"
    assert {one["state"] for one in seen} == {1}, "OPEN, from the first event on"
    messages = of(seen, "message")
    texts = await browser_page.evaluate(
        "seen.filter((one) => one.kind === 'message').map((one) => JSON.parse(one.data).text)"
    )
    assert texts == list(ODD)
    assert {(one["constructor"], one["origin"]) for one in messages} == {
        ("MessageEvent", access_a.url)
    }
    ids = [one["id"] for one in messages]
    assert len(set(ids)) == len(ids), "each has its own place"
    assert all(ids)
    assert of(seen, "error") == []


async def test_an_event_with_a_name_is_no_message_and_a_sign_of_life_keeps_the_id(
    access_a: Server, feed: Feed, browser_page: Page
) -> None:
    await asyncio.to_thread(feed.send)
    await asyncio.to_thread(feed.gap, "dev-1", 2)
    await browser_page.goto(f"{access_a.url}/healthz")
    await follow(browser_page, address(access_a, feed, "from=earliest&beat=event"))
    seen = await until(
        browser_page,
        "['message', 'gap', 'heartbeat'].every((kind) => seen.some((one) => one.kind === kind))",
    )
    assert len(of(seen, "message")) == 1
    (gap,) = of(seen, "gap")
    assert gap["id"] != of(seen, "message")[0]["id"]
    last_place = max(i for i, one in enumerate(seen) if one["kind"] != "heartbeat")
    quiet = [one["id"] for one in seen[last_place:]]
    assert set(quiet) == {seen[last_place]["id"]}, "an event without an id leaves the last one"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/streams/never_there/events", 404),
        pytest.param("/v1/streams/{}/events?from=yesterday", 400, marks=pytest.mark.long),
        pytest.param("/v1/streams/{}/events?where=n+%3E", 422, marks=pytest.mark.long),
        pytest.param("/v1/streams/{}/events?last_event_id=nonsense", 400, marks=pytest.mark.long),
        ("/healthz", 200),
    ],
)
async def test_what_is_wrong_ends_it_for_good_with_one_error(
    access_a: Server, feed: Feed, browser_page: Page, path: str, status: int
) -> None:
    """A status, or a content type that is no event stream: it must not come again."""
    await asyncio.to_thread(feed.send)
    await eventually(
        lambda: feed.name in httpx.get(f"{access_a.url}/v1/streams", timeout=PATIENCE_S).text,
        "it is known",
    )
    asked: list[int] = []
    browser_page.on("response", lambda answer: asked.append(answer.status))
    await browser_page.goto(f"{access_a.url}/healthz")
    del asked[:]
    await follow(browser_page, access_a.url + path.format(feed.name))
    seen = await until(browser_page, CLOSED)
    assert [one["kind"] for one in seen] == ["error"]
    assert asked == [status]


async def test_it_comes_again_after_the_time_it_was_told_with_the_last_id(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
    browser_page: Page,
) -> None:
    """`retry`, Last-Event-ID, Accept and Cache-Control; CONNECTING in between, and open again."""
    feed = new_feed(partitions=1)
    with server(access_directory, kafka_config, cursor_key, retry_ms=2000) as running:
        async with cutting_proxy(running.port, [b'"n":2']) as proxy:
            base = f"http://127.0.0.1:{proxy.port}"
            await browser_page.goto(f"{base}/healthz")
            requests: list[Request] = []

            def keep(request: Request) -> None:
                requests.append(request)

            browser_page.on("request", keep)
            await follow(browser_page, f"{base}/v1/streams/{feed.name}/events?absent=wait")
            # It waits for the stream: who asks after the sending begins behind it.
            await until(browser_page, "source.readyState === EventSource.OPEN")
            await browser_page.evaluate(
                """source.addEventListener("error", () => { window.lost = performance.now(); });
                source.addEventListener("open", () => { window.back = performance.now(); })"""
            )
            await asyncio.to_thread(feed.send, frames=3)
            seen = await until(browser_page, HAS_MESSAGES.format(3))
            waited_ms = await browser_page.evaluate("back - lost")
            heads = [await request.all_headers() for request in requests]
    assert [one["data"] for one in of(seen, "message")] != []
    assert [one["state"] for one in of(seen, "error")] == [0], "CONNECTING"
    assert len(of(seen, "open")) == 2
    assert waited_ms >= 1000, "half of retry_ms at the least"
    events = [head for head in heads if head.get("accept") == "text/event-stream"]
    assert len(events) == 2
    assert all(head.get("cache-control") == "no-cache" for head in events)
    assert "last-event-id" not in events[0]
    begun = seen[: seen.index(of(seen, "error")[0])]
    assert events[1]["last-event-id"] == begun[-1]["id"]


async def test_close_ends_the_connection(access_a: Server, feed: Feed, browser_page: Page) -> None:
    """`close()` fires no error, stays closed, and the server notices."""

    def clients() -> str:
        text = httpx.get(f"{access_a.url}/metrics", timeout=PATIENCE_S).text
        return next(
            line for line in text.splitlines() if line.startswith("edgewake_access_clients ")
        )

    before = clients()
    await browser_page.goto(f"{access_a.url}/healthz")
    await follow(browser_page, address(access_a, feed))
    await until(browser_page, "seen.some((one) => one.kind === 'open')")
    await eventually(lambda: clients() != before, "it counts")
    await browser_page.evaluate("source.close()")
    assert await browser_page.evaluate("source.readyState") == 2
    await eventually(lambda: clients() == before, "it is gone")
    assert of(await browser_page.evaluate("seen"), "error") == []


async def test_pages_of_other_sites_read_where_that_is_allowed_and_nowhere_else(
    access_directory: Path,
    access_a: Server,
    access_b: Server,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    feed: Feed,
    browser_page: Page,
) -> None:
    """CORS: the page is of server B."""
    await asyncio.to_thread(feed.send)
    with server(
        access_directory, kafka_config, cursor_key, allow_origins=[access_b.url]
    ) as allowing:
        await browser_page.goto(f"{access_b.url}/healthz")
        await follow(browser_page, address(allowing, feed))
        seen = await until(browser_page, HAS_MESSAGES.format(1))
        assert of(seen, "message")[0]["origin"] == allowing.url
        await browser_page.evaluate("source.close()")
        await follow(browser_page, address(access_a, feed))
        seen = await until(browser_page, CLOSED)
        assert [one["kind"] for one in seen] == ["error"], "the control: A allows nobody"
