"""The page in a real browser, on a real access server and Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, expect

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.registry import built_in
from tests.chromium import LOOKS, accessibility_faults, open_page
from tests.page.conftest import Visit
from tests.page.world import AccessServer, Town, Writer
from tests.services import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="session")
"""One browser serves all tests of the page."""

MINUTE = 60_000
IS_DRAWN = "(device) => window.edgewake?.vehicles.layer.points.has(device)"
RESTS = """(device) => {
  const { built, layer, vehicles } = window.edgewake.vehicles;
  const before = window.drawnBefore;
  window.drawnBefore = String(layer.points.get(device));
  const isOld = Date.now() - vehicles.get(device).heardAt > 1_500;
  return built && isOld && window.drawnBefore === before;
}"""
"""The map is placed for good, and the vehicle, which glides for a second, is drawn where it was
drawn at the last look."""
HAS_ALL = """(stats, wanted) =>
  Object.entries(wanted).every(([key, last]) => stats.series[key]?.last >= last)"""


def _sent(writer: Writer, town: Town) -> dict[str, int]:
    """The newest seq of each of the town's series, by the page's key."""
    return {
        f"{stream} {device} 1": seq
        for (stream, device), seq in writer.sent.items()
        if device.startswith(town.name)
    }


async def test_vehicles_machine_and_parts_appear(visit: Visit, writer: Writer):
    with Town(writer, "appear"):
        await visit.until(
            "(stats) => stats.shown.vehicles >= 3 && stats.shown.points >= 10 && "
            "stats.shown.parts >= 1"
        )
        await visit.page.wait_for_function(IS_DRAWN, arg="appear-car-1")
        await visit.page.locator("#host").select_option("appear-host")
        await expect(visit.page.locator("#cpu")).to_have_text(re.compile(r"\d+ %"))
        await expect(visit.page.locator('tr[data-part="appear-part"]')).to_contain_text("4711")
        await expect(visit.page.locator("#connection")).to_have_attribute("data-state", "live")


@pytest.mark.long
async def test_a_page_opened_on_a_quiet_system_shows_what_there_was(
    browser: Browser, page_kafka: KafkaConfig, writer: Writer, tmp_path: Path
) -> None:
    """Nothing new comes: what the last two minutes brought is read back, and waits for no
    heartbeat.
    """
    with Town(writer, "quiet"):
        wait_until(lambda: writer.sent.get(("host_metrics", "quiet-host"), 0) >= 5, "five readings")
    server = AccessServer(page_kafka, tmp_path, heartbeat_s=3600).start()
    page = await open_page(browser)
    try:
        await page.goto(server.url + "/town")
        await page.wait_for_function(IS_DRAWN, arg="quiet-car-2")
    finally:
        await page.close()
        server.process.stop()


async def test_the_machine_that_was_chosen_stays_when_another_one_appears(visit: Visit) -> None:
    chosen = await visit.page.evaluate(
        """async () => {
          const { HostChart } = await import("/page/chart.js");
          const chart = new HostChart();
          const take = (device) => chart.take({ device, t: 1, cpu_percent: 1, memory_percent: 1 });
          ["one-host", "other-host"].forEach(take);
          chart.select.value = "other-host";
          take("third-host");
          return chart.select.value;
        }"""
    )
    assert chosen == "other-host"


@pytest.mark.long
async def test_results_fill_the_tiles_and_the_top_list(visit: Visit, writer: Writer):
    for query in ("top_streets", "speed_quantiles", "vehicles_distinct", "host_10s"):
        writer.register(query)
    window = (1_790_000_040_000, 1_790_000_100_000)
    writer.result(
        "top_streets",
        *window,
        streets=[{"item": "Quarry Road", "count": 90}, {"item": "North Quay", "count": 41}],
    )
    writer.result("speed_quantiles", *window, p50=31.4, p90=48.0, p99=59.9)
    writer.result("vehicles_distinct", *window, vehicles=20)
    await expect(visit.page.locator("#streets li").first).to_contain_text("Quarry Road90")
    await expect(visit.page.locator("#tile-p90")).to_have_text("48")
    await expect(visit.page.locator("#tile-vehicles")).to_have_text("20")


async def test_nothing_is_asked_of_another_origin(
    visit: Visit, server: AccessServer, writer: Writer
):
    with Town(writer, "origin"):
        await visit.until("(stats) => stats.shown.vehicles >= 3 && stats.shown.points >= 3")
    assert visit.requests
    assert [url for url in visit.requests if not url.startswith(server.url + "/")] == []
    assert visit.complaints == []


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda server: server.process.stop(), id="SIGTERM", marks=pytest.mark.long),
        pytest.param(lambda server: server.process.kill(), id="kill -9"),
    ],
)
async def test_goes_on_without_gap_or_repeat_when_the_server_restarts(
    visit: Visit,
    server: AccessServer,
    writer: Writer,
    end: Callable[[AccessServer], object],
    request: pytest.FixtureRequest,
):
    """Readings are sent before, while the server is away, and after; the page has each once, and
    says that it was cut off.
    """
    name = "sigterm" if "SIGTERM" in request.node.name else "killed"
    with Town(writer, name) as town:
        await visit.until(
            "(stats, name) => Object.keys(stats.series).filter((key) => "
            "key.includes(name)).length === 4",
            name,
        )
        end(server)
        assert not server.process.is_running()
        await visit.until("(stats) => stats.state === 'reconnecting'")
        while_away = _sent(writer, town)
        server.start()
        await visit.until(HAS_ALL, while_away)
    await visit.until(HAS_ALL, _sent(writer, town))
    stats = await visit.stats()
    ours = {key: series for key, series in stats["series"].items() if f" {name}-" in key}
    assert {key: series["last"] for key, series in ours.items()} == _sent(writer, town)
    assert all(series["count"] == series["last"] - series["first"] + 1 for series in ours.values())
    assert (stats["duplicates"], stats["missing"], stats["gaps"], stats["state"]) == (
        0,
        0,
        [],
        "live",
    )
    assert stats["reconnects"] >= 1
    assert [
        text
        for text in visit.complaints
        if "ERR_" not in text and "Failed to load resource" not in text
    ] == []


@pytest.mark.long
async def test_goes_on_after_the_server_refused_for_a_while(visit: Visit, writer: Writer):
    """A status other than 200 ends an EventSource for ever; the page makes a new one from its last
    id.
    """
    with Town(writer, "refused") as town:
        await visit.until(
            "(stats) => Object.keys(stats.series).filter((key) => key.includes('refused')).length "
            "=== 4"
        )
        await visit.page.route(
            "**/v1/events?*", lambda route: route.fulfill(status=503, body="later")
        )
        await visit.page.evaluate(
            "window.edgewake.feed.source.close() || window.edgewake.feed.source.onerror()"
        )
        await expect(visit.page.locator("#connection")).to_contain_text("again in")
        seen = _sent(writer, town)
        await visit.page.unroute_all(behavior="wait")
        await visit.until(HAS_ALL, seen)
    stats = await visit.stats()
    assert (stats["duplicates"], stats["missing"]) == (0, 0)


@pytest.mark.long
async def test_a_query_that_is_added_later_appears(visit: Visit, writer: Writer):
    with Town(writer, "later"):
        await visit.until("(stats) => stats.shown.vehicles >= 3")
        before = (await visit.stats())["series"]
        writer.register("added_later")
        writer.result("added_later", 0, MINUTE, device="later-car-1", fastest=71.5)
        await expect(visit.page.locator("#queries table", has_text="added_later")).to_contain_text(
            "71.5"
        )
        newest = {key: series["last"] + 1 for key, series in before.items() if " later-car" in key}
        await visit.until(HAS_ALL, newest)
    stats = await visit.stats()
    assert (stats["duplicates"], stats["missing"]) == (0, 0)


async def test_a_click_on_a_vehicle_shows_its_details(visit: Visit, writer: Writer):
    with Town(writer, "click"):
        await visit.until(
            "(stats) => Object.keys(stats.series).filter((key) => "
            "key.includes('click-car')).length === 3"
        )
        await visit.page.wait_for_function(IS_DRAWN, arg="click-car-0")
    await visit.page.wait_for_function(RESTS, arg="click-car-0", polling=300)
    box = await visit.page.locator("#map").bounding_box()
    assert box
    x, y = await visit.page.evaluate("window.edgewake.vehicles.layer.points.get('click-car-0')")
    await visit.page.mouse.click(box["x"] + x, box["y"] + y)
    await expect(visit.page.locator("#details")).to_contain_text("Market Street")
    await expect(visit.page.locator("#details h3")).to_have_text("click-car-0")


async def test_names_from_streams_are_text_and_never_markup(visit: Visit, writer: Writer):
    writer.reading(
        "part_status",
        "supervisor",
        numbered=False,
        part="<img src=x onerror=alert(1)>",
        state="<b>ready",
        pid=1,
        restarts=0,
    )
    await expect(visit.page.locator("#parts")).to_contain_text("<img src=x")
    assert await visit.page.locator("#parts img, #parts b").count() == 0


@pytest.mark.long
async def test_a_part_that_is_not_heard_turns_stale(visit: Visit, writer: Writer):
    writer.reading(
        "part_status", "supervisor", numbered=False, part="silent", state="ready", pid=1, restarts=0
    )
    await expect(visit.page.locator('tr[data-part="silent"]')).to_have_attribute(
        "data-state", "stale"
    )


async def test_a_phone_needs_no_sideways_scrolling(visit: Visit, writer: Writer):
    await visit.page.set_viewport_size({"width": 390, "height": 844})
    with Town(writer, "phone"):
        await visit.until("(stats) => stats.shown.vehicles >= 3 && stats.shown.points >= 3")
    assert await visit.page.evaluate("document.documentElement.scrollWidth") == 390
    boxes = await visit.page.evaluate(
        """() => Object.fromEntries(["#tiles", "#pick", "header dl", "#delay-95"].map((one) =>
          [one, document.querySelector(one).getBoundingClientRect().toJSON()]))"""
    )
    assert boxes["#pick"]["top"] >= boxes["#tiles"]["bottom"], "the choice lies on the tiles"
    assert boxes["#delay-95"]["right"] <= boxes["header dl"]["right"]


@pytest.mark.long
@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_the_town_has_no_accessibility_fault(
    visit: Visit, writer: Writer, width: int, theme: str
):
    await visit.page.set_viewport_size({"width": width, "height": 900})
    await visit.page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
    with Town(writer, "axe"):
        await visit.until("(stats) => stats.shown.vehicles >= 3 && stats.shown.points >= 3")
        assert await accessibility_faults(visit.page) == []


async def test_a_keyboard_reaches_a_vehicle_and_comes_back(visit: Visit, writer: Writer):
    """From the theme's button a few Tabs lead to the list of vehicles, not one Tab a vehicle;
    Escape closes what a choice opened.
    """
    with Town(writer, "keys", vehicles=30):
        await visit.page.wait_for_function(IS_DRAWN, arg="keys-car-29")
        await visit.page.locator("#theme").focus()
        for _ in range(12):
            await visit.page.keyboard.press("Tab")
            if await visit.page.evaluate("document.activeElement.id") == "vehicle":
                break
        assert await visit.page.evaluate("document.activeElement.id") == "vehicle"
        await visit.page.locator("#vehicle").select_option("keys-car-7")
        await expect(visit.page.locator("#details h3")).to_have_text("keys-car-7")
        assert await visit.page.evaluate("document.activeElement.id") == "details"
        await visit.page.keyboard.press("Escape")
        await expect(visit.page.locator("#details")).to_be_hidden()
        assert await visit.page.evaluate("document.activeElement.id") == "vehicle"


async def test_a_screen_reader_hears_states_and_no_seconds(
    visit: Visit, server: AccessServer, writer: Writer
):
    with Town(writer, "spoken"):
        await visit.until("(stats) => stats.state === 'live'")
        await visit.page.evaluate(
            "window.spoken = []; new MutationObserver(() => "
            "window.spoken.push(document.getElementById('connection-spoken').textContent))"
            ".observe(document.getElementById('connection-spoken'), {childList: true, "
            "characterData: true, subtree: true})"
        )
        server.process.kill()
        await expect(visit.page.locator("#connection-seen")).to_contain_text("the server is away")
        server.start()
        await visit.until("(stats) => stats.state === 'live'")
    spoken = await visit.page.evaluate("window.spoken")
    assert spoken
    assert spoken[-1] == "live"
    assert [text for text in spoken if "again in" in text] == []
    assert len(spoken) <= 8, "it is read out again and again"


@pytest.mark.long
async def test_queries_may_come_and_go_for_ever(visit: Visit, writer: Writer):
    """More queries than one subscription holds, six after six: the newest are followed, removed
    ones leave, nothing reconnects.
    """
    # Those of other tests would leave for these and come back, with what they had lately once more.
    # The page's own stay with it, registered or not.
    others = [name for name in writer.registered() if name not in built_in()]
    writer.remove(*others)
    await visit.until("(stats, names) => !names.some((one) => stats.streams.includes(one))", others)
    with Town(writer, "many"):
        await visit.until("(stats) => stats.shown.vehicles >= 3")
        for turn in range(3):
            names = [f"many_{turn}_{i}" for i in range(6)]
            writer.register(*names)
            await visit.until(
                "(stats, names) => names.every((name) => stats.streams.includes(name))", names
            )
            for i, name in enumerate(names):
                writer.result(name, 0, MINUTE, device="d", n=i)
            for name in names:
                await expect(visit.page.locator("#queries table", has_text=name)).to_have_count(1)
            writer.remove(*names)
            await visit.until(
                "(stats, names) => !names.some((name) => stats.streams.includes(name))", names
            )
            for name in names:
                await expect(visit.page.locator("#queries table", has_text=name)).to_have_count(0)
        opened = _connections(visit)
        for _ in range(2):
            async with visit.page.expect_response("**/v1/streams"):
                pass
        assert _connections(visit) == opened, "it reconnects although nothing changed"
    stats = await visit.stats()
    assert (stats["duplicates"], stats["missing"], stats["reconnects"]) == (0, 0, 0)


def _connections(visit: Visit) -> int:
    return len([url for url in visit.requests if "/v1/events?" in url])


@pytest.mark.long
async def test_a_position_that_is_refused_costs_minutes_and_not_the_life_of_the_page(
    visit: Visit, writer: Writer
):
    """The page was opened long ago; it begins again a few minutes back from now."""
    with Town(writer, "forgotten"):
        await visit.until("(stats) => stats.shown.vehicles >= 3")
        await visit.page.route(
            "**/v1/events?*last_event_id*", lambda route: route.fulfill(status=400, body="{}")
        )
        later_ms = 3_600_000
        await visit.page.evaluate(
            "(ms) => { const now = Date.now; Date.now = () => now() + ms; }", later_ms
        )
        await visit.page.evaluate(
            "window.edgewake.feed.heardAt = Date.now(); window.edgewake.feed.source.close(); "
            "window.edgewake.feed.source.onerror()"
        )
        await visit.until("(stats) => stats.gaps.some(({ reason }) => reason === 'refused')")
        with_from = [url for url in visit.requests if "/v1/events?" in url]
        async with visit.page.expect_request(
            lambda request: "/v1/events?" in request.url and "last_event_id" not in request.url
        ) as again:
            pass
        asked = parse_qs(urlsplit((await again.value).url).query)["from"][0]
        assert datetime.fromisoformat(asked).timestamp() > time.time() + later_ms / 1000 - 200, (
            with_from[-1]
        )


async def test_a_machine_that_slept_for_hours_is_not_sent_hours(
    visit: Visit, server: AccessServer, writer: Writer
):
    with Town(writer, "slept"):
        await visit.until("(stats) => stats.shown.vehicles >= 3")
        server.process.kill()
        await visit.until("(stats) => stats.state === 'reconnecting'")
        await visit.page.evaluate("window.edgewake.feed.heardAt -= 7200_000")
        server.start()
        await visit.until("(stats) => stats.state === 'live'")
        await expect(visit.page.locator("#gaps-newest")).to_contain_text(
            "this page was away for 2 h"
        )


@pytest.mark.long
async def test_a_gap_says_what_is_lost_and_how_much(visit: Visit, writer: Writer):
    writer.reading("vehicle_position", "lossy", lat=53.2, lon=-6.1)
    writer.gap("vehicle_position", "lossy", count=17, reason="quota")
    await expect(visit.page.locator("#gaps-newest")).to_contain_text(
        "17 readings of vehicle_position from lossy lost: the device was full"
    )
    await visit.page.locator("#gaps summary").click()
    await expect(visit.page.locator("#gaps-list li").first).to_contain_text("17 readings")


async def test_a_users_query_shows_one_row_per_window_and_group_and_marks_what_is_final(
    visit: Visit, writer: Writer
):
    writer.register("counted")
    await visit.until("(stats) => stats.streams.includes('counted')")
    for n in (1, 2, 3):
        writer.result("counted", 0, MINUTE, device="car-19", n=n)
    writer.result("counted", MINUTE, 2 * MINUTE, device="car-19", n=1)
    writer.watermark("counted", MINUTE)
    table = visit.page.locator("#queries table", has_text="counted")
    await expect(table.locator("tbody tr")).to_have_count(2)
    await expect(table.locator('tbody tr[data-final="true"]')).to_contain_text("3")
    await expect(table.locator('tbody tr[data-final="false"]')).to_contain_text("open")


@pytest.mark.long
async def test_a_thousand_vehicles_are_all_drawn_on_one_canvas(visit: Visit, writer: Writer):
    """The last test: pages that are opened after it would draw them, too."""
    for _ in range(2):
        writer.fleet("thousand", 1_000)
    drawn = (
        "() => [...window.edgewake.vehicles.layer.points.keys()].filter((name) => "
        "name.startsWith('thousand-')).length === 1_000"
    )
    await visit.page.wait_for_function(drawn, polling=100)
    assert await visit.page.evaluate("document.querySelectorAll('#map *').length") < 1_000
