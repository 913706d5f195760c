"""Boards: kept with versions, put together in a real browser, and what their cards show."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.device import DeviceSeen
from tests.chromium import (
    LOOKS,
    accessibility_faults,
    chromium,
    open_page,
    shared_context,
)
from tests.commands.test_status import run
from tests.ops.alerts.conftest import Alerts
from tests.ops.service import KEY, running
from tests.services import Kafka, wait_until

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def system(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alerts]:
    directory = tmp_path_factory.mktemp("boards")
    with running(kafka.bootstrap, directory) as ops:
        yield Alerts(ops, KafkaConfig(bootstrap=kafka.bootstrap))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    async with shared_context(browser, viewport={"width": 1440, "height": 900}) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, system: Alerts) -> AsyncIterator[Page]:
    opened = await context.new_page()
    await opened.goto(system.ops.url + system.ops.client.post("/v1/tickets").json()["path"])
    await expect(opened.get_by_role("link", name="Boards", exact=True)).to_be_visible()
    yield opened
    await opened.close()


def value_card(stream: str, **more: Any) -> dict[str, Any]:
    return {"kind": "value", "source": stream, "field": "temperature", "w": 3, "h": 2, **more}


def card_of(kind: str, w: int, h: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "w": w, "h": h, **more}


def send(system: Alerts, stream: str, heats: Mapping[str, float]) -> None:
    """A reading of each device, with a number, a text and a switch."""
    kinds = {"heat": FieldType.NUMBER, "mode": FieldType.STRING, "door": FieldType.BOOLEAN}
    fields = {name: FieldInfo(type=kind) for name, kind in kinds.items()}
    row = Stream(name=stream, fields=fields)
    system.put(topics.STREAMS, stream, row.model_dump_json().encode())
    topic_admin.ensure_topics(system.config, [topics.stream_topic(stream)])
    for device, heat in heats.items():
        values = {"heat": [heat], "mode": ["bake"], "door": [True]}
        now = time.time_ns() // 1_000_000
        frame = Frame(None, None, None, [now], values)
        value = records.encode(
            device=device,
            stream=stream,
            mode=Mode.ACK,
            sent_at=None,
            received_at=now,
            frame_bytes=encode(frame),
        )
        system.put(topics.stream_topic(stream), device, value)
    wait_until(lambda: system.ops.client.get(f"/v1/streams/{stream}").is_success, "it is known")


async def test_of_two_who_change_a_board_the_second_is_told_by_whom(
    system: Alerts, unique: Callable[[str], str]
):
    name = unique("b")
    first = system.ask("PUT", f"/v1/boards/{name}?version=0", {"title": "one"})
    assert (first["version"], first["changed_by"]) == (1, "operator")
    system.ask("PUT", f"/v1/boards/{name}?version=1", {"title": "two"})
    conflict = system.ask("PUT", f"/v1/boards/{name}?version=1", {"title": "three"}, 409)
    assert "is version 2 now, changed by operator" in conflict["detail"]
    assert system.ask("PUT", f"/v1/boards/{name}?version=1", {"title": "two"})["version"] == 2
    system.ask("DELETE", f"/v1/boards/{name}", status=204)
    system.ask("GET", f"/v1/boards/{name}", status=404)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"kind": "value", "source": "s"}, "shows one field"),
        ({"kind": "map"}, "a stream or a query"),
        ({"kind": "text", "x": 10, "w": 4}, "12 columns"),
        ({"kind": "gauge", "source": "s", "field": "f", "low": 3, "high": 3}, "low < high"),
        ({"kind": "bars", "source": "s", "field": "f", "low": 3}, "on a gauge alone"),
        (
            {"kind": "table", "source": "s", "device": "d", "group": "g"},
            "group: expected instead of a device",
        ),
        ({"kind": "bars", "source": "s", "field": "f", "fields": ["g"]}, "on a chart alone"),
        ({"kind": "chart", "source": "s", "field": "f", "fields": ["f"]}, "each once"),
        (
            {"kind": "chart", "source": "s", "field": "f", "device": "d", "devices": ["e"]},
            "instead of a device",
        ),
        (
            {
                "kind": "chart",
                "source": "s",
                "field": "a",
                "fields": ["b", "c"],
                "devices": ["d", "e", "f"],
            },
            "at most 6 lines",
        ),
        ({"kind": "clock"}, "expected value, gauge, state, chart, bars, top, table, map or text"),
    ],
)
async def test_a_card_that_shows_nothing_is_refused(
    system: Alerts, card: dict[str, Any], said: str
):
    answer = system.ask("PUT", "/v1/boards/wrong", {"cards": [card]}, 422)
    assert said in json.dumps(answer)


async def test_what_came_lately_is_given_once_from_place_to_place(system: Alerts):
    stream = system.stream()
    system.send(stream, "oven", 1.0, 2.0)
    first = system.ask("GET", f"/v1/recent?source={stream}&source=never_there")
    assert [event["temperature"] for event in first["events"]] == [1.0, 2.0]
    system.send(stream, "oven", 3.0)
    after = f"/v1/recent?source={stream}&after={first['place']}"
    second = system.ask("GET", after)
    assert [event["temperature"] for event in second["events"]] == [3.0]
    again = system.ask("GET", f"/v1/recent?source={stream}&after={second['place']}")
    assert again["events"] == []
    query = f"/v1/recent?source={stream}&where=temperature%20%3E%201&select=1%20AS%20one"
    assert system.ask("GET", query)["events"] == [{"one": 1}, {"one": 1}]
    system.ask("PUT", "/v1/sets/ovens", {"members": ["oven"]})
    members = f"/v1/recent?source={stream}&where=device%20NOT%20IN%20SET('ovens')"
    assert system.ask("GET", members)["events"] == []
    for asked, said in (
        ("where=temperature%20%3E", "where: "),
        ("select=sin(temperature)", "select: "),
        ("where=device%20IN%20SET('cars')", "no set is named 'cars'"),
    ):
        refused = system.ask("GET", f"/v1/recent?source={stream}&{asked}", status=422)
        assert said in refused["detail"]
    wrong = system.ask("GET", f"/v1/recent?source={stream}&after=x", status=422)
    assert "the place of an earlier answer" in wrong["detail"]


async def test_a_board_in_a_file_is_applied_and_shown_as_it_was(
    system: Alerts, tmp_path: Path, unique: Callable[[str], str]
):
    name, stream = unique("b"), system.stream()
    file = tmp_path / "board.json"
    file.write_text(json.dumps({"name": name, "title": "T", "cards": [value_card(stream)]}))
    applied = run(system.ops, "board", "apply", str(file))
    assert applied.returncode == 0, applied.stderr
    shown = run(system.ops, "board", "show", name)
    file.write_text(shown.stdout)
    assert "version 1" in run(system.ops, "board", "apply", str(file)).stderr
    file.write_text("[]")
    assert "expected an object" in run(system.ops, "board", "apply", str(file)).stderr


async def test_a_board_is_made_moved_by_keys_and_mouse_undone_saved_and_live(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name, stream = unique("b"), system.stream()
    system.send(stream, "oven", 21.5)
    await page.get_by_role("link", name="Boards", exact=True).click()
    await page.get_by_label("New board").fill(name)
    await page.get_by_role("button", name="Make").click()
    await page.get_by_label("Stream or query").select_option(stream)
    await page.get_by_label("Field", exact=True).select_option("temperature")
    await page.get_by_role("button", name="Add card").click()
    card = page.locator(".editable").first
    await expect(card.locator(".figure")).to_have_text("21.5")
    await card.focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Shift+ArrowRight")
    await expect(card).to_have_css("grid-column", "2 / span 4")
    await page.keyboard.press("Control+z")
    await expect(card).to_have_css("grid-column", "2 / span 3")
    handle = await card.locator(".handle").bounding_box()
    assert handle is not None
    await page.mouse.move(handle["x"] + 8, handle["y"] + 8)
    await page.mouse.down()
    await page.mouse.move(handle["x"] + 8 + 3 * 114, handle["y"] + 8, steps=5)
    await page.mouse.up()
    await expect(card).to_have_css("grid-column", "5 / span 3")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("button", name="Copy link", exact=True)).to_be_visible()
    system.send(stream, "oven", 23.5)
    await expect(page.locator(".grid .figure")).to_have_text("23.5")
    kept = system.ask("GET", f"/v1/boards/{name}")["cards"][0]
    assert (kept["x"], kept["w"]) == (4, 3)


async def test_bars_a_top_list_states_and_a_gauge_show_a_group_of_devices_live(
    page: Page, browser: Browser, system: Alerts, unique: Callable[[str], str]
):
    name, group, stream = unique("b"), unique("g"), unique("s")
    ovens = [unique("oven") for _ in range(3)]
    for oven in ovens[:2]:
        system.ask("PUT", f"/v1/devices/{oven}/note", {"groups": [group]})
    wait_until(
        lambda: system.ask("GET", f"/v1/groups/{group}")["devices"] == sorted(ovens[:2]),
        "both are in the group",
    )
    send(system, stream, dict(zip(ovens, (20.0, 30.0, 90.0), strict=True)))
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}?edit=1")
    form = page.get_by_role("form", name="Add a card")
    for kind, field in (("Bars", "heat"), ("Top list", "mode"), ("State", "door")):
        await form.get_by_label("Kind of card").select_option(kind)
        await form.get_by_label("Stream or query").select_option(stream)
        await form.get_by_label("Field", exact=True).select_option(field)
        await form.get_by_label("Group of devices").select_option(group)
        await form.get_by_role("button", name="Add card").click()
    await form.get_by_label("Kind of card").select_option("Gauge")
    await form.get_by_label("Stream or query").select_option(stream)
    await form.get_by_label("Field", exact=True).select_option("heat")
    await form.get_by_label("Group of devices").select_option("")
    await form.get_by_label("device", exact=True).fill(ovens[2])
    await form.get_by_label("Begins at").fill("0")
    await form.get_by_label("Ends at").fill("100")
    await form.get_by_role("button", name="Add card").click()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("button", name="Copy link", exact=True)).to_be_visible()
    bars = page.get_by_role("group", name=f"heat, {group}").get_by_role("listitem")
    await expect(bars).to_have_text([f"{ovens[1]}30", f"{ovens[0]}20"])
    top = page.get_by_role("group", name=f"mode, {group}").get_by_role("listitem")
    await expect(top).to_have_text(["bake2"])
    states = page.get_by_role("group", name=f"door, {group}").get_by_role("listitem")
    await expect(states.first).to_contain_text("on")
    gauge = page.get_by_role("meter", name="heat")
    await expect(gauge).to_have_attribute("aria-valuenow", "90")
    await expect(gauge).to_have_attribute("aria-valuemax", "100")
    send(system, stream, {ovens[0]: 45.0})
    await expect(bars).to_have_text([f"{ovens[0]}45", f"{ovens[1]}30"])
    kept = system.ask("GET", f"/v1/boards/{name}")["cards"]
    assert [(one["kind"], one["group"], one["high"]) for one in kept] == [
        ("bars", group, None), ("top", group, None), ("state", group, None), ("gauge", None, 100),
    ]  # fmt: skip
    link = await page.evaluate("location.href")
    colleague = await open_page(browser)
    await colleague.goto(system.ops.url + system.ops.client.post("/v1/tickets").json()["path"])
    await expect(colleague.get_by_role("link", name="Boards", exact=True)).to_be_visible()
    await colleague.goto(link)
    await expect(colleague.get_by_role("meter", name="heat")).to_be_visible()
    await colleague.get_by_role("button", name="Full screen").click()
    await colleague.wait_for_function("document.fullscreenElement !== null")
    await expect(colleague.get_by_role("meter", name="heat")).to_be_visible()
    await colleague.close()


async def test_several_devices_and_fields_stand_in_one_chart_each_in_its_colour(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name, stream = unique("b"), unique("s")
    ovens = [unique("oven") for _ in range(3)]
    send(system, stream, dict(zip(ovens, (20.0, 30.0, 90.0), strict=True)))
    fields = {"heat": FieldInfo(type=FieldType.NUMBER, unit="°C", revision=1, unit_revision=1)}
    fields["load"] = FieldInfo(type=FieldType.NUMBER, unit="%", revision=1, unit_revision=1)
    row = Stream(name=stream, revision=1, fields=fields).model_dump_json().encode()
    system.put(topics.STREAMS, stream, row)
    wait_until(
        lambda: "load" in system.ask("GET", f"/v1/streams/{stream}")["fields"], "it has both"
    )
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}?edit=1")
    form = page.get_by_role("form", name="Add a card")
    for devices in (ovens[:2], ovens[1:]):
        await form.get_by_label("Kind of card").select_option("Chart")
        await form.get_by_label("Stream or query").select_option(stream)
        await form.get_by_label("Field", exact=True).select_option("heat")
        await form.get_by_label("device", exact=True).fill(", ".join(devices))
        await form.get_by_role("button", name="Add card").click()
    await form.get_by_label("Kind of card").select_option("Chart")
    await form.get_by_label("Stream or query").select_option(stream)
    await form.get_by_label("Field", exact=True).select_option("heat")
    await form.get_by_label("device", exact=True).fill("")
    await form.get_by_role("group", name="Further fields").get_by_label("load").press("Space")
    await form.get_by_role("button", name="Add card").click()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("button", name="Copy link", exact=True)).to_be_visible()
    legends = page.get_by_role("list", name="Lines of heat")
    await expect(legends).to_have_count(3)
    lines = legends.nth(0).get_by_role("listitem")
    await expect(lines.nth(0)).to_have_text(re.compile(rf"{ovens[0]}\s*20\u2009°C"))
    await expect(lines.nth(1)).to_have_text(re.compile(rf"{ovens[1]}\s*30\u2009°C"))
    colour = "(one) => getComputedStyle(one).borderTopColor"
    colours = [
        await legends.nth(card).locator("i").nth(line).evaluate(colour)
        for card, line in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    assert colours[1] == colours[2], "the same device has the same colour on all charts"
    assert len(set(colours)) == 3
    both = legends.nth(2).get_by_role("listitem")
    await expect(both).to_have_text([re.compile("heat"), re.compile(r"load\s*–\u2009%")])
    send(system, stream, {ovens[0]: 45.0})
    await expect(lines.nth(0)).to_contain_text("45")
    assert await accessibility_faults(page) == []
    kept = system.ask("GET", f"/v1/boards/{name}")["cards"]
    assert [(one["fields"], one["devices"], one["device"]) for one in kept] == [
        ([], ovens[:2], None), ([], ovens[1:], None), (["load"], [], None),
    ]  # fmt: skip
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}?range=1h")
    await expect(page.get_by_role("img", name=re.compile("^heat"))).to_have_count(3)


@pytest.mark.long
async def test_what_a_card_does_not_show_at_once_is_said(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name, stream = unique("b"), unique("s")
    send(system, stream, {unique("a_long_name_of_an_oven"): 21.5})
    text = card_of("text", 3, 1, text="\n".join(f"line {n}" for n in range(20)), title="Rules")
    table = card_of("table", 2, 3, y=1, source=stream, title="Ovens")
    short = card_of("text", 3, 2, x=4, text="short", title="Short")
    system.ask("PUT", f"/v1/boards/{name}", {"cards": [text, table, short]})
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}")
    rules = page.get_by_role("region", name="Rules")
    await expect(rules).to_have_attribute("data-more", "below")
    said = "(one) => getComputedStyle(one, '::after').content"
    assert "more" in await rules.evaluate(said)
    shadow = "(one) => getComputedStyle(one).boxShadow"
    ovens = page.get_by_role("region", name="Ovens")
    await expect(ovens).to_have_attribute("data-more", re.compile("right"))
    assert "inset" in await ovens.evaluate(shadow)
    await rules.evaluate("(one) => one.scrollTo(0, one.scrollHeight)")
    await expect(rules).to_have_attribute("data-more", "above")
    assert "more" not in await rules.evaluate(said)
    of_short = page.get_by_role("region", name="Short")
    assert "inset" not in await of_short.evaluate(shadow)
    assert await accessibility_faults(page) == []


async def test_the_form_of_a_card_offers_what_suits_the_field_and_the_devices_of_the_stream(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name, stream, oven, other = unique("b"), unique("s"), unique("oven"), unique("other")
    send(system, stream, {oven: 20.0})
    for device, streams in ((oven, {stream: 1}), (other, {"elsewhere": 1})):
        now = time.time_ns() // 1_000_000
        seen = DeviceSeen(device=device, last_seen=now, skew_ms=0, records=1, streams=streams)
        system.put(topics.DEVICES, f"{device}|seen", seen.to_json())
        found = f"/v1/devices/{device}"
        wait_until(lambda found=found: system.ops.client.get(found).is_success, "it is known")
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}?edit=1")
    form = page.get_by_role("form", name="Add a card")
    await form.get_by_label("Stream or query").select_option(stream)
    kind, field = form.get_by_label("Kind of card"), form.get_by_label("Field", exact=True)
    await field.select_option("mode")
    await expect(kind).to_have_value("state")
    await expect(kind.locator("optgroup").first).to_have_attribute("label", "suits mode")
    await field.select_option("heat")
    await expect(kind).to_have_value("value")
    await kind.select_option("Chart")
    await field.select_option("heat")
    await expect(kind).to_have_value("chart")
    offered = form.locator("#devices-of-card option")
    await expect(offered).to_have_count(1)
    await expect(offered).to_have_attribute("value", oven)
    await form.get_by_label("device", exact=True).fill(f"{other}, {oven[:-1]}")
    await expect(offered).to_have_attribute("value", f"{other}, {oven}")
    assert await accessibility_faults(page) == []


@pytest.mark.long
async def test_who_saves_over_another_is_told_and_loses_nothing(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name = unique("b")
    system.ask("PUT", f"/v1/boards/{name}", {"title": "first"})
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}?edit=1")
    await page.get_by_label("Title", exact=True).fill("mine")
    system.ask("PUT", f"/v1/boards/{name}", {"title": "theirs"})
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".fault")).to_contain_text("version 2 now, changed by operator")
    await page.get_by_role("button", name="Load theirs").click()
    await expect(page.get_by_label("Title", exact=True)).to_have_value("theirs")
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_label("Title", exact=True)).to_have_value("mine")
    await page.get_by_role("button", name="Save").click()
    wait_until(lambda: system.ask("GET", f"/v1/boards/{name}")["title"] == "mine", "it is kept")


async def test_who_may_only_look_sees_a_shared_board_and_cannot_change_it(
    browser: Browser, kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
):
    reader = "reader-key-0123456789"
    with running(kafka.bootstrap, tmp_path) as ops:
        name = unique("b")
        ops.client.put(f"/v1/boards/{name}", json={"title": "Shared"}).raise_for_status()
        (tmp_path / "ops.key").write_text(f"me operate {KEY}\nann read {reader}\n")
        asked = {"X-API-Key": reader}
        wait_until(
            lambda: ops.client.get("/v1/boards", headers=asked).status_code == 200, "she may look"
        )
        ticket = ops.client.post("/v1/tickets", headers=asked).json()["path"]
        page = await open_page(browser)
        await page.goto(ops.url + ticket)
        await expect(page.get_by_role("link", name="Boards", exact=True)).to_be_visible()
        await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}")
        await expect(page.locator(".lead")).to_have_text("Shared")
        await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}?edit=1")
        await page.get_by_label("Title", exact=True).fill("hers")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".fault")).to_contain_text("needs the role operate")
        await page.close()


@pytest.mark.long
async def test_a_board_of_more_streams_than_one_question_takes_shows_all_of_them(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name, streams = unique("b"), [system.stream() for _ in range(20)]
    for number, stream in enumerate(streams):
        system.send(stream, "oven", 10.0 + number)
    cards = [value_card(stream, x=3 * (i % 4), y=2 * (i // 4)) for i, stream in enumerate(streams)]
    system.ask("PUT", f"/v1/boards/{name}", {"cards": cards})
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}")
    figures = page.locator(".grid .figure")
    await expect(figures).to_have_text([str(10 + number) for number in range(20)])
    system.send(streams[-1], "oven", 99.0)
    await expect(figures.last).to_have_text("99")


@pytest.mark.long
async def test_a_chart_shows_its_quarter_of_an_hour_where_too_much_came_to_be_read(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name, stream = unique("b"), system.stream()
    unit = {"fields": {"temperature": {"unit": "Cel"}}}
    system.ask("PATCH", f"/v1/streams/{stream}", unit)
    first = round(time.time()) - 720
    for ago_s in range(720, 0, -6):  # more records than one question reads
        for i in range(20):
            system.send(stream, f"oven-{i}", 20.0 + i, ago_s=ago_s, is_last=i == 19)
    assert system.ask("GET", f"/v1/recent?source={stream}")["is_cut"]
    card = value_card(stream, kind="chart", w=6, h=3)
    system.ask("PUT", f"/v1/boards/{name}", {"cards": [card]})
    await page.evaluate("(to) => (location.hash = to)", f"#/boards/{name}")
    head = page.locator(".grid h2")
    await expect(head).to_contain_text("°C")
    steps = [datetime.fromtimestamp(first - first % 5 + more, UTC) for more in (-5, 0, 5)]
    began = "|".join(f"{step:%H:%M:%S}" for step in steps)
    await expect(head).to_contain_text(re.compile(f"since ({began})"))


async def test_a_query_goes_to_a_board_by_a_press_and_its_names_are_not_cut(
    page: Page, system: Alerts, unique: Callable[[str], str]
):
    name, stream = unique("b"), unique("s")
    send(system, stream, {f"vehicle-{i:02}": 20.0 for i in range(3)})
    await page.evaluate("(to) => (location.hash = to)", f"#/streams/{stream}")
    await page.get_by_role("link", name="put on a board").click()
    await expect(page.get_by_text(f"Where does {stream} go?")).to_be_visible()
    await page.get_by_label("New board").fill(name)
    await page.get_by_role("button", name="Make").click()
    form = page.get_by_role("form", name="Add a card")
    await expect(form.get_by_label("Stream or query")).to_have_value(stream)
    await form.get_by_label("Kind of card").select_option("State")
    await form.get_by_label("Field", exact=True).select_option("mode")
    await page.get_by_role("button", name="Add card").click()
    names = page.locator(".states span")
    await expect(names).to_have_count(3)
    cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert await names.evaluate_all(cut) == 0
    widths = await names.evaluate_all("(all) => all.map((one) => one.clientHeight)")
    assert max(widths) < 30, "each name stands on one line"


@pytest.mark.long
async def test_cards_never_lie_on_one_another(page: Page):
    cards = [{"x": 0, "y": 0, "w": 6, "h": 2}, {"x": 6, "y": 0, "w": 6, "h": 2}]
    cards.append({"x": 0, "y": 2, "w": 12, "h": 1})
    script = """async ([cards, first]) =>
      (await import('/page/board/model.js')).settled(cards, first).map(({ x, y }) => [x, y])"""
    moved = [cards[0] | {"x": 3}, *cards[1:]]
    assert await page.evaluate(script, [moved, 0]) == [[3, 0], [6, 2], [0, 4]]
    assert await page.evaluate(script, [cards, -1]) == [[0, 0], [6, 0], [0, 2]]
    assert await page.evaluate(script, [[cards[0] | {"x": 99, "w": 40}], 0]) == [[0, 0]]


@pytest.mark.long
async def test_cards_of_a_query_show_all_groups_of_its_newest_window_by_their_names(page: Page):
    script = """async () => {
      const { html, render } = await import("/page/vendor/htm/standalone.module.js");
      const { BoardCard } = await import("/page/board/card.js");
      const { Live } = await import("/page/live/model.js");
      const live = new Live();
      live.know([{ name: "q", kind: "query", keys: ["road"], units: { speed: "Cel" } }]);
      for (const end of [10_000, 20_000]) for (let road = 1; road <= 12; road += 1) {
        const row = { query: "q", window_start: end - 10_000, window_end: end, revision: 1 };
        live.take({ ...row, road, speed: end / 1000 + road, mode: "fast" }, end);
      }
      const shown = (kind, field) => {
        const ground = document.createElement("div");
        const card = { kind, source: "q", field };
        render(html`<${BoardCard} card=${card} live=${live} now=${30_000} />`, ground);
        return ground;
      };
      const texts = (ground, what) =>
        [...ground.querySelectorAll(what)].map((one) => one.textContent);
      return {
        bars: texts(shown("bars", "speed"), "li").map((one) => one.trim()),
        value: texts(shown("value", "speed"), ".figure, small, .beside"),
        gauge: shown("gauge", "speed").querySelector(".gauge").getAttribute("aria-valuenow"),
        top: texts(shown("top", "mode"), "li b"),
        states: texts(shown("state", "mode"), "li > span, li > b"),
        table: shown("table").querySelectorAll("tbody tr").length,
        tile: live.queries.get("q").rows.length,
      };
    }"""
    found = await page.evaluate(script)
    assert found["bars"] == [f"{road}{20 + road} °C" for road in range(12, 0, -1)]
    assert found["value"][-3:] == ["26.5", "°C", "mean of 12, 21 – 32"]
    assert found["gauge"] == "26.5"
    assert found["top"] == ["12"]
    states = list(zip(found["states"][::2], found["states"][1::2], strict=True))
    assert sorted(states) == sorted((str(road), "fast") for road in range(1, 13))
    assert (found["table"], found["tile"]) == (24, 8)


@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_every_screen_of_boards_is_accessible_and_no_wider_than_its_window(
    page: Page, system: Alerts, width: int, theme: str
):
    stream = system.stream()
    system.send(stream, "<img src=x onerror=alert(1)>", 21.5)
    kinds = ("chart", "table", "map", "bars", "state", "gauge")
    cards = [value_card(stream), {"kind": "text", "text": "<b>text</b>", "x": 3, "w": 3, "h": 2}]
    cards += [
        value_card(stream, kind=kind, x=4 * (i % 3), y=2 + 4 * (i // 3), w=4, h=4)
        for i, kind in enumerate(kinds)
    ]
    system.ask("PUT", "/v1/boards/wide", {"cards": cards})
    await page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
    await page.set_viewport_size({"width": width, "height": 900})
    for address in ("#/boards", "#/boards/wide", "#/boards/wide?edit=1", "#/boards/none"):
        await page.evaluate("(to) => (location.hash = to)", address)
        await expect(page.locator("main .card").first).to_be_visible()
        await expect(page.get_by_text("loading…")).to_have_count(0)
        shown = await page.evaluate("document.documentElement.scrollWidth")
        assert shown <= width, address
        faults = await accessibility_faults(page)
        assert faults == [], f"{address}: {json.dumps(faults)}"
    assert await page.locator("main img").count() == 0
