"""Search in the top line, and lists in another order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.async_api import expect

from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus
from tests.chromium import accessibility_faults
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_more import now_ms
from tests.ops.service import Ops
from tests.ops.test_app import declare, eventually

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


def agent(writer: Writer, device: str, *, waiting: int, heard: int) -> None:
    """A device with an agent that has so many readings, and was heard at this time."""
    status = DeviceStatus(
        device=device, state=DeviceState.ONLINE, received_at=now_ms(), backlog_readings=waiting
    )
    writer.put(topics.DEVICES, f"{device}|status", status.to_json())
    seen = DeviceSeen(device=device, last_seen=heard, skew_ms=0, records=1)
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())


async def test_things_are_found_by_a_part_of_their_names_by_keyboard_alone(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    part = unique("zq")
    stream, device, board = f"s_{part}", f"dev_{part}", f"b_{part}"
    declare(writer, stream)
    agent(writer, device, waiting=0, heard=now_ms())
    text = {"title": f"Boiler {part}", "cards": []}
    assert ops.client.put(f"/v1/boards/{board}", json=text).status_code == 200
    found = eventually(
        lambda: ops.client.get(f"/v1/search?q={part.upper()}"),
        lambda body: len(body["items"]) == 3,
    )
    assert [(one["kind"], one["name"]) for one in found["items"]] == [
        ("device", device), ("stream", stream), ("board", board),
    ]  # fmt: skip
    page = visit.page
    await page.locator("main").focus()
    await page.keyboard.press("/")
    await page.keyboard.type(part)
    results = page.get_by_role("search", name="Everywhere").get_by_role("link")
    await expect(results).to_have_count(3)
    await expect(results.nth(2)).to_contain_text(f"Boiler {part}")
    assert await accessibility_faults(page) == []
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Streams")).to_be_attached()
    assert await page.evaluate("location.hash") == f"#/streams/{stream}"
    await expect(results).to_have_count(0)
    await page.keyboard.press("/")
    await page.keyboard.type("there is none of this name")
    await expect(page.get_by_text("Nothing is called")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("Nothing is called")).to_have_count(0)


async def test_devices_are_sorted_by_the_server_page_by_page(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    part = unique("srt")
    names = [f"{part}_{one}" for one in "abc"]
    for name, waiting, ago in zip(names, (5, 70, 5), (10, 30, 20), strict=True):
        agent(writer, name, waiting=waiting, heard=now_ms() - 1000 * ago)
    path = f"/v1/devices?q={part}"
    eventually(
        lambda: ops.client.get(path),
        lambda body: (
            len(
                [
                    one
                    for one in body["items"]
                    if None not in (one["skew_ms"], one["backlog_readings"])
                ]
            )
            == 3
        ),
    )
    a, b, c = names
    for sort, wanted in {"name": [a, b, c], "heard": [a, c, b], "waiting": [b, a, c]}.items():
        found, after = [], ""
        while after is not None:
            more = f"&after={after}" if after else ""
            page = ops.client.get(f"{path}&sort={sort}&limit=1{more}").json()
            found += [one["device"] for one in page["items"]]
            after = page["next"]
        assert found == wanted, sort
    await visit.open(f"#/devices?q={part}")
    table = visit.page.get_by_role("region", name="Devices")
    rows = table.get_by_role("row")
    await expect(rows).to_have_count(4)
    await table.get_by_role("link", name="waiting", exact=True).click()
    await expect(rows.nth(1)).to_contain_text(b)
    await expect(table.locator('th[aria-sort="descending"]')).to_have_text("waiting")
    assert "sort=waiting" in await visit.page.evaluate("location.hash")
    for name in names:
        writer.put(topics.DEVICES, f"{name}|status", None)
        writer.put(topics.DEVICES, f"{name}|seen", None)


@pytest.mark.long
async def test_a_press_on_a_heading_sorts_a_list_that_is_all_here(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    first, second = sorted((unique("srt"), unique("srt")))
    for name in (first, second):
        declare(writer, name)
        eventually(lambda name=name: ops.client.get(f"/v1/streams/{name}"))
    await visit.open("#/streams")
    table = visit.page.get_by_role("region", name="Streams")
    await expect(table.get_by_role("link", name=second, exact=True)).to_be_visible()

    async def places() -> list[int]:
        names = await table.locator("tbody tr td:first-child").all_inner_texts()
        return [names.index(first), names.index(second)]

    await table.get_by_role("button", name="stream", exact=True).click()
    await expect(table.locator('th[aria-sort="ascending"]')).to_have_count(1)
    assert await places() == sorted(await places())
    await table.get_by_role("button", name="stream", exact=True).click()
    await expect(table.locator('th[aria-sort="descending"]')).to_have_count(1)
    assert await places() == sorted(await places(), reverse=True)
