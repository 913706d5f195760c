"""The Live page in a real browser: every stream and query is found and shown by itself."""

from __future__ import annotations

import asyncio
import math
import re
import time

import pytest
from playwright.async_api import Route, expect

from tests.chromium import LOOKS, accessibility_faults
from tests.keyboard import tab_to, walk
from tests.page.conftest import Visit
from tests.page.world import OPS, AccessServer, Reading, Writer
from tests.services import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="session")


def furnish(writer: Writer, name: str) -> None:
    """A stream of climate, one with places, one with texts and states, and a query with a
    window.
    """
    for i in range(20):
        writer.reading(
            f"{name}_climate", "kitchen", temperature=21.0 + math.sin(i / 3), humidity=48.0 + i / 10
        )
        writer.reading(
            f"{name}_climate", "cellar", temperature=14.0 + math.cos(i / 3), humidity=71.0
        )
    for i in range(3):
        writer.reading(
            f"{name}_bikes",
            f"bike-{i}",
            lat=48.137 + i / 300,
            lon=11.575 + i / 200,
            battery=80.0 - i,
        )
    for i in range(6):
        writer.reading(
            f"{name}_doors", "gate", open=i % 2 == 0, reason="badge" if i % 3 else "button"
        )
    writer.register(f"{name}_busiest")
    start = time.time_ns() // 1_000_000 // 10_000 * 10_000 - 20_000
    for room, count in (("kitchen", 7), ("cellar", 3)):
        writer.result(f"{name}_busiest", start, start + 10_000, room=room, readings=count)


async def test_a_message_of_a_new_stream_is_on_the_screen_by_itself(live: Visit, writer: Writer):
    writer.reading("byhand_climate", "kitchen", temperature=21.4)
    card = live.page.get_by_role("article", name="Stream byhand_climate")
    await expect(card.locator('[data-field="temperature"] .figure')).to_have_text("21.4")
    await expect(card).to_contain_text("1 device")
    writer.reading("byhand_climate", "kitchen", temperature=22.5)
    await expect(card.locator('[data-field="temperature"] .figure')).to_have_text("22.5")
    assert live.complaints == []


async def test_each_kind_of_field_is_shown_as_suits_it(live: Visit, writer: Writer):
    furnish(writer, "kinds")
    climate = live.page.get_by_role("article", name="Stream kinds_climate")
    await expect(climate).to_contain_text("2 devices")
    bikes = live.page.get_by_role("article", name="Stream kinds_bikes")
    await expect(bikes.get_by_role("region", name="Map of kinds_bikes")).to_be_visible()
    doors = live.page.get_by_role("article", name="Stream kinds_doors")
    await expect(doors.locator('[data-field="open"] .figure')).to_have_text("off")
    await expect(doors.locator('[data-field="reason"] li').first).to_contain_text("badge")
    busiest = live.page.get_by_role("article", name="Query kinds_busiest")
    await expect(busiest.locator(".bars li")).to_have_text(["kitchen7", "cellar3"])
    await expect(busiest).to_contain_text("open")
    writer.watermark("kinds_busiest", time.time_ns() // 1_000_000)
    await expect(busiest).to_contain_text("final")
    assert live.complaints == []


@pytest.mark.long
async def test_a_query_shows_the_units_of_the_fields_whose_values_its_columns_have(
    live: Visit, writer: Writer
):
    writer.reading("units_room", "kitchen", temperature=21.0)
    writer.units("units_room", temperature="Cel")
    writer.register("units_warm", "units_both")
    for query in ("units_warm", "units_both"):
        measures = {"warm": ["units_room.temperature"]}
        writer.runs(query, "units_room", keys=("room",), measures=measures)
    start = time.time_ns() // 1_000_000 // 10_000 * 10_000 - 20_000
    for room, warm in (("kitchen", 21.5), ("cellar", 14.0)):
        writer.result("units_warm", start, start + 10_000, room=room, warm=warm)
        writer.result("units_both", start, start + 10_000, room=room, by="me", warm=warm, n=3)
    bars = live.page.get_by_role("article", name="Query units_warm").locator(".bars b")
    await expect(bars).to_have_text(["21.5\u2009°C", "14\u2009°C"])
    table = live.page.get_by_role("article", name="Query units_both")
    await expect(table.locator("thead th")).to_have_text(["room", "by", "warm °C", "n"])
    await live.page.evaluate("() => (location.hash = '#/queries/units_both')")
    heads = live.page.get_by_role("region", name="units_both").locator("thead th")
    await expect(heads).to_have_text(["window", "room", "by", "warm °C", "n", "revision"])
    assert live.complaints == []


async def test_a_query_without_groups_says_of_which_window_each_row_is(live: Visit, writer: Writer):
    writer.register("each_total", "each_room")
    writer.runs("each_total", "each_climate")
    writer.runs("each_room", "each_climate", keys=("room", "by"))
    now = time.time_ns() // 1_000_000 // 10_000 * 10_000
    for back in (30_000, 20_000, 10_000):
        begin = now - back - 10_000
        writer.result("each_total", begin, begin + 10_000, n=back, m=1)
        writer.result("each_room", begin, begin + 10_000, room="kitchen", by="me", n=back)
    total = live.page.get_by_role("article", name="Query each_total")
    await expect(total.locator("thead th")).to_have_text(["window to", "n", "m"])
    await expect(total.locator("tbody tr")).to_have_count(3)
    room = live.page.get_by_role("article", name="Query each_room")
    await expect(room.locator("thead th")).to_have_text(["room", "by", "n"])
    await expect(room.locator("tbody tr")).to_have_count(1)
    await expect(room).to_contain_text("10\u2009000")
    assert live.complaints == []


async def test_a_query_whose_groups_are_told_late_is_grouped_by_them_from_then_on(live: Visit):
    """The page was open before the analysis ran the query; a number is a group, too."""
    shown = await live.page.evaluate(
        """async () => {
          const { Live } = await import("/page/live/model.js");
          const live = new Live();
          const listed = { name: "q", kind: "query" };
          live.know([listed]);
          const window = { query: "q", window_start: 0, window_end: 10_000 };
          for (const [road, revision, n] of [[7, 1, 1], [8, 1, 2], [7, 2, 3], [8, 2, 4]]) {
            live.take({ ...window, road, revision, n }, 10_000);
            if (revision === 1) live.know([{ ...listed, keys: ["road"] }]);
          }
          const query = live.queries.get("q");
          return [query.keys, query.rows.map(({ road, n }) => [road, n])];
        }"""
    )
    assert shown == [["road"], [[7, 3], [8, 4]]]


async def test_what_was_made_anew_under_its_name_keeps_nothing_of_before(live: Visit):
    """The rows of a replaced query hid those of the new one, whose revisions begin again, and
    were called final; an erased stream kept its devices and fields.
    """
    shown = await live.page.evaluate(
        """async () => {
          const { Live } = await import("/page/live/model.js");
          const live = new Live();
          live.know([{ name: "q", kind: "query", keys: ["road"] },
            { name: "s", kind: "stream", fields: { heat: { unit: "Cel" } } }]);
          const window = { query: "q", window_start: 0, window_end: 10_000, road: 7 };
          live.take({ ...window, n: 1, revision: 9 }, 10_000);
          live.final("q", 10_000);
          live.take({ stream: "s", device: "gone", t: 1, received_at: 1, old: 1 }, 1);
          for (const stream of ["q", "s"]) {
            live.gap({ scope: "cursor", reason: "epoch", stream, lost: null }, 20_000);
          }
          live.take({ ...window, mean: 2, revision: 3 }, 20_000);
          live.take({ stream: "s", device: "d", t: 2, received_at: 2, heat: 1 }, 2);
          const [query, stream] = [live.queries.get("q"), live.streams.get("s")];
          return [query.rows.map(({ n, mean }) => [n ?? null, mean]), query.keys,
            query.isFinal(query.rows[0]), [...stream.devices.keys()], [...stream.fields.keys()],
            stream.unitOf("heat")];
        }"""
    )
    assert shown == [[[None, 2]], ["road"], False, ["d"], ["heat"], "°C"]


async def test_a_page_that_was_away_asks_again_what_came_before(live: Visit, writer: Writer):
    """A machine slept for an hour: its charts had a hole that the server could fill."""
    writer.reading("slept_climate", "kitchen", ago_s=600, temperature=19.5)
    card = live.page.get_by_role("article", name="Stream slept_climate")
    await expect(card.locator(".figure")).to_have_text("19.5")
    await live.page.evaluate(
        """() => {
          const { live, feeds } = edgewakeLive;
          const feed = feeds.find(({ streams }) => streams.includes("slept_climate"));
          live.streams.get("slept_climate").fields.get("temperature").state.points = [];
          feed.handlers.gap({ scope: "page", reason: "away", lost: null, away_s: 3_600,
            streams: feed.streams });
        }"""
    )
    steps = "edgewakeLive.live.streams.get('slept_climate').fields.get('temperature')?.state.steps"
    await live.page.wait_for_function(f"() => {steps}?.length === 1")


async def test_a_query_that_is_replaced_shows_its_new_columns_alone(live: Visit, writer: Writer):
    start = time.time_ns() // 1_000_000 // 10_000 * 10_000 - 20_000
    heads = live.page.get_by_role("article", name="Query replaced").locator("thead th")
    writer.register("replaced")
    writer.result("replaced", start, start + 10_000, room="kitchen", by="me", n=3)
    await expect(heads).to_have_text(["room", "by", "n"])
    writer.register("replaced")
    until = time.monotonic() + PATIENCE_S
    while await heads.all_inner_texts() != ["room", "by", "mean"]:
        assert time.monotonic() < until, await heads.all_inner_texts()
        writer.result("replaced", start, start + 10_000, room="kitchen", by="me", mean=3)
        await asyncio.sleep(1)


async def test_a_stream_opens_with_charts_devices_and_events_and_its_link_can_be_sent(
    live: Visit, writer: Writer
):
    furnish(writer, "opened")
    await live.page.get_by_role("link", name="opened_climate", exact=True).click()
    await expect(live.page.get_by_role("img", name="temperature over time")).to_be_visible()
    await expect(
        live.page.get_by_role("region", name="Latest of each device").locator("tbody tr")
    ).to_have_count(2)
    await expect(live.page.locator(".events li")).to_have_count(20)
    address = live.page.url
    await live.page.goto("about:blank")
    await live.page.goto(address)
    await expect(live.page.get_by_role("region", name="Latest of each device")).to_contain_text(
        "cellar"
    )
    await live.page.go_back()
    assert live.complaints == []


async def test_search_finds_by_any_part_of_the_name_and_by_keyboard(live: Visit, writer: Writer):
    furnish(writer, "sought")
    await expect(live.page.get_by_role("article", name="Stream sought_doors")).to_be_visible()
    await live.page.keyboard.press("/")
    await live.page.keyboard.type("sought_d")
    await expect(live.page.locator("article[data-stream]")).to_have_count(1)
    await live.page.keyboard.type("zzz")
    await expect(live.page.get_by_text("Nothing is called")).to_be_visible()


async def test_every_control_is_reached_by_keyboard_and_a_key_acts(live: Visit, writer: Writer):
    furnish(writer, "keys")
    await live.page.get_by_role("searchbox").fill("keys_")  # those of other tests come and go
    for name in ("Stream keys_climate", "Stream keys_doors", "Query keys_busiest"):
        await expect(live.page.get_by_role("article", name=name)).to_be_visible()
    assert await walk(live.page) == []
    await tab_to(live.page, "Keep keys_doors first")
    await live.page.keyboard.press("Space")
    pin = live.page.get_by_role("button", name="Keep keys_doors first")
    await expect(pin).to_have_attribute("aria-pressed", "true")
    await tab_to(live.page, "keys_doors")
    await live.page.keyboard.press("Enter")
    await live.page.wait_for_function("location.hash === '#/streams/keys_doors'")
    assert await walk(live.page) == []


async def test_names_and_texts_with_markup_stay_text(live: Visit, writer: Writer):
    writer.reading(
        "markup_texts", "<b>dev</b>", note="<img src=x onerror=alert(1)>", lat=1.0, lon=2.0
    )
    card = live.page.get_by_role("article", name="Stream markup_texts")
    await expect(card.locator('[data-field="note"] li')).to_contain_text(
        "<img src=x onerror=alert(1)>"
    )
    assert await card.locator("img").count() == 0
    assert live.complaints == []


@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_no_sideways_scroll_and_no_accessibility_fault(
    live: Visit, writer: Writer, width: int, theme: str
):
    furnish(writer, "axe")
    await live.page.set_viewport_size({"width": width, "height": 900})
    await live.page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
    for address in ("#/", "#/streams/axe_climate", "#/queries/axe_busiest", "#/streams/none"):
        await live.page.evaluate("(to) => (location.hash = to)", address)
        await expect(live.page.locator("main .card").first).to_be_visible()
        assert await live.page.evaluate("document.documentElement.scrollWidth") <= width, address
        faults = await accessibility_faults(live.page)
        assert faults == [], address


async def test_a_server_that_goes_and_comes_back_is_said_and_nothing_is_counted_twice(
    live: Visit, writer: Writer, server: AccessServer
):
    writer.reading("away_climate", "kitchen", temperature=1.0)
    card = live.page.get_by_role("article", name="Stream away_climate")
    await expect(card.locator(".figure")).to_have_text("1")
    server.process.stop()
    await expect(live.page.locator("#connection-seen")).to_contain_text("away")
    await expect(card.locator(".figure")).to_have_text("1")
    writer.reading("away_climate", "kitchen", temperature=2.0)
    server.start()
    await expect(card.locator(".figure")).to_have_text("2")
    counted = await live.page.evaluate("edgewakeLive.live.streams.get('away_climate').count")
    assert counted == 2


async def test_a_question_that_nobody_answers_ends_and_is_asked_again(live: Visit):
    """A machine slept and its connection was half open: the list, a board and all that waits for
    the past stood still, and nothing said so.
    """
    said = await live.page.evaluate(
        """async () => {
          const { StreamList } = await import("/page/streams.js");
          const { precede } = await import("/page/live/past.js");
          const { StreamModel } = await import("/page/live/model.js");
          const { timeout } = AbortSignal;
          AbortSignal.timeout = (ms) => timeout.call(AbortSignal, ms / 1_000);
          globalThis.fetch = (_, { signal } = {}) => new Promise((_, fail) =>
            signal?.addEventListener("abort", () => fail(signal.reason)));
          const list = new StreamList(() => {});
          const isAnswered = precede(new StreamModel("s"));
          const later = new Promise((go) => setTimeout(() => go("still waits"), 2_000));
          return [await Promise.race([isAnswered, later]), list.problem];
        }"""
    )
    assert said == [False, "the server is away"]


@pytest.mark.long
async def test_a_card_begins_with_what_came_before_its_age_and_a_line_of_a_quarter_of_an_hour(
    live: Visit, writer: Writer
):
    for minutes, heat in ((8, 19.5), (6, 20.5), (4, 21.4)):
        writer.reading("before_climate", "kitchen", ago_s=60 * minutes, temperature=heat)
    writer.reading("before_attic", "attic", ago_s=7_300, temperature=11.5)
    writer.units("before_climate", temperature="Cel")
    await live.page.reload()
    climate = live.page.get_by_role("article", name="Stream before_climate")
    await expect(climate.locator(".measured")).to_have_text("21.4\u2009°C")
    await expect(climate).to_contain_text("min ago")
    line = climate.locator(".spark polyline")
    await expect(line).to_have_attribute("points", re.compile(r"^\S+ \S+ \S+$"))
    attic = live.page.get_by_role("article", name="Stream before_attic")
    await expect(attic.locator(".figure")).to_have_text("11.5")
    await expect(attic).to_contain_text("2 h ")
    writer.reading("before_attic", "attic", temperature=12.5)
    await expect(attic.locator(".figure")).to_have_text("12.5")
    await live.page.goto(live.page.url + "#/streams/before_climate")
    await expect(live.page.get_by_role("heading", name="temperature")).to_contain_text("°C")
    assert live.complaints == []


@pytest.mark.long
async def test_what_came_before_is_asked_for_until_the_server_answers(live: Visit, writer: Writer):
    writer.reading("asked_climate", "kitchen", ago_s=600, temperature=19.5)
    refused: list[str] = []

    async def refuse(route: Route) -> None:
        refused.append(route.request.url)
        await route.fulfill(status=503, body="{}")

    past = re.compile(r"/v1/(streams|latest)/asked_climate")
    await live.page.route(past, refuse)
    await live.page.reload()
    card = live.page.get_by_role("article", name="Stream asked_climate")
    await expect(card).to_contain_text("What came before is asked for")
    async with asyncio.timeout(PATIENCE_S):
        while len(refused) < 2:
            await live.page.wait_for_timeout(50)
    await expect(card).not_to_contain_text("No reading that is kept")
    await live.page.unroute(past)
    await expect(card.locator(".figure")).to_have_text("19.5")


@pytest.mark.parametrize(
    "status", [*(pytest.param(one, marks=pytest.mark.long) for one in (404, 409, 422)), 503]
)
async def test_a_list_that_is_refused_says_why_until_it_is_there(live: Visit, status: int) -> None:
    page, detail = live.page, f"no list <b>{status}</b>"

    async def refused(route: Route) -> None:
        await route.fulfill(status=status, json={"status": status, "detail": detail})

    await page.route("**/v1/streams", refused)
    await page.reload()
    await expect(page.locator("main").get_by_role("status")).to_contain_text(detail)
    await expect(page.locator("#connection-seen")).to_contain_text(detail)
    await page.unroute("**/v1/streams")
    await expect(page.locator("main").get_by_text(detail)).to_have_count(0)


@pytest.mark.long
async def test_a_list_that_is_slow_loads_and_one_that_is_empty_says_how_to_send(
    live: Visit,
) -> None:
    page, may_come = live.page, asyncio.Event()

    async def held(route: Route) -> None:
        await may_come.wait()
        await route.fulfill(json={"streams": []})

    await page.route("**/v1/streams", held)
    await page.reload()
    await expect(page.locator("main").get_by_role("status")).to_have_text("loading…")
    may_come.set()
    await expect(page.get_by_role("article", name="How to send")).to_be_visible()
    await page.unroute_all(behavior="wait")


@pytest.mark.parametrize(
    ("status", "said"), [(401, "Log in"), (403, "Nothing here is yours to see")]
)
async def test_who_is_not_let_in_gets_a_form_in_place_of_an_empty_page(
    live: Visit, status: int, said: str
) -> None:
    async def refused(route: Route) -> None:
        await route.fulfill(status=status, json={"status": status, "detail": "no"})

    await live.page.route("**/v1/streams", refused)
    await live.page.reload()
    await expect(live.page.get_by_role("heading", name=said)).to_be_visible()
    await expect(live.page.get_by_label("Key or token")).to_be_visible()
    await expect(live.page.locator("#live")).to_be_hidden()
    await live.page.unroute_all(behavior="wait")


async def test_what_is_read_from_the_past_and_from_the_feed_counts_once(live: Visit):
    counted = await live.page.evaluate(
        """async () => {
          const { StreamModel } = await import("/page/live/model.js");
          const reading = (seq) => ({ stream: "s", device: "d", epoch: 1, seq, t: seq * 60_000,
            received_at: seq * 60_000, heat: seq, mode: `m${seq}` });
          const results = [];
          for (const isFeedFirst of [false, true]) {
            const model = new StreamModel("s");
            const feed = () => [3, 4, 5].forEach((seq) => model.take(reading(seq), 300_000));
            if (isFeedFirst) feed();
            model.precede([1, 2, 3, 4].map(reading), 300_000);
            if (!isFeedFirst) feed();
            results.push([model.count, model.fields.get("heat").state.steps.map((one) => one[1]),
              model.newest.map((one) => one.seq), model.fields.get("mode").state.total,
              model.devices.get("d").seq, model.heardAt]);
          }
          return results;
        }"""
    )
    assert counted == [[5, [1, 2, 3, 4, 5], [5, 4, 3, 2, 1], 5, 5, 300_000]] * 2


async def test_texts_are_counted_over_the_last_minutes_however_long_a_page_is_open(live: Visit):
    """After a day a card said "idle 100 %" of a machine that had just broken down."""
    shown = await live.page.evaluate(
        """async () => {
          const { StreamModel, TEXTS_MAX } = await import("/page/live/model.js");
          const [minute, day] = [60_000, 24 * 60], model = new StreamModel("s");
          let seq = 0;
          const take = (minutes, mode) => model.take({ device: "d", epoch: 1, seq: (seq += 1),
            t: minutes * minute, received_at: minutes * minute, mode }, minutes * minute);
          for (let at = 0; at < day; at += 1) take(at, "idle");
          take(day, "broken");
          const { state } = model.fields.get("mode");
          const said = [[state.top(2), state.total]];
          for (let i = 0; i < 1_000; i += 1) take(day + 2, `text ${i}`);
          const isBounded = state.counts.size <= TEXTS_MAX;
          take(day + 60, "idle");
          said.push([state.top(2), state.total]);
          return [said, isBounded];
        }"""
    )
    after_a_day, an_hour_later = [[["idle", 14], ["broken", 1]], 15], [[["idle", 1]], 1]
    assert shown == [[after_a_day, an_hour_later], True]


async def test_streams_stand_by_who_was_heard_and_those_of_the_system_do_not(
    live: Visit, writer: Writer
):
    now = int(time.time() * 1000)
    ordered = await live.page.evaluate(
        """async (now) => {
          const { Live } = await import("/page/live/model.js");
          const live = new Live();
          const names = ["a_old", "b_new", "c_none", "d_older", "e_new", "f_pinned"];
          live.know([...names.map((name) => ({ name, kind: "stream" })),
            { name: "part_status", kind: "stream", of_system: true },
            { name: "q", kind: "query", state: "failed" }]);
          const ago = { a_old: 300_000, b_new: 9_000, d_older: 900_000, e_new: 100 };
          for (const [stream, ms] of Object.entries(ago)) live.take({ stream, device: "d",
            t: now - ms, received_at: now - ms }, now);
          return [live.ordered(new Set(["f_pinned"]), now).map(({ name }) => name),
            live.problems(now).map(({ text }) => text)];
        }""",
        now,
    )
    assert ordered == [
        ["f_pinned", "b_new", "e_new", "a_old", "d_older", "c_none"],
        ["q does not run: failed"],
    ]
    writer.reading("late_readings", "analysis", readings=1)
    writer.reading("heard_climate", "kitchen", temperature=1.0)
    await expect(live.page.get_by_role("article", name="Stream heard_climate")).to_be_visible()
    await expect(live.page.get_by_role("article", name="Stream late_readings")).to_have_count(0)


async def test_a_stream_that_is_read_up_is_not_called_silent(live: Visit):
    states = await live.page.evaluate(
        """async () => {
          const { StreamModel } = await import("/page/live/model.js");
          const model = new StreamModel("s");
          const at = (s) => ({ device: "d", epoch: 1, seq: s, t: s * 1000, received_at: s * 1000 });
          for (let s = 100; s < 110; s += 1) model.take(at(s), 200_000);
          return [200_000, 204_000, 206_000].map((now) => model.state(now));
        }"""
    )
    assert states == ["well", "well", "late"]


async def test_the_front_page_leads_to_operations_and_says_what_is_silent(
    live: Visit, writer: Writer
):
    await expect(live.page.get_by_role("link", name="Operations")).to_have_attribute("href", OPS)
    for ago_s in range(60, 19, -5):
        writer.reading("fell_silent", "kitchen", ago_s=ago_s, temperature=1.0)
    problems = live.page.get_by_role("list", name="Problems")
    await expect(problems).to_contain_text("fell_silent is silent for longer than usual")
    await problems.get_by_role("link", name="fell_silent").click()
    await expect(live.page.get_by_role("img", name="temperature over time")).to_be_visible()
    await live.page.goto(live.page.url.split("#")[0] + "town")
    await expect(live.page.get_by_role("link", name="Operations")).to_have_attribute("href", OPS)


@pytest.mark.long
async def test_a_stream_that_is_not_followed_says_so_and_is_when_it_is_pinned(live: Visit):
    names = [*(f"many_{number:03}" for number in range(70)), "zz_last"]
    streams = [{"name": name, "kind": "stream", "fields": {}} for name in names]

    async def many(route: Route) -> None:
        await route.fulfill(json={"streams": streams})

    await live.page.route("**/v1/streams", many)
    card = live.page.get_by_role("article", name="Stream zz_last")
    await expect(card).to_contain_text("Not followed")
    await expect(live.page.get_by_text("7 of these are not followed")).to_be_visible()
    await card.get_by_role("button", name="Keep zz_last first").click()
    await expect(card).to_contain_text("No reading that is kept")
    await live.page.evaluate("localStorage.clear()")


@pytest.mark.long
async def test_a_stream_that_sends_much_has_its_lines_from_a_quarter_of_an_hour_ago(
    live: Visit, writer: Writer
) -> None:
    for ago_s in range(840, 0, -60):
        burst = [Reading("much_climate", f"dev-{i}", {"heat": float(ago_s)}) for i in range(60)]
        writer.readings(burst, ago_s=ago_s)
    await live.page.goto(f"{live.page.url.split('#')[0]}#/streams/much_climate")
    await expect(live.page.get_by_role("img", name="heat over time")).to_be_visible()
    steps = "() => edgewakeLive.live.streams.get('much_climate').fields.get('heat').state.steps"
    await live.page.wait_for_function(f"(n) => ({steps})().length === n", arg=14)
    found = await live.page.evaluate(f"({steps})().map((step) => step[1])")
    assert found == [float(ago_s) for ago_s in range(840, 0, -60)]


@pytest.mark.long
async def test_a_card_that_changes_its_place_keeps_the_focus(live: Visit, writer: Writer) -> None:
    for name in ("moved_a", "moved_b"):
        writer.reading(name, "dev", heat=1.0)
    page = live.page
    await page.get_by_role("searchbox").fill("moved_")
    await expect(page.get_by_role("article", name="Stream moved_b")).to_be_visible()
    await tab_to(page, "Keep moved_b first")
    await page.keyboard.press("Enter")
    first = page.locator("article").first
    await expect(first).to_have_attribute("data-stream", "moved_b")
    await expect(page.get_by_role("button", name="Keep moved_b first")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(first).to_have_attribute("data-stream", "moved_a")
    await expect(page.get_by_role("button", name="Keep moved_b first")).to_be_focused()
