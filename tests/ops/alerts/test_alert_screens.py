"""The screens of alerts in a real browser: a story, by keyboard, both themes, wide and narrow."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from edgewake.protocol import topics
from edgewake.protocol.ops.preview import Preview
from tests.bridge.running import read
from tests.chromium import LOOKS, accessibility_faults, chromium, open_page
from tests.ops.alerts.conftest import Alerts
from tests.ops.alerts.receivers import Mail
from tests.services import wait_until

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


async def enter(browser: Browser, alerts: Alerts) -> Page:
    page = await open_page(browser, viewport={"width": 1440, "height": 900})
    await page.goto(alerts.ops.url + alerts.ops.client.post("/v1/tickets").json()["path"])
    await page.get_by_role("link", name="Alerts", exact=True).click()
    return page


async def test_a_rule_is_made_tried_told_acknowledged_and_removed(
    browser: Browser, alerts: Alerts, mailbox: Mail
):
    stream = alerts.stream()
    alerts.ask("PATCH", f"/v1/streams/{stream}", {"fields": {"temperature": {"unit": "Cel"}}})
    alerts.send(stream, "oven", 20.0, ago_s=900)
    alerts.send(stream, "oven", 33.0, ago_s=600)
    alerts.send(stream, "oven", 20.0, ago_s=300)
    page = await enter(browser, alerts)
    await page.get_by_role("link", name="Destinations").click()
    await page.get_by_label("Name").fill("oncall_mail")
    await page.get_by_label("Address").fill("https://hooks.example.org/a")
    await page.get_by_label("Headers").fill("Authorization: Bearer t0k")
    await page.get_by_label("Address").fill(mailbox.address)
    await expect(page.get_by_label("Headers")).to_have_count(0)
    await page.get_by_role("button", name="Keep").click()
    await page.get_by_role("button", name="Test oncall_mail").click()
    await expect(page.get_by_role("row").filter(has_text="oncall_mail")).to_contain_text("sent")
    assert len(mailbox.letters) == 1
    await page.get_by_role("link", name="Alerts", exact=True).first.click()
    await page.get_by_role("link", name="New rule").click()
    await page.get_by_label("Stream", exact=True).select_option(stream)
    await page.get_by_role("button", name="temperature").click()
    await page.get_by_label("Condition").fill("temperature >")
    trial = page.get_by_role("region", name="Trial")
    await expect(trial).to_contain_text("when or until")
    await page.get_by_label("Condition").fill("temperature > 30")
    await expect(trial).to_contain_text("1 time in the last hour, 1 alert (3 looks)")
    await page.get_by_label("Name of the rule").fill("too_hot_here")
    await page.get_by_role("checkbox", name="oncall_mail").check()
    await page.get_by_role("checkbox", name="Quiet hours").check()
    quiet = page.get_by_role("group", name="Quiet hours")
    await quiet.get_by_label("Called").fill("siesta")
    await quiet.get_by_label("In the zone").fill("Europe/Madrid")
    await quiet.get_by_label("Tell all the same").select_option("warning")
    await expect(quiet).to_contain_text("This rule is warning: it waits for nothing.")
    await page.get_by_role("button", name="Make the rule").click()
    await expect(page.get_by_text("It has raised nothing")).to_be_visible()
    await expect(page.locator("dl")).to_contain_text("siesta, 22:00–07:00 Europe/Madrid")
    alerts.until_judged()
    alerts.send(stream, "oven", 34.5)
    await page.get_by_role("link", name="Alerts", exact=True).first.click()
    line = page.get_by_role("listitem").filter(has_text="too_hot_here")
    await expect(line).to_contain_text(re.compile(r"oven temperature 34\.5\s°C"))
    await expect(line).to_contain_text("told oncall_mail")
    take = line.get_by_role("button", name="Acknowledge oven")
    await take.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Acknowledged")).to_be_visible()
    await page.get_by_role("link", name="too_hot_here").first.click()
    await expect(page.locator(".history")).to_contain_text("acknowledged by operator")
    await expect(page.get_by_role("region", name="Told")).to_contain_text("sent")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("link", name="too_hot_here")).to_have_count(0)
    await page.close()


@pytest.mark.long
async def test_a_bound_is_chosen_and_stands_as_the_condition(browser: Browser, alerts: Alerts):
    stream = alerts.stream()
    alerts.ask("PATCH", f"/v1/streams/{stream}", {"fields": {"temperature": {"unit": "Cel"}}})
    for ago_s, heat in ((900, 20.0), (600, 33.0), (300, 20.0)):
        alerts.send(stream, "oven", heat, ago_s=ago_s)
    page = await enter(browser, alerts)
    await page.get_by_role("link", name="New rule").click()
    await page.get_by_label("Stream", exact=True).select_option(stream)
    await page.get_by_label("It is: field").select_option("temperature")
    await page.get_by_label("It is: bound").fill("30")
    await page.get_by_label("And over again below").fill("28")
    await expect(page.get_by_label("Condition")).to_have_value("temperature > 30")
    await expect(page.get_by_label("Over when")).to_have_value("temperature < 28")
    await expect(page.get_by_label("Show the value of")).to_have_value("temperature")
    trial = page.get_by_role("region", name="Trial")
    await expect(trial).to_contain_text("1 time in the last hour, 1 alert (3 looks)")
    await page.get_by_label("It is: is").select_option("below")
    await expect(page.get_by_label("Condition")).to_have_value("temperature < 30")
    assert await accessibility_faults(page) == []
    await page.close()


@pytest.mark.long
async def test_a_rule_of_one_device_looks_at_it_alone(browser: Browser, alerts: Alerts):
    stream = alerts.stream()
    for ago_s, heat in ((900, 20.0), (600, 33.0), (300, 20.0)):
        alerts.send(stream, "oven", heat, ago_s=ago_s)
        alerts.send(stream, "stove", heat + 20, ago_s=ago_s)
    page = await enter(browser, alerts)
    address = f"#/alerts?new=1&stream={stream}&field=temperature&device=oven"
    await page.evaluate("(to) => (location.hash = to)", address)
    await expect(page.get_by_label("Only of one device")).to_have_value("oven")
    await expect(page.get_by_label("It is: field")).to_have_value("temperature")
    await page.get_by_label("It is: bound").fill("30")
    condition = page.get_by_label("Condition")
    await expect(condition).to_have_value("device = 'oven' AND temperature > 30")
    trial = page.get_by_role("region", name="Trial")
    await expect(trial).to_contain_text("1 time in the last hour, 1 alert")
    await page.get_by_label("Only of one device").fill("")
    await expect(condition).to_have_value("temperature > 30")
    await expect(trial).to_contain_text("2 alerts")
    silence = "#/alerts?new=1&kind=silence&device=oven"
    await page.evaluate("(to) => (location.hash = to)", silence)
    await expect(page.get_by_label("Which devices")).to_have_value("device = 'oven'")
    assert await accessibility_faults(page) == []
    await page.close()


async def test_what_needs_a_query_is_chosen_previewed_and_made_with_it(
    browser: Browser, alerts: Alerts
):
    """The analysis is played by the test: it answers on the topic of previews."""
    stream = alerts.stream()
    page = await enter(browser, alerts)
    await page.get_by_role("link", name="New rule").click()
    await page.get_by_label("Stream", exact=True).select_option(stream)
    trial = page.get_by_role("region", name="Trial")
    await page.get_by_label("One after the other").check()
    for step, bound in (("First", "60"), ("Then 1", "20")):
        await page.get_by_label(f"{step}: field").select_option("temperature")
        await page.get_by_label(f"{step}: bound").fill(bound)
    await expect(trial).to_contain_text("This can be looked for.")
    assert await accessibility_faults(page) == []
    await page.get_by_label("It changes").check()
    await page.get_by_label("Which field").select_option("temperature")
    await expect(trial).to_contain_text("This can be looked for.")
    await page.get_by_label("It is unusual").check()
    await page.get_by_label("Name of the rule").fill("odd_here")
    await expect(trial).to_contain_text("This can be looked for.")
    await trial.get_by_role("button", name="Look at the last hour").click()
    asked: list[Preview] = []

    def heard() -> bool:
        found = [one.value() for one in read(alerts.config, topics.PREVIEWS) if one.value()]
        asked[:] = [one for one in map(Preview.model_validate_json, found) if stream in one.text]
        return bool(asked)

    wait_until(heard, "a preview is asked for")
    rows = [
        {"window_end": 1000 + at, "device": "oven", "temperature": 20.0 + at, "unlikeness": at}
        for at in (-6, 4, 7)
    ]
    answer = asked[0].model_copy(update={"rows": tuple(map(json.dumps, rows))})
    alerts.put(topics.PREVIEWS, answer.id, answer.model_dump_json().encode())
    await expect(trial).to_contain_text("2 times in the last hour, 1 device.")
    await expect(trial.get_by_role("row")).to_have_count(3)
    await page.get_by_role("button", name="Make the rule").click()
    await expect(page.get_by_text("It has raised nothing")).to_be_visible()
    rule = alerts.ask("GET", "/v1/alerts/odd_here")["rule"]
    assert (rule["query"], rule["stream"], rule["value"]) == (
        "odd_here_unusual",
        None,
        "temperature",
    )
    assert rule["when"] == "unlikeness > 5 OR unlikeness < -5"
    text = alerts.ask("GET", "/v1/queries/odd_here_unusual")["text"]
    assert 'robust_zscore("temperature", 60)' in text
    await page.get_by_role("link", name="Edit").click()
    await expect(page.get_by_label("Query", exact=True)).to_have_value("odd_here_unusual")
    alerts.ask("DELETE", "/v1/alerts/odd_here", status=204)
    alerts.ask("DELETE", "/v1/queries/odd_here_unusual", status=204)
    await page.close()


@pytest.mark.long
async def test_who_edits_what_another_changed_is_told_and_can_load_it(
    browser: Browser, alerts: Alerts
):
    alerts.ask("PUT", "/v1/alerts/parts", {"problems": ["part"], "text": "first"})
    page = await enter(browser, alerts)
    await page.evaluate("location.hash = '#/alerts/parts?edit=1'")
    await page.get_by_label("In words").fill("mine")
    alerts.ask("PUT", "/v1/alerts/parts", {"problems": ["part"], "text": "theirs"})
    await page.get_by_role("button", name="Replace").click()
    await expect(page.locator(".fault")).to_contain_text("is version 2 now, changed by operator")
    await page.get_by_role("button", name="Load that version").click()
    await expect(page.get_by_label("In words")).to_have_value("theirs")
    await page.get_by_label("In words").fill("ours")
    await page.get_by_role("button", name="Replace").click()
    await expect(page.locator(".lead")).to_have_text("ours")
    await page.close()


@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_every_screen_is_accessible_and_no_wider_than_its_window(
    browser: Browser, alerts: Alerts, width: int, theme: str
):
    stream = alerts.stream()
    rule = alerts.rule("wide", stream=stream, when="temperature > 30", by=["device"])
    alerts.until_judged()
    alerts.send(stream, "<img src=x onerror=alert(1)>", 34.5)
    page = await enter(browser, alerts)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
    await expect(page.get_by_role("listitem").filter(has_text="<img")).to_be_visible()
    await page.set_viewport_size({"width": width, "height": 900})
    for address in (
        "#/alerts",
        f"#/alerts/{rule}",
        f"#/alerts/{rule}?edit=1",
        "#/alerts?new=1",
        "#/alerts?show=destinations",
        "#/alerts/none",
    ):
        await page.evaluate("(to) => (location.hash = to)", address)
        await expect(page.locator("main .card").first).to_be_visible()
        await expect(page.get_by_text("loading…")).to_have_count(0)
        shown = await page.evaluate("document.documentElement.scrollWidth")
        assert shown <= width, address
        faults = await accessibility_faults(page)
        assert faults == [], f"{address}: {json.dumps(faults)}"
    assert complaints == []
    await page.close()
