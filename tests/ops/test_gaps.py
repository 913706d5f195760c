"""Gaps of a stream as a list: by the API, in a terminal, on the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from edgewake.cloud.kafka.config import KafkaConfig
from tests.chromium import accessibility_faults, chromium, open_page
from tests.commands.test_status import run
from tests.feeds import Feed
from tests.ops.conftest import Writer
from tests.ops.service import Ops
from tests.ops.test_app import declare, eventually

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def feed(kafka_config: KafkaConfig, writer: Writer) -> Iterator[Feed]:
    made = Feed(kafka_config)
    declare(writer, made.name)
    yield made
    made.close()


@pytest.mark.long
async def test_what_devices_lost_is_listed_newest_first_and_by_device(ops: Ops, feed: Feed) -> None:
    feed.send("a", 3)
    feed.gap("a", 2)
    feed.send("b", 3)
    feed.gap("b", 5)
    path = f"/v1/streams/{feed.name}/gaps"
    found = eventually(lambda: ops.client.get(path), lambda body: len(body["items"]) == 2)
    told = [(gap["device"], gap["reason"], gap["count"], gap["seq"]) for gap in found["items"]]
    assert sorted(told) == [("a", "quota", 2, 4), ("b", "quota", 5, 4)]
    assert [gap["at"] for gap in found["items"]] == sorted(
        (gap["at"] for gap in found["items"]), reverse=True
    )
    assert found["records"] >= 4
    assert not found["is_cut"]
    of_a = ops.client.get(f"{path}?device=a").json()["items"]
    assert [gap["device"] for gap in of_a] == ["a"]
    feed.send("a", 1)
    closed = eventually(
        lambda: ops.client.get(f"{path}?device=a"), lambda body: body["items"][0]["after_t"]
    )["items"][0]
    assert closed["before_t"] <= closed["after_t"]
    assert ops.client.get(f"{path}?device=b").json()["items"][0]["after_t"] is None
    later = closed["at"] + 86_400_000
    assert ops.client.get(f"{path}?since={later}").json()["items"] == []
    assert len(ops.client.get(f"{path}?since={closed['at'] - 60_000}").json()["items"]) == 2
    cut = ops.client.get(f"{path}?limit=1").json()
    assert (len(cut["items"]), cut["is_cut"]) == (1, True)
    assert ops.client.get("/v1/streams/never_there/gaps").status_code == 404
    shown = run(ops, "streams", "gaps", feed.name, "--device", "b", "--json")
    assert '"count": 5' in shown.stdout


async def test_gaps_are_looked_for_on_the_page_of_a_stream(ops: Ops, feed: Feed) -> None:
    feed.gap("a", 2)
    eventually(lambda: ops.client.get(f"/v1/streams/{feed.name}"))
    async with chromium() as browser:
        page = await open_page(browser, viewport={"width": 390, "height": 844})
        await page.goto(ops.url + ops.client.post("/v1/tickets").json()["path"])
        await expect(page.get_by_role("link", name="Streams", exact=True)).to_be_visible()
        await page.evaluate("(to) => (location.hash = to)", f"#/streams/{feed.name}")
        await page.get_by_role("button", name="Look for gaps").click()
        await expect(page.get_by_role("region", name="Gaps")).to_contain_text("quota")
        await expect(page.get_by_text("1 gap in the newest")).to_be_visible()
        assert await accessibility_faults(page) == []
