"""Streams, queries, summaries and questions on the operations pages, by role and name."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect

from edgewake.cloud.summaries.summary import MINUTE_MS, Series
from edgewake.protocol import topics
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.frame import encode, from_plain
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.ops.preview import Preview
from edgewake.protocol.ops.query import Progress, QueryState
from tests.bridge.running import read
from tests.chromium import accessibility_faults
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.service import ACCESS, Ops
from tests.ops.test_app import declare, eventually, sql
from tests.services import wait_until
from tests.summaries.made import minute

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]

UNDERLINED = "() => [...CSS.highlights.get('refused') ?? []].map((range) => range.toString())"


async def underlined(page: Page, wanted: list[str]) -> None:
    """These words are; they are marked after the sentence is shown."""
    await page.wait_for_function(
        f"(wanted) => ({UNDERLINED})().join() === wanted.join()", arg=wanted
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(writer: Writer, device: str, stream: str, **fields: float | str) -> None:
    """A reading of now, on its stream."""
    reading = json.dumps({"t": now_ms(), **fields}).encode()
    value = records.encode(
        device=device,
        stream=stream,
        mode=Mode.ACK,
        sent_at=None,
        received_at=now_ms(),
        frame_bytes=encode(from_plain(reading, received_at=now_ms())),
    )
    writer.put(topics.stream_topic(stream), device, value)


async def holds_in_both_themes_and_on_a_phone(page: Page) -> None:
    """Axe finds nothing, and nothing is cut at 390 px; then the page is as wide as before."""
    before = page.viewport_size
    for width in (1440, 390):
        await page.set_viewport_size({"width": width, "height": 900})
        for theme in ("light", "dark"):
            await page.evaluate("(one) => (document.documentElement.dataset.theme = one)", theme)
            assert await accessibility_faults(page) == [], (width, theme)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert before is not None
    await page.set_viewport_size(before)


async def reads_the_same(page: Page, stream: str, where: str) -> None:
    """The programs that the console gives ask for what it shows."""
    python = await page.get_by_text("from edgewake.edge.client import").inner_text()
    *program, run = python.splitlines()
    assert run == "asyncio.run(follow())"
    found: dict[str, Any] = {}
    exec("\n".join(program), found)
    (wanted,) = [line for line in program if "wanted =" in line]
    subscription = eval(wanted.split("=", 1)[1], found)
    assert (subscription.streams, subscription.where) == ((stream,), where)
    script = await page.get_by_text("new EventSource(").inner_text()
    address = httpx.URL(json.loads(script.split("EventSource(")[1].split(");")[0]))
    assert (address.path, address.params["where"]) == (f"/v1/streams/{stream}/events", where)
    assert str(address).startswith(ACCESS)


async def test_a_console_shows_what_a_filter_passes_and_says_what_is_wrong_in_it(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, page = unique("s"), visit.page
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    for device, speed in (("slow", 20), ("fast", 80)):
        send(writer, device, stream, speed=speed)
    await visit.open(f"#/streams/{stream}")
    readings = page.get_by_role("region", name="Newest readings")
    await expect(readings).to_contain_text("slow")
    await page.get_by_role("textbox", name="where").fill("speed > 50 AND device <> 'van''s'")
    await page.get_by_role("textbox", name="where").press("Enter")
    await expect(readings).to_contain_text("fast")
    await expect(readings).not_to_contain_text("slow")
    await page.get_by_role("textbox", name="select").fill("device, speed / 3.6 AS metres_a_second")
    await page.get_by_role("button", name="Show").click()
    await expect(readings.get_by_role("columnheader")).to_have_text(["device", "metres a second"])
    await expect(readings).to_contain_text("22.2")
    address = await page.evaluate("location.hash")
    assert "where=speed+%3E+50" in address
    curl = page.get_by_text(f"curl -N '{ACCESS}/v1/streams/{stream}/events?from=-5m&where=")
    await expect(curl).to_contain_text("device%20%3C%3E%20%27van%27%27s%27")
    await reads_the_same(page, stream, "speed > 50 AND device <> 'van''s'")
    await page.get_by_role("button", name="Pause").click()
    send(writer, "faster", stream, speed=90)
    await expect(page.get_by_text("paused")).to_be_visible()
    await page.get_by_role("button", name="Go on").click()
    await expect(readings).to_contain_text("faster")
    await page.get_by_role("textbox", name="where").fill("speed >")
    await page.get_by_role("button", name="Show").click()
    refused = page.get_by_role("alert")
    await expect(refused).to_contain_text("where:")
    await expect(page.get_by_role("textbox", name="where")).to_have_attribute(
        "aria-invalid", "true"
    )
    await holds_in_both_themes_and_on_a_phone(page)
    await page.get_by_role("textbox", name="where").fill("speed > 85")
    await page.get_by_role("button", name="Show").click()
    await expect(refused).to_have_count(0)
    await page.get_by_role("link", name="these columns as results of their own").click()
    await expect(page.get_by_role("textbox", name="Query file")).to_contain_text("speed > 85")
    assert [one for one in visit.complaints if "status of 422" not in one] == []


@pytest.mark.long
async def test_who_reads_further_down_is_not_moved_by_what_comes(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, page = unique("s"), visit.page
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    for number in range(40):
        send(writer, f"dev-{number}", stream, speed=number)
    await visit.open(f"#/streams/{stream}")
    readings = page.get_by_role("region", name="Newest readings")
    rows = readings.get_by_role("row")
    await expect(rows).to_have_count(41)
    await readings.evaluate("(box) => (box.scrollTop = 200)")
    before = await rows.nth(1).inner_text()
    for number in range(3):
        send(writer, f"late-{number}", stream, speed=number)
    more = page.get_by_role("button", name="3 new")
    await expect(more).to_be_visible()
    assert await rows.nth(1).inner_text() == before
    assert await readings.evaluate("(box) => box.scrollTop") == 200
    await more.click()
    await expect(rows).to_have_count(44)
    await expect(more).to_have_count(0)
    await expect(rows.nth(1)).to_contain_text("late-")
    assert visit.complaints == []


@pytest.mark.long
async def test_fields_of_a_stream_show_what_they_held_lately(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream, unit="Cel")
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    await visit.open(f"#/streams/{stream}")
    await expect(visit.page.get_by_text("Nothing is summed up")).to_be_visible()
    start = now_ms() // MINUTE_MS * MINUTE_MS - 3 * MINUTE_MS
    held = minute(start, [float(one) for one in range(1, 101)], Series(stream, "speed"))
    writer.put(topics.MINUTES, held.key, held.encode())
    row = visit.page.get_by_role("region", name="Fields").get_by_role("row", name="speed")
    await expect(row.get_by_role("cell")).to_have_text(
        ["speed", "number", "°C", "1", "50.5", "99", "100"]
    )
    found = ops.client.get(f"/v1/streams/{stream}/summary?minutes=15").json()
    assert found["fields"]["speed"]["figures"]["readings"] == 100
    assert ops.client.get("/v1/streams/never_there/summary").status_code == 404
    await holds_in_both_themes_and_on_a_phone(visit.page)


@pytest.mark.long
async def test_what_a_check_refuses_is_underlined_and_led_to(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, name, page = unique("s"), unique("q"), visit.page
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    await visit.open("#/queries/new")
    text = page.get_by_role("textbox", name="Query file")
    await text.fill(sql(name, stream).replace("avg(speed)", "avg(sped)"))
    await expect(text.locator(".keyword").first).to_have_text("SELECT")
    await text.press("Control+Enter")
    place = page.get_by_role("button", name="line 3, column")
    await expect(place).to_be_visible()
    await expect(text).to_have_attribute("aria-invalid", "true")
    await underlined(page, ["sped"])
    await holds_in_both_themes_and_on_a_phone(page)
    await place.press("Enter")
    await page.keyboard.type("speed")
    await expect(text).to_contain_text("avg(speed)")
    await expect(place).to_have_count(0)
    assert await page.evaluate(UNDERLINED) == []
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_role("list", name="What is done with a reading")).to_contain_text(
        stream
    )
    await expect(page.get_by_text("Columns of its results")).to_contain_text("mean")
    await text.press("Tab")
    await expect(text).not_to_be_focused()
    assert [one for one in visit.complaints if "status of 422" not in one] == []


async def test_a_preview_shows_rows_of_the_chosen_time(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    """The analysis is played by the test: it answers on the topic of previews."""
    stream, name, page = unique("s"), unique("q"), visit.page
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    await visit.open("#/queries/new")
    await page.get_by_role("textbox", name="Query file").fill(sql(name, stream))
    await page.get_by_label("the last").select_option("hour")
    await page.get_by_role("button", name="Preview").click()
    asked: list[Preview] = []

    def heard() -> bool:
        found = [one.value() for one in read(writer.config, topics.PREVIEWS) if one.value()]
        asked[:] = [one for one in map(Preview.model_validate_json, found) if name in one.text]
        return bool(asked)

    wait_until(heard, "a preview is asked for")
    assert asked[0].asked_at - asked[0].since == 3_600_000
    assert asked[0].rows_max == 50
    end = now_ms() // 10_000 * 10_000
    row = {"window_start": end - 10_000, "window_end": end, "device": "car-07", "mean": 41.5}
    answer = asked[0].model_copy(update={"rows": (json.dumps(row),)})
    writer.put(topics.PREVIEWS, answer.id, answer.model_dump_json().encode())
    preview = page.get_by_role("region", name="Preview")
    await expect(preview).to_contain_text("car-07")
    await expect(preview).to_contain_text("41.5")
    await expect(preview.locator("thead th").last).to_have_text("mean km/h")
    await expect(page.get_by_text("of the last hour; nothing is registered")).to_be_visible()


class Found:
    """A query whose results the test writes, as the analysis does."""

    def __init__(self, ops: Ops, writer: Writer, stream: str, name: str) -> None:
        self._writer = writer
        text = sql(name, stream).replace("device", "road")
        declare_road(writer, stream)
        eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
        made = ops.client.post("/v1/queries", json={"text": text})
        assert made.status_code == 201, made.text
        self.name, self.topic = name, made.json()["topic"]
        self.stream, self.end = stream, now_ms() // 10_000 * 10_000
        eventually(lambda: ops.client.get(f"/v1/queries/{name}"))

    def runs(self, **more: Any) -> None:
        """It runs, and says how far it is."""
        told = Progress(
            query=self.name, stream=self.stream, state=QueryState.RUNNING, keys=("road",),
            measures={"mean": (f"{self.stream}.speed",)}, updated_at=now_ms() + 1000, **more,
        )  # fmt: skip
        self._writer.put(topics.PROGRESS, self.name, told.model_dump_json().encode())

    def row(self, road: int, mean: float, revision: int, **more: Any) -> None:
        """A row of the newest window, as `more` says otherwise."""
        row = {
            "query": self.name, "window_start": self.end - 10_000, "window_end": self.end,
            "road": road, "mean": mean, "revision": revision, "final": False, **more,
        }  # fmt: skip
        self._writer.put(self.topic, f"{self.end}|{road}", json.dumps(row).encode())


def declare_road(writer: Writer, name: str) -> None:
    fields = {"speed": {"type": "number", "unit": "Cel"}, "road": {"type": "number"}}
    writer.put(topics.STREAMS, name, json.dumps({"name": name, "fields": fields}).encode())
    writer.put(topics.stream_topic(name), "d", b"{}")


async def test_results_are_the_newest_of_each_window_and_group_with_those_before(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    query = Found(ops, writer, unique("s"), unique("q"))
    before = {"window_start": query.end - 20_000, "window_end": query.end - 10_000}
    query.runs(watermark=query.end - 10_000, late=3)
    query.row(7, 30.0, 1, final=True, **before)
    query.row(7, 33.0, 5, final=True, **before)
    query.row(7, 41.0, 3)
    query.row(7, 40.0, 2)
    query.row(8, 50.0, 3, id="its own", before="as it was", isOpen="of a door")
    fields = {"late_query": query.name, "late_stream": query.stream, "readings": 3,
              "window_ends": query.end - 60_000, "examples": '[{"device":"car-07"}]'}  # fmt: skip
    send(writer, "analysis", "late_readings", **fields)
    send(writer, "analysis", "late_readings", **(fields | {"late_query": "another", "readings": 9}))
    await visit.open(f"#/queries/{query.name}")
    results = visit.page.get_by_role("region", name="Newest results")
    rows = results.get_by_role("row")
    await expect(rows).to_have_count(4)

    async def cells(row: Locator) -> list[str]:
        return (await row.get_by_role("cell").all_inner_texts())[1:3]

    shown = sorted([await cells(rows.nth(1)), await cells(rows.nth(2))])
    assert shown == [["7", "41"], ["8", "50"]]
    other = rows.filter(has_text="its own")
    await expect(other).to_contain_text("as it was")
    await expect(other).to_contain_text("of a door")
    await expect(other.get_by_role("cell").last).to_have_text("open")
    corrected = rows.nth(3)
    await expect(corrected).to_contain_text("corrected")
    chart = visit.page.get_by_role("img", name="mean over time, 1 corrected")
    await expect(chart).to_be_visible()
    await expect(visit.page.get_by_text("1 window said something else")).to_be_visible()
    await corrected.get_by_text("2 revisions").click()
    await expect(corrected.get_by_role("listitem")).to_contain_text("mean 30 °C")
    await expect(results.get_by_role("columnheader").nth(2)).to_have_text("mean °C")
    measured = visit.page.get_by_role("heading", name="mean °C, mean of its windows")
    await expect(measured).to_be_visible()
    late = visit.page.get_by_role("region", name="Late readings")
    await expect(late.get_by_role("row")).to_have_count(2)
    await expect(late).to_contain_text("car-07")
    await expect(visit.page.get_by_text("3 since it was registered")).to_be_visible()
    await holds_in_both_themes_and_on_a_phone(visit.page)
    assert visit.complaints == []


@pytest.mark.long
async def test_two_times_stand_side_by_side_and_a_value_is_counted(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, page = unique("s"), visit.page
    start = now_ms() // MINUTE_MS * MINUTE_MS - 3 * MINUTE_MS
    for at, values in ((start, [7.0] * 3 + [8.0]), (start - 60 * MINUTE_MS, [7.0] * 2 + [9.0])):
        held = minute(at, values, Series(stream, "price"))
        writer.put(topics.MINUTES, held.key, held.encode())
    path = f"/v1/summaries/{stream}/price?from={start - 61 * MINUTE_MS}"
    eventually(lambda: ops.client.get(path), lambda one: one["rows"][0]["figures"]["readings"] == 7)
    await visit.open(f"#/summaries/{stream}.price")
    now, before = (page.get_by_label(one, exact=True) for one in ("The time", "The time beside it"))
    await expect(now).to_contain_text("7.25")
    await page.get_by_role("link", name="the time before").click()
    await expect(before).to_contain_text("7.667")
    await expect(page.get_by_text("Different values: 3 in either time")).to_be_visible()
    await page.get_by_label("How often was it").fill("7")
    await page.get_by_role("button", name="Count").click()
    await expect(now.get_by_role("status")).to_contain_text("7 occurred 3")
    await expect(before.get_by_role("status")).to_contain_text("7 occurred 2")
    assert "beside=before" in await page.evaluate("location.hash")
    await holds_in_both_themes_and_on_a_phone(page)
    assert visit.complaints == []


async def test_a_first_question_has_an_answer_and_its_times_are_local_ones(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, page = unique("s"), visit.page
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    await visit.open("#/ask")
    await expect(page.locator("#sql")).to_contain_text("ORDER BY t DESC LIMIT 20")
    asked = (await page.locator("#sql").inner_text()).split()[3].strip('"')
    assert ops.client.get(f"/v1/streams/{asked}").is_success
    await visit.open("#/ask?sql=SELECT make_timestamp_ms(0) AS began, 1 AS one")
    await page.get_by_role("button", name="Ask", exact=True).click()
    answer = page.get_by_role("region", name="Answer")
    await expect(answer.locator("tbody td").first).to_have_text(re.compile("1970, 00:00:00"))
    await expect(page.get_by_text("Times are those of UTC.")).to_be_visible()
    await visit.open("#/ask?sql=SELECT 1 AS one, 2 AS one, 3 AS one")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(answer.locator("thead th")).to_have_text(["one", "one (2)", "one (3)"])
    await expect(answer.locator("tbody td")).to_have_text(["1", "2", "3"])
    measured = unique("s")
    fields = {"speed": {"type": "number", "unit": "km/h"}}
    row = json.dumps({"name": measured, "fields": fields}).encode()
    writer.put(topics.STREAMS, measured, row)
    send(writer, "car-07", measured, speed=41.0)
    eventually(lambda: ops.client.get(f"/v1/streams/{measured}"))
    await visit.open(f'#/ask?sql=SELECT max(speed) AS top, count(*) AS n FROM "{measured}"')
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(answer.locator("thead th")).to_have_text(["top km/h", "n"])
    assert visit.complaints == []


LONGEST_S = 60
SLOW = "SELECT max(a.i * b.i % 7) FROM range(2000000) a(i), range(2000000) b(i)"


async def test_a_question_is_seen_under_way_and_stopped(visit: Visit) -> None:
    page = visit.page

    async def patiently(route: Route) -> None:
        """Else it is given up after ten seconds, however slow the machine of the test is."""
        await route.continue_(post_data={**route.request.post_data_json, "seconds": LONGEST_S})

    await page.route("**/v1/sql", patiently)
    await visit.open("#/ask")
    text = page.locator("#sql")
    await text.fill(SLOW)
    await text.press("Control+Enter")
    await expect(page.get_by_role("progressbar", name="The question is under way")).to_be_visible()
    await expect(page.get_by_role("timer")).to_contain_text("s")
    await expect(page.get_by_role("button", name="Ask")).to_be_disabled()
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_role("progressbar")).to_have_count(0)
    await text.fill("SELECT 6 * 7 AS answer")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_role("region", name="Answer")).to_contain_text("42")
    await holds_in_both_themes_and_on_a_phone(page)
    await text.fill("SELECT 6 *\n  seven")
    await text.press("Control+Enter")
    await expect(page.get_by_role("button", name="line 2, column")).to_be_visible()
    await underlined(page, ["seven"])
    await page.unroute_all(behavior="wait")
    assert [one for one in visit.complaints if "status of 422" not in one] == []


async def test_an_open_screen_learns_of_a_query_its_groups_and_units_and_that_it_was_replaced(
    visit: Visit,
) -> None:
    """A board that was open before its query was registered showed nothing until it was loaded
    again, and of a replaced one the rows of both.
    """
    shown = await visit.page.evaluate(
        """async () => {
          const later = setTimeout;
          globalThis.setTimeout = (call, ms) => later(call, ms / 50);
          const { html, render } = await import("/page/vendor/htm/standalone.module.js");
          const { useModels } = await import("/page/ops/live_data.js");
          let queries = [], live;
          const page = (items) => ({ items, next: null, total: items.length });
          const answers = {
            "/v1/queries": () => page(queries),
            "/v1/streams": () => page([]),
            "/v1/recent": () => ({ events: queries.map(({ row }) => row), place: "p" }),
          };
          const ask = globalThis.fetch; /* for the page that is open around it */
          globalThis.fetch = (path, options) => {
            const answer = answers[path.split("?")[0]];
            return answer ? new Response(JSON.stringify(answer())) : ask(path, options);
          };
          const View = () => {
            live = useModels({ names: ["q"] }).live;
            return null;
          };
          render(html`<${View} />`, document.createElement("div"));
          const until = async (isSo) => {
            for (let i = 0; i < 200 && !isSo(live.queries.get("q")); i += 1) {
              await new Promise((go) => later(go, 50));
            }
            const query = live.queries.get("q");
            const rows = query?.all.map(({ n, heat }) => [n ?? null, heat ?? null]);
            return query ? [query.keys, query.unitOf("heat"), rows] : null;
          };
          const row = { query: "q", window_start: 0, window_end: 10_000 };
          const one = { name: "q", topic: "ew.q.q.1", keys: [], units: {} };
          await until(() => live.streams.has("q"));
          queries = [{ ...one, row: { ...row, n: 1, revision: 9 } }];
          const said = [await until((query) => query?.all.length)];
          queries = [{ ...queries[0], keys: ["road"], units: { heat: "Cel" } }];
          said.push(await until((query) => query?.keys));
          queries = [{ ...queries[0], topic: "ew.q.q.2", row: { ...row, heat: 2, revision: 1 } }];
          said.push(await until((query) => query?.all[0]?.heat));
          return said;
        }"""
    )
    assert shown == [
        [None, "", [[1, None]]],
        [["road"], "°C", [[1, None]]],
        [["road"], "°C", [[None, 2]]],
    ]


async def test_a_chosen_time_beside_stays_however_long_the_page_is_open(visit: Visit) -> None:
    """It went on with the clock: after three hours "the time to 10:00" was that to 13:00."""
    off_by = await visit.page.evaluate(
        """async () => {
          const later = setTimeout;
          globalThis.setTimeout = (call, ms) => later(call, ms / 300);
          const { html, render } = await import("/page/vendor/htm/standalone.module.js");
          const { SummaryPage } = await import("/page/ops/summaries.js");
          const asked = [];
          globalThis.fetch = async (path) => {
            if (path.startsWith("/v1/summaries/")) asked.push(new URL(path, "http://x"));
            return new Response("{}", { status: 503 });
          };
          const end = Date.now() - 7_200_000;
          const params = new URLSearchParams({ beside: end });
          const page = html`<${SummaryPage} name="s.heat" params=${params} />`;
          render(page, document.createElement("div"));
          await new Promise((go) => later(go, 300));
          const { now } = Date;
          Date.now = () => now() + 3_600_000; /* the page is open for an hour */
          asked.length = 0;
          await new Promise((go) => later(go, 1_000));
          const ends = asked.map(({ searchParams }) =>
            Number(searchParams.get("with_to") ?? searchParams.get("to")));
          return [...new Set(ends.filter((to) => to < now() + 1_800_000).map((to) => to - end))];
        }"""
    )
    assert off_by == [0]
