"""What people say of devices, how devices are found, and what happened to them: by the API, in a
terminal, on the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from playwright.async_api import expect

from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceSeen
from tests.chromium import accessibility_faults, chromium, open_page
from tests.commands.test_status import run
from tests.ops.conftest import Writer
from tests.ops.service import Ops
from tests.services import wait_until

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


def heard(ops: Ops, writer: Writer, device: str) -> None:
    now = time.time_ns() // 1_000_000
    seen = DeviceSeen(device=device, last_seen=now, skew_ms=0, records=3)
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    wait_until(lambda: ops.client.get(f"/v1/devices/{device}").status_code == 200, "it is known")


def names(ops: Ops, query: str) -> list[str]:
    answer = ops.client.get(f"/v1/devices?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["total"] >= len(answer.json()["items"])
    return [one["device"] for one in answer.json()["items"]]


@pytest.mark.long
async def test_devices_are_found_by_a_part_of_their_name_and_by_group(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    mark, group = unique("Mark"), unique("hall")
    for number in range(3):
        heard(ops, writer, f"{mark}-{number}")
    said = run(ops, "devices", "note", f"{mark}-1", "above the door", "--group", group)
    assert said.returncode == 0, said.stderr
    ops.client.put(f"/v1/devices/{mark}-2/note", json={"groups": [group]}).raise_for_status()
    assert names(ops, f"q={mark.lower()}") == [f"{mark}-{number}" for number in range(3)]
    assert names(ops, f"group={group}") == [f"{mark}-1", f"{mark}-2"]
    first = ops.client.get(f"/v1/devices?q={mark}&limit=2").json()
    assert (len(first["items"]), first["total"]) == (2, 3)
    assert names(ops, f"q={mark}&limit=2&after={first['next']}") == [f"{mark}-2"]
    assert names(ops, f"q={mark}&state=offline") == []
    assert ops.client.get("/v1/groups").json()[group] == 2
    found = ops.client.get(f"/v1/devices/{mark}-1").json()
    assert (found["note"], found["groups"]) == ("above the door", [group])
    listed = run(ops, "devices", "list", "--group", group, "--json")
    assert listed.stdout.count(mark) == 2
    wrong = ops.client.put(f"/v1/devices/{mark}-1/note", json={"groups": ["Not a group"]})
    assert wrong.status_code == 422
    assert "groups" in wrong.text
    ops.client.delete(f"/v1/devices/{mark}-1").raise_for_status()
    wait_until(lambda: ops.client.get("/v1/groups").json()[group] == 1, "its note is forgotten")


async def test_what_happened_is_kept_for_who_comes_after(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    heard(ops, writer, device)
    ops.client.delete(f"/v1/devices/{device}").raise_for_status()
    path = f"/v1/history?kind=device&name={device}"
    wait_until(lambda: len(ops.client.get(path).json()["items"]) == 2, "it came and went")
    gone, came = ops.client.get(path).json()["items"]
    assert came["facts"]["state"] == "online"
    assert gone["facts"] == {"removed": True}
    assert gone["at"] >= came["at"]
    shown = run(ops, "devices", "history", device, "--json")
    assert "online" in shown.stdout


async def test_a_note_is_written_and_a_group_found_on_the_page(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, group = unique("dev"), unique("hall")
    heard(ops, writer, device)
    async with chromium() as browser:
        page = await open_page(browser, viewport={"width": 390, "height": 844})
        await page.goto(ops.url + ops.client.post("/v1/tickets").json()["path"])
        await expect(page.get_by_role("link", name="History", exact=True)).to_be_visible()
        await page.evaluate("(to) => (location.hash = to)", f"#/devices/{device}")
        await page.get_by_label("Note", exact=True).fill("<b>in the cellar</b>")
        await page.get_by_label("Groups", exact=True).fill(group)
        await page.get_by_role("button", name="Keep").click()
        await expect(page.get_by_text("kept", exact=True)).to_be_visible()
        await expect(page.get_by_role("region", name="What happened")).to_contain_text("online")
        assert await accessibility_faults(page) == []
        rail = page.get_by_role("navigation", name="Pages")
        await rail.get_by_role("link", name="Devices", exact=True).click()
        await page.get_by_role("group", name="Group").get_by_role("link", name=group).click()
        row = page.get_by_role("row").filter(has_text=device)
        await expect(row).to_be_visible()
        await page.get_by_label("Name", exact=True).fill("no such name")
        await page.get_by_role("button", name="Find").click()
        await expect(page.get_by_text("No device here")).to_be_visible()
        for address in ("#/history", "#/history?kind=device", "#/erasures", "#/devices"):
            await page.evaluate("(to) => (location.hash = to)", address)
            await expect(page.locator("main .card").first).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390, address
            assert await accessibility_faults(page) == [], address
