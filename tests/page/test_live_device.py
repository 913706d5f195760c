"""One device on the Live page: its streams, what it lost, and who may know of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from edgewake.cloud.kafka.config import KafkaConfig
from tests.chromium import LOOKS, accessibility_faults
from tests.keyboard import tab_to, walk
from tests.page.conftest import Visit, watching
from tests.page.world import AccessServer, Writer

pytestmark = pytest.mark.asyncio(loop_scope="session")
GUEST = """
[rights]
anonymous = "guest"

[rights.roles.guest]
grants = [{ streams = ["granted_*"], devices = ["mine"] }]
"""


def furnish(writer: Writer, name: str) -> None:
    """A device with two streams, a gap on one of them, and a neighbour on it."""
    for minutes, heat in ((8, 19.5), (6, 20.5), (4, 21.4)):
        at = 60 * minutes
        writer.reading(f"{name}_climate", f"{name}-shed", ago_s=at, temperature=heat, open=True)
        writer.reading(f"{name}_climate", f"{name}-barn", ago_s=at, temperature=5.0, open=False)
    writer.gap(f"{name}_climate", f"{name}-shed", count=14, reason="quota")
    writer.units(f"{name}_climate", temperature="Cel")
    writer.reading(f"{name}_places", f"{name}-shed", lat=48.137, lon=11.575, note="by the door")


def stream(page: Page, device: str, name: str) -> Locator:
    return page.get_by_role("group", name=f"{device} on {name}")


async def test_a_device_is_found_by_its_name_and_shows_all_its_streams(
    live: Visit, writer: Writer
) -> None:
    furnish(writer, "dev")
    page = live.page
    await expect(page.get_by_role("article", name="Stream dev_places")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("dev-sh")
    await tab_to(page, "dev-shed")
    await page.keyboard.press("Enter")
    climate = stream(page, "dev-shed", "dev_climate")
    await expect(climate.locator('[data-field="temperature"]')).to_contain_text("21.4\u2009°C")
    await expect(climate.locator('[data-field="open"]')).to_contain_text("on")
    await expect(climate).to_contain_text("ago")
    chart = page.get_by_role("img", name="temperature over time, 1 gap")
    await expect(chart).to_be_visible()
    await expect(page.get_by_text("14 readings of dev_climate lost")).to_be_visible()
    places = stream(page, "dev-shed", "dev_places")
    await expect(places.get_by_role("region", name="Map of dev_places")).to_be_visible()
    await expect(places.locator('[data-field="note"]')).to_contain_text("by the door")
    await expect(page.locator("main")).not_to_contain_text("dev-barn")
    writer.reading("dev_climate", "dev-shed", temperature=22.5, open=False)
    await expect(climate.locator('[data-field="temperature"]')).to_contain_text("22.5")
    await expect(climate.locator("time")).to_have_text(re.compile(r"now|^\d s ago"))
    writer.reading("dev_doors", "dev-shed", closed=True)
    await expect(stream(page, "dev-shed", "dev_doors")).to_contain_text("on")
    assert await walk(page) == []
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(climate.locator('[data-field="temperature"]')).to_contain_text("22.5")
    assert live.complaints == []


@pytest.mark.long
async def test_fields_lie_in_one_chart_and_another_device_beside_it(
    live: Visit, writer: Writer
) -> None:
    page = live.page
    for ago_s in (600, 300, 100):
        for name, heat in (("one-shed", 20.0), ("two_shed", 5.0)):
            writer.reading("many_climate", name, ago_s=ago_s, temperature=heat, humidity=2 * heat)
    writer.units("many_climate", temperature="Cel", humidity="%")
    await page.goto(page.url.split("#")[0] + "#/devices/one-shed")
    fields = page.get_by_role("group", name="Fields of many_climate in one chart")
    for field in ("temperature", "humidity"):
        await fields.get_by_label(field).press("Space")
    together = page.get_by_role("list", name="Lines of many_climate, in one chart")
    await expect(together.get_by_role("listitem")).to_have_text(
        [re.compile(r"temperature\s*20\u2009°C"), re.compile(r"humidity\s*40\u2009%")]
    )
    other = page.get_by_label("Compare with another device on many_climate")
    await other.fill("two_shed")
    await other.press("Enter")
    lines = page.get_by_role("list", name="Lines of temperature").get_by_role("listitem")
    await expect(lines).to_have_text([re.compile("one-shed"), re.compile(r"two_shed\s*5\u2009°C")])
    colour = "(one) => getComputedStyle(one.querySelector('i')).borderTopColor"
    beside = page.get_by_role("list", name="Lines of humidity").get_by_role("listitem")
    assert await lines.nth(1).evaluate(colour) == await beside.nth(1).evaluate(colour)
    writer.reading("many_climate", "two_shed", temperature=7.0, humidity=1.0)
    await expect(lines.nth(1)).to_contain_text("7")
    assert await accessibility_faults(page) == []
    assert await walk(page) == []
    await page.get_by_role("button", name="Compare with two_shed no more").click()
    await expect(page.get_by_role("list", name="Lines of temperature")).to_have_count(0)
    assert live.complaints == []


@pytest.mark.long
async def test_what_came_counts_once_in_the_charts_of_a_device(live: Visit, writer: Writer) -> None:
    for ago_s in (600, 100, 50):
        writer.reading("once_climate", "once-shed", ago_s=ago_s, temperature=1.0)
    await live.page.goto(live.page.url.split("#")[0] + "#/devices/once-shed")
    await expect(stream(live.page, "once-shed", "once_climate")).to_be_visible()
    counted = "edgewakeLive.device().models.get('once_climate').count"
    await live.page.wait_for_function(f"() => edgewakeLive.device().waiting === 0 && {counted}")
    assert await live.page.evaluate(counted) == 3


async def test_a_device_has_nothing_of_streams_that_are_gone_or_were_made_anew(live: Visit) -> None:
    """A stream that was erased, or is its reader's no more, stood there until the page was left."""
    shown = await live.page.evaluate(
        """async () => {
          const { DeviceModel } = await import("/page/live/device.js");
          const answer = { events: [], live: true, rows: [], missing: [] };
          globalThis.fetch = async () => new Response(JSON.stringify(answer));
          const device = new DeviceModel("d");
          const all = ["erased", "made_anew", "stays"];
          await device.ask(all);
          for (const stream of all) {
            device.take({ stream, device: "d", t: 1, received_at: 1, old: 1 }, 1);
            device.gap({ scope: "device", device: "d", stream, epoch: 1, seq: 2, reason: "quota" });
            await device.compare(stream, "e", ["old"]);
          }
          device.gap({ scope: "cursor", reason: "epoch", stream: "made_anew", lost: null });
          device.take({ stream: "made_anew", device: "d", t: 1, received_at: 1, heat: 1 }, 1);
          device.know(new Set(["made_anew", "stays"]));
          return [device.streams.map(({ name, fields }) => [name, ...fields.keys()]),
            device.gaps.map(({ stream }) => stream), [...device.beside.keys()].sort()];
        }"""
    )
    streams = [["made_anew", "heat"], ["stays", "old"]]
    assert shown == [streams, ["stays"], ["made_anew e", "stays e"]]


async def test_a_device_that_is_not_there_and_one_that_nobody_grants_look_alike(
    browser: Browser, page_kafka: KafkaConfig, writer: Writer, tmp_path: Path
) -> None:
    for device in ("mine", "hers"):
        writer.reading("granted_climate", device, temperature=1.0)
        writer.reading("hidden_climate", device, temperature=1.0)
    server = AccessServer(page_kafka, tmp_path, rights=GUEST).start()
    try:
        async with watching(browser, f"{server.url}/#/devices/mine") as visit:
            page = visit.page
            await expect(stream(page, "mine", "granted_climate")).to_be_visible()
            await expect(page.locator("main")).not_to_contain_text("hidden_climate")
            said = []
            for name in ("hers", "nobody"):
                await page.evaluate("(to) => (location.hash = to)", f"#/devices/{name}")
                nothing = page.get_by_text("There is no such device, or none for you")
                await expect(nothing).to_be_visible()
                said.append((await page.locator("main").inner_text()).replace(name, "X"))
            assert said[0] == said[1]
            await page.goto(f"{server.url}/#/")
            await page.get_by_role("searchbox").fill("hers")
            await expect(page.get_by_text("Nothing is called “hers”")).to_be_visible()
    finally:
        server.process.stop()


@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_a_device_has_no_sideways_scroll_and_no_accessibility_fault(
    live: Visit, writer: Writer, width: int, theme: str
) -> None:
    furnish(writer, "look")
    page = live.page
    await page.set_viewport_size({"width": width, "height": 900})
    await page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
    for name, shown in (("look-shed", ".chart"), ("none", "p.card.quiet")):
        await page.evaluate("(to) => (location.hash = to)", f"#/devices/{name}")
        await expect(page.locator(f"main {shown}").first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert await accessibility_faults(page) == [], name
