"""What an operator sees of a client that really is behind: how far, what comes of it, and its end.

A TCP reader that does not read, at a real access server, in the page Clients in Chromium.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.slow.test_policies import DEVICES, FRAMES, TEXT, TURNS, slow_stream, until
from tests.access.world import key_file, open_stream, server
from tests.feeds import Feed
from tests.keyboard import tab_to
from tests.ops.screens.conftest import Visit
from tests.services import Kafka

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


async def test_who_is_behind_is_seen_with_how_far_and_what_next_and_is_ended(
    visit: Visit, kafka: Kafka, tmp_path: Path
) -> None:
    """The control: one that reads beside it is live, and is left alone."""
    config, page = KafkaConfig(bootstrap=kafka.bootstrap), visit.page
    feed = Feed(config)
    with server(tmp_path, config, key_file(tmp_path), slow_after_s=60, stall_s=120) as access:
        async with (
            slow_stream(access, feed, slow="skip") as slow,
            open_stream(access.url, feed.name, limit=2**20) as fast,
        ):
            await slow.until_cursor()
            await fast.until_cursor()
            beside = asyncio.create_task(fast.take(TURNS * FRAMES))
            for _ in range(TURNS):
                await asyncio.to_thread(feed.send, DEVICES[0], frames=FRAMES, fields=TEXT)
            assert len(await beside) == TURNS * FRAMES
            await visit.open(f"#/clients?stream={feed.name}")
            rows = page.get_by_role("region", name="Clients that read").locator("tbody tr")
            await expect(rows).to_have_count(2)
            behind = rows.filter(has_text=re.compile(r"\d [\d.]+ s skip in \d+ s"))
            await expect(behind).to_have_count(1)
            await expect(behind).to_contain_text("behind")
            live = rows.filter(has_text="live")
            await expect(live).to_have_count(1)
            await expect(live).to_contain_text("–")
            await page.get_by_role("link", name="behind", exact=True).click()
            await expect(rows).to_have_count(1)
            page.once("dialog", lambda dialog: asyncio.ensure_future(dialog.accept("too slow")))
            await tab_to(page, "End ")
            await page.keyboard.press("Enter")
            await until(slow, "end")  # what did not fit in its kernel is not sent any more
            assert slow.ended
            await page.get_by_role("link", name="all", exact=True).click()
            await expect(rows).to_have_count(1)
            await expect(rows).to_contain_text("live")
    feed.close()
    assert visit.complaints == []
