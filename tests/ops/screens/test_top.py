"""The top line and a device's past: how it is, who I am, the time of charts, what was lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from playwright.async_api import Browser, Dialog, Route, expect

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceGaps, DeviceSeen, DeviceState, DeviceStatus
from tests.chromium import accessibility_faults, open_page
from tests.feeds import NOW_MS, Feed
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_more import now_ms
from tests.ops.service import ACCESS, Ops
from tests.ops.test_app import declare, eventually

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def feed(kafka_config: KafkaConfig, writer: Writer) -> Iterator[Feed]:
    made = Feed(kafka_config)
    declare(writer, made.name)
    yield made
    made.close()


def says(
    writer: Writer,
    device: str,
    *,
    lost: int = 0,
    waiting: int | None = None,
    oldest_s: float | None = None,
) -> None:
    """The device's agent reports."""
    status = DeviceStatus(
        device=device,
        state=DeviceState.ONLINE,
        received_at=now_ms(),
        version="1.0",
        lost_readings=lost,
        backlog_readings=waiting,
        oldest_unacked_s=oldest_s,
    )
    writer.put(topics.DEVICES, f"{device}|status", status.to_json())


@pytest.mark.long
async def test_who_i_am_and_how_it_is_stand_on_every_page(visit: Visit) -> None:
    page = visit.page
    for address in ("#/", "#/boards", "#/audit"):
        await visit.open(address)
        me = page.get_by_role("group", name="Who I am")
        await expect(me).to_have_text("operator may operate")
        await expect(page.get_by_role("link", name="How it is:")).to_be_visible()
    await expect(page.get_by_role("button", name="Log out")).to_be_visible()
    live = page.get_by_role("link", name="Live", exact=True)
    await expect(live).to_have_attribute("href", f"{ACCESS}/")
    await expect(page.get_by_role("combobox", name="Time", exact=True)).to_have_count(0)


async def test_what_was_lost_is_a_problem_that_is_counted_above_and_leads_to_the_gaps(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str], feed: Feed
) -> None:
    device, page = unique("dev"), visit.page
    says(writer, device, lost=5)
    eventually(lambda: ops.client.get(f"/v1/devices/{device}"))
    says(writer, device, lost=12_345)
    gaps = DeviceGaps(device=device, at=now_ms(), opened=2_000)
    writer.put(topics.DEVICES, f"{device}|gaps", gaps.to_json())
    feed.send(device, 2)
    feed.gap(device, 3)
    eventually(lambda: ops.client.get(f"/v1/streams/{feed.name}"))
    eventually(
        lambda: ops.client.get("/v1/overview"),
        lambda body: (
            {"lost", "opened"}
            <= {
                one["name"]
                for one in body["problems"]
                if one["kind"] == "loss" and device in one["text"]
            }
        ),
    )
    await visit.open("#/boards")
    pill = page.get_by_role("link", name="How it is:")
    await expect(pill).to_contain_text("problem")
    await pill.click()
    attention = page.get_by_role("region", name="Needs attention")
    lost = attention.get_by_role("link", name="lost for good within the last hour")
    await expect(lost).to_contain_text(device)
    await expect(attention.get_by_role("link", name="opened within the last hour")).to_be_visible()
    await lost.click()
    row = page.get_by_role("row").filter(has_text=device).first
    await expect(row).to_contain_text("quota")
    await expect(row).to_contain_text("3")
    events = ops.client.get(f"/v1/history?kind=loss&name={device}").json()["items"]
    assert {"lost": 12_340} in [one["facts"] for one in events]


async def test_a_device_shows_its_gaps_its_backlog_and_its_past(
    visit: Visit,
    browser: Browser,
    ops: Ops,
    writer: Writer,
    unique: Callable[[str], str],
    feed: Feed,
) -> None:
    device, page = unique("dev"), visit.page
    columns = {"speed": [1.0, 5.0]}
    feed.send(device, 2, fields=columns)
    feed.gap(device, 3)
    feed.send(device, 2, fields=columns)
    eventually(lambda: ops.client.get(f"/v1/streams/{feed.name}"))
    seen = DeviceSeen(
        device=device, last_seen=now_ms(), skew_ms=0, records=2, streams={feed.name: 2}
    )
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    for waiting in (10, 90, 4_000, 700):
        says(writer, device, waiting=waiting, oldest_s=120.0)
    eventually(
        lambda: ops.client.get(f"/v1/history?kind=device&name={device}"),
        lambda body: {one["facts"].get("backlog_readings") for one in body["items"]} >= {4_000},
    )
    await visit.open(f"#/devices/{device}")
    await expect(page.get_by_text("1 gap in this time: quota (3 readings)")).to_be_visible()
    await expect(page.get_by_role("img", name="speed over time, 1 gap")).to_be_visible()
    await expect(page.get_by_role("img", name="at most 4\u2009000 readings waited")).to_be_visible()
    time = page.get_by_role("combobox", name="Time", exact=True)
    await time.select_option("from – to")
    first = NOW_MS
    await page.get_by_label("from", exact=True).fill(local(first - 3_600_000))
    await page.get_by_label("to", exact=True).fill(local(first + 3_600_000))
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("loading…")).to_have_count(0)
    await expect(page.get_by_role("img", name="speed over time")).to_be_visible()
    address = await page.evaluate("location.hash")
    assert "from=" in address
    assert await accessibility_faults(page) == []
    other = await open_page(browser)
    await other.goto(visit.url + ops.client.post("/v1/tickets").json()["path"])
    await expect(other.get_by_role("link", name="Devices", exact=True)).to_be_visible()
    await other.goto(visit.url + "/" + address)
    await expect(other.get_by_role("img", name="speed over time")).to_be_visible()
    await expect(other.get_by_label("from", exact=True)).to_have_value(local(first - 3_600_000))
    await other.close()
    await visit.open(f"#/devices/{device}?range=1h")
    await expect(page.get_by_text("It sent no number on it in this time.")).to_be_visible()
    past = await page.evaluate(PAST, [feed.name, device, NOW_MS])
    assert past["speed"] == [3, 1, 5], "of 701 devices"
    assert not past["never"]
    assert "unknown stream, query or summary 'never_there'" in past["refused"]
    for wrong in ("range=constructor", "from=1&to=99999999999999999"):
        await visit.open(f"#/devices/{device}?{wrong}")
        await expect(page.get_by_text("Note and groups")).to_be_visible()
        await expect(page.get_by_role("img", name="speed over time").first).to_be_visible()
        assert await page.evaluate("location.hash") == f"#/devices/{device}?{wrong}"
    await visit.open(f"#/summaries/{feed.name}.speed?beside=1e300")
    await expect(page.get_by_label("the time to")).to_have_value("")
    assert [one for one in visit.complaints if "Invalid time" in one] == []


PAST = """async ([stream, device, at]) => {
  const { asked } = await import("/page/ops/past.js");
  const others = Array.from({ length: 700 }, (_, i) => `another-device-of-${i}`.padEnd(32, "x"));
  const one = { source: stream, fields: ["speed", "never_sent"], devices: [...others, device] };
  const span = { from: at - 3600000, to: at + 3600000, step: 7200000 };
  const found = await asked(one, span);
  const refused = asked({ ...one, source: "never_there" }, span);
  return {
    speed: found.get("speed")?.map(([, ...figures]) => figures).at(-1),
    never: found.has("never_sent"),
    refused: await refused.then(() => "", ({ message }) => message),
  };
}"""


def local(ms: int) -> str:
    """What stands in a field of date and time, in a browser of the tests (tests/chromium.py)."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.long
async def test_the_question_about_the_past_and_its_steps_are_decided_without_the_document(
    visit: Visit,
) -> None:
    script = """async () => {
      const { isOfField, pastSql, portions, stepsOf } = await import("/page/ops/past.js");
      const { spanOf } = await import("/page/ops/range.js");
      const span = (text) => spanOf(new URLSearchParams(text), 100 * 86400000);
      const days = 86400000;
      const asked = { source: 's"x', fields: ["a"], devices: ["it's"], isQuery: false };
      return {
        live: span("").isLive, wrong: span("from=9&to=3").isLive, unknown: span("range=9y").isLive,
        day: span("range=24h").step, week: span("range=7d").step, hour: span("range=1h").step,
        own: span(`from=${days}&to=${3 * days}`),
        sql: pastSql(asked, { from: 1, to: 2, step: 5000 }),
        all: pastSql({ ...asked, devices: null, isQuery: true }, { from: 1, to: 2, step: 5000 }),
        none: pastSql({ ...asked, devices: [] }, span("")).includes("IN ('')"),
        steps: [...stepsOf(["a", "b"], [
          [7, 1, 0, 2, 3, null, null, null, 0], [9, 1, 1, 1, 1, null, null, null, 0],
          [7, 5, -4, 5, 1, null, null, null, 0],
        ])],
        portions: portions(["a".repeat(5000), "b".repeat(4000), "c"], String)
          .map((one) => one.length),
        empty: portions([], String),
        late: span("from=1&to=99999999999999999").isLive, odd: span("range=constructor").isLive,
        ofField: [
          [422, 'line 1:79: Referenced column "a" not found in FROM clause!\\nCandidate: "b"'],
          [422, "No function matches the given name and argument types 'avg(VARCHAR)'"],
          [422, 'line 1:79: Referenced column "device" not found in FROM clause!'],
          [422, "not done within 30 s: ask for less, or for more seconds"],
          [503, 'Referenced column "a" not found'],
        ].map(([status, message]) => isOfField({ status, message }, ["a"])),
      };
    }"""
    found = await visit.page.evaluate(script)
    assert (found["live"], found["wrong"], found["unknown"]) == (True, True, True)
    assert (found["hour"], found["day"], found["week"]) == (20_000, 300_000, 3_600_000)
    day = 86_400_000
    assert found["own"] == {"isLive": False, "from": day, "to": 3 * day, "step": 600_000}
    assert 'FROM "s""x" WHERE t >= make_timestamp_ms(1)' in found["sql"]
    assert "device IN ('it''s')" in found["sql"]
    assert "window_end < make_timestamp_ms(2) GROUP BY" in found["all"]
    assert found["none"]
    assert found["steps"] == [["a", [[7, 2, -4, 5], [9, 1, 1, 1]]], ["b", []]]
    assert (found["portions"], found["empty"]) == ([1, 2], [[]])
    assert (found["late"], found["odd"]) == (True, True)
    assert found["ofField"] == [True, True, False, False, False]


@pytest.mark.long
async def test_gaps_are_looked_for_one_after_the_other_as_long_as_somebody_sees_them(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, page, streams = unique("dev"), visit.page, [unique("s") for _ in range(3)]
    for stream in streams:
        declare(writer, stream)
        eventually(lambda name=stream: ops.client.get(f"/v1/streams/{name}"))
    seen = DeviceSeen(
        device=device,
        last_seen=now_ms(),
        skew_ms=0,
        records=3,
        streams=dict.fromkeys(streams, 1),
    )
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    eventually(
        lambda: ops.client.get(f"/v1/devices/{device}"), lambda body: len(body["streams"]) == 3
    )
    under_way: set[Route] = set()
    at_once: list[int] = []
    refusal = {"detail": "15 look-ups of yours are under way"}

    async def counted(route: Route) -> None:
        under_way.add(route)
        at_once.append(len(under_way))
        is_third = len(at_once) % 3 == 0
        response = await route.fetch()
        under_way.discard(route)
        if is_third:
            await route.fulfill(status=429, body=json.dumps(refusal))
        else:
            await route.fulfill(response=response)

    await page.route("**/gaps?*", counted)
    await visit.open(f"#/devices/{device}")
    said = "What is missing is not known now: 15 look-ups of yours are under way"
    await expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
    assert set(at_once) == {1}
    await page.unroute_all(behavior="wait")
    may_come = asyncio.Event()
    asked: list[str] = []

    async def held(route: Route) -> None:
        asked.append(route.request.url)
        await may_come.wait()
        await route.continue_()

    await page.route("**/gaps?limit=*", held)
    async with page.expect_request("**/gaps?limit=*"):
        await visit.open("#/gaps?look=1")
    await visit.open("#/none")
    await expect(page.get_by_text("There is no page at this address")).to_be_visible()
    async with page.expect_response("**/gaps?limit=*"):
        may_come.set()
    await page.evaluate("fetch('/v1/session').then((answer) => answer.text())")
    assert len(asked) == 1, "nobody sees the other streams' gaps any more"
    await page.unroute_all(behavior="wait")


@pytest.mark.long
async def test_an_answer_that_is_cut_off_is_an_error_that_says_so(visit: Visit) -> None:
    async def cut(route: Route) -> None:
        await route.fulfill(status=200, body='{"rows": [')

    await visit.page.route("**/v1/cut", cut)
    script = """async () => {
      const { api, sendBytes } = await import("/page/ops/api.js");
      const said = (asked) => asked.then(JSON.stringify, (error) => [error.status, error.message]);
      return [await said(api("GET", "/v1/cut")), await said(sendBytes("POST", "/v1/cut", "x"))];
    }"""
    assert await visit.page.evaluate(script) == [[0, "the answer was cut off"]] * 2
    await visit.page.unroute_all(behavior="wait")


async def test_all_devices_that_are_chosen_are_asked_by_one_press(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    part, page = unique("fleet"), visit.page
    agents = [f"{part}-{number}" for number in (1, 2)]
    for device in agents:
        says(writer, device)
    seen = DeviceSeen(device=f"{part}-plain", last_seen=now_ms(), skew_ms=0, records=1)
    writer.put(topics.DEVICES, f"{part}-plain|seen", seen.to_json())
    eventually(
        lambda: ops.client.get(f"/v1/devices?q={part}"), lambda body: len(body["items"]) == 3
    )
    await visit.open(f"#/devices?q={part}")
    await page.get_by_text("Ask all of these", exact=True).click()
    questions: list[str] = []

    async def yes(dialog: Dialog) -> None:
        questions.append(dialog.message)
        await dialog.accept()

    page.on("dialog", yes)
    await page.get_by_label("Command, of each device's own list").fill("restart_pump")
    await page.get_by_role("button", name="Ask all of these devices").click()
    await expect(page.get_by_text("2 devices asked")).to_be_visible()
    assert questions == ["Ask 2 devices for restart_pump?"]
    for device in agents:
        items = ops.client.get(f"/v1/devices/{device}/commands").json()["items"]
        assert [one["name"] for one in items] == ["restart_pump"]
    assert await accessibility_faults(page) == []


@pytest.mark.parametrize(
    ("address", "home"),
    [("#/gaps", "System"), ("#/erasures", "Audit"), ("#/enrolment", "Devices")],
)
async def test_a_page_that_is_not_on_the_rail_is_within_one_that_is(
    visit: Visit, address: str, home: str
) -> None:
    await visit.open(address)
    link = visit.page.get_by_role("navigation", name="Pages").get_by_role("link", name=home)
    await expect(link).to_have_attribute("aria-current", "true")
    crumb = visit.page.locator("main .crumbs").get_by_role("link", name=home)
    await expect(crumb).to_be_visible()


async def test_a_look_that_nobody_answers_ends_and_says_so(visit: Visit) -> None:
    """A machine slept and its connection was half open: the screens stood still as if all was
    well.
    """
    script = """async () => {
      const { get } = await import("/page/ops/api.js");
      const { timeout } = AbortSignal;
      AbortSignal.timeout = (ms) => timeout.call(AbortSignal, ms / 1_000);
      globalThis.fetch = (_, { signal } = {}) => new Promise((_, fail) =>
        signal?.addEventListener("abort", () => fail(signal.reason)));
      const said = get("/v1/overview").catch(({ status, message }) => [status, message]);
      return Promise.race([said, new Promise((go) => setTimeout(() => go("waits"), 2_000))]);
    }"""
    assert await visit.page.evaluate(script) == [0, "the operations API is away"]
