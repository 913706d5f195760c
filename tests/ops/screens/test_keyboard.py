"""The forms by keyboard alone: Tab reaches each control, the focus is seen, a key acts."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import pytest
from playwright.async_api import Page, Route, expect

from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
from tests.keyboard import tab_to, walk
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit, answer_faults
from tests.ops.screens.test_letters_all import refuse
from tests.ops.screens.test_more import now_ms
from tests.ops.service import Ops
from tests.ops.test_app import declare, eventually, sql

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


@dataclass(frozen=True)
class Form:
    """A form, and what a key does there. `{stream}` and `{letter}` stand for real ones."""

    address: str
    shown: str
    """A control that is there once it is loaded, as a selector."""
    act: Callable[[Page, str], Awaitable[None]]
    """Does something by keys, and sees that it was done. Gets the page and the stream's name."""


async def at(page: Page, address: str) -> None:
    await page.wait_for_function("(to) => location.hash === to", arg=address)


async def check_a_letter(page: Page, _stream: str) -> None:
    await tab_to(page, "Payload")
    await page.keyboard.press("Control+a")
    await page.keyboard.type('{"speed": 7}')
    await tab_to(page, "Check")
    await page.keyboard.press("Space")
    await expect(page.get_by_text("It would be accepted")).to_be_visible()
    await expect(page.get_by_role("button", name="Check")).to_be_focused()


async def register_a_query(page: Page, stream: str) -> None:
    await tab_to(page, "Query file")
    await page.keyboard.press("Control+a")
    await page.keyboard.insert_text(sql(f"q_{stream}", stream).replace("avg(", "agv("))
    await tab_to(page, "Check")
    await page.keyboard.press("Enter")
    await expect(page.locator(".fault").first).to_contain_text("agv")
    await expect(page.get_by_role("button", name="Check")).to_be_focused()
    await tab_to(page, "line")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Query file")).to_be_focused()
    await page.keyboard.press("Control+a")
    await page.keyboard.insert_text(sql(f"q_{stream}", stream))
    await tab_to(page, "Check")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Good;")).to_be_visible()
    await tab_to(page, "Register")
    await page.keyboard.press("Enter")
    await at(page, f"#/queries/q_{stream}")
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    await tab_to(page, "Remove")
    async with page.expect_response(lambda one: one.request.method == "DELETE"):
        await page.keyboard.press("Enter")


async def ask_by_sql(page: Page, stream: str) -> None:
    await tab_to(page, "One SELECT")
    await page.keyboard.press("Control+a")
    await page.keyboard.insert_text("DROP TABLE x")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".fault").first).to_contain_text("SELECT")


async def put_a_card_on_a_board(page: Page, stream: str) -> None:
    await expect(page.get_by_text("No card yet. Choose above")).to_be_visible()
    await tab_to(page, "Add card")
    await page.keyboard.press("Enter")
    card = page.get_by_role("group", name="arrows move it")
    await expect(card).to_be_visible()
    assert await walk(page) == [], "what the card brought is reached, too"
    await tab_to(page, await card.get_attribute("aria-label") or "")
    await page.keyboard.press("ArrowRight")
    await expect(card).to_have_attribute("style", re.compile(r"grid-area: 1 / 2 / "))
    await expect(card).to_be_focused()
    await tab_to(page, "Save")
    await page.keyboard.press("Enter")
    await at(page, f"#/boards/{stream}")
    await expect(page.get_by_role("button", name="Full screen")).to_be_visible()
    assert await walk(page) == []


async def ask_a_device(page: Page, stream: str) -> None:
    await tab_to(page, "Name, of its own list")
    await page.keyboard.type("blink")
    await tab_to(page, "Ask")
    async with page.expect_response(lambda one: one.request.method == "POST") as answer:
        await page.keyboard.press("Enter")
    assert (await answer.value).url.endswith("/commands")
    await tab_to(page, "Note")
    await page.keyboard.type("by the door")
    await tab_to(page, "Keep")
    async with page.expect_response(lambda one: one.request.method == "PUT"):
        await page.keyboard.press("Enter")


async def make_a_rule(page: Page, stream: str) -> None:
    await tab_to(page, "Readings of a stream")
    for _ in range(3):
        await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("group", name="Kinds of problems")).to_be_visible()
    await tab_to(page, "lease")
    await page.keyboard.press("Space")
    await tab_to(page, "Name of the rule")
    await page.keyboard.type(f"rule_{stream}")
    await tab_to(page, "Quiet hours")
    await page.keyboard.press("Space")
    await expect(page.get_by_role("group", name="Quiet hours")).to_be_visible()
    assert await walk(page) == [], "what the choices brought is reached, too"
    await tab_to(page, "Make the rule")
    await page.keyboard.press("Enter")
    await at(page, f"#/alerts/rule_{stream}")
    await expect(page.get_by_role("button", name="Remove")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    await tab_to(page, "Remove")
    await page.keyboard.press("Enter")
    await at(page, "#/alerts")


async def pause_a_console(page: Page, _stream: str) -> None:
    await tab_to(page, "Pause")
    await page.keyboard.press("Space")
    await expect(page.get_by_role("button", name="Go on")).to_be_focused()


async def erase_a_stream(page: Page, stream: str) -> None:
    async def kept(route: Route) -> None:
        """What an erasure does is tested elsewhere; here the stream stays for others' sake."""
        if route.request.method != "DELETE":
            return await route.continue_()
        return await route.fulfill(status=409, json={"status": 409, "detail": "it stays"})

    await page.route(f"**/v1/streams/{stream}*", kept)
    await expect(page.get_by_role("button", name="Erase", exact=True)).to_be_disabled()
    await tab_to(page, "Type")
    await page.keyboard.type(stream)
    await tab_to(page, "Erase")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("it stays")).to_be_visible()


async def make_a_code(page: Page, _stream: str) -> None:
    await tab_to(page, "Make a code")
    await page.keyboard.press("Enter")
    await expect(page.locator(".made")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    await tab_to(page, "End the code")
    async with page.expect_response(lambda one: one.request.method == "DELETE"):
        await page.keyboard.press("Enter")


async def kill_a_part(page: Page, _stream: str) -> None:
    await tab_to(page, "Kill bridge-1")
    async with page.expect_request(lambda one: one.method == "POST") as asked:
        await page.keyboard.press("Enter")
    assert json.loads((await asked.value).post_data or "") == {
        "kind": "kill",
        "target": "bridge-1",
    }


async def add_a_destination(page: Page, stream: str) -> None:
    await tab_to(page, "Name")
    await page.keyboard.type(f"hook_{stream}")
    await tab_to(page, "Address")
    await page.keyboard.type("https://hooks.example.org/a")
    await tab_to(page, "Keep")
    async with page.expect_request(lambda one: one.method == "PUT") as asked:
        await page.keyboard.press("Enter")
    assert (await asked.value).url.endswith(f"/v1/destinations/hook_{stream}")


async def keep_a_stream_longer(page: Page, stream: str) -> None:
    await tab_to(page, "Days")
    await page.keyboard.press("Control+a")
    await page.keyboard.type("9")
    await tab_to(page, f"Keep {stream} for so long")
    async with page.expect_response(lambda one: one.request.method == "PATCH") as answer:
        await page.keyboard.press("Enter")
    assert (await answer.value).ok


async def give_all_letters_back(page: Page, _stream: str) -> None:
    page.once("dialog", lambda dialog: dialog.dismiss())
    async with page.expect_event("dialog") as asked:
        await tab_to(page, "Give all of these back")
        await page.keyboard.press("Enter")
    assert "1" in (await asked.value).message


async def follow_a_frame(page: Page, _stream: str) -> None:
    await tab_to(page, "Token")
    await page.keyboard.type("1.1")
    await tab_to(page, "Follow it")
    await page.keyboard.press("Enter")
    await at(page, "#/trace?token=1.1")


FORMS: Final = {
    "register a query": Form("#/queries/new", "main .sql", register_a_query),
    "ask": Form("#/ask", "main .sql", ask_by_sql),
    "board": Form(
        "#/boards/{stream}?edit=1&source={stream}&field=speed",
        "main .card-form",
        put_a_card_on_a_board,
    ),
    "device": Form("#/devices/{stream}", "main textarea", ask_a_device),
    "mend a letter": Form("#/letters/{letter}", "main textarea", check_a_letter),
    "make a rule": Form("#/alerts?new=1", "main form", make_a_rule),
    "console": Form("#/streams/{stream}", "main .console", pause_a_console),
    "erase": Form("#/streams/{stream}", "main .console", erase_a_stream),
    "enrolment": Form("#/enrolment", "main h2.gap", make_a_code),
    "faults": Form("#/faults", "main .targets li", kill_a_part),
    "destinations": Form("#/alerts?show=destinations", "main input", add_a_destination),
    "retention": Form("#/streams/{stream}", "main .console", keep_a_stream_longer),
    "letters": Form("#/letters?device={device}", "main tbody tr", give_all_letters_back),
    "trace": Form("#/trace", "main form", follow_a_frame),
}
SHORT: Final = ("mend a letter", "make a rule", "enrolment")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in SHORT else [pytest.mark.long]) for one in FORMS]
)
async def test_a_form_is_filled_and_sent_by_keyboard_alone(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str], name: str
) -> None:
    form, page, stream = FORMS[name], visit.page, unique("keys")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    device = unique("dev")
    letter = refuse(writer, device, stream, b'{"speed":')
    status = DeviceStatus(device=stream, state=DeviceState.ONLINE, received_at=now_ms())
    writer.put(topics.DEVICES, f"{stream}|status", status.to_json())

    await page.route("**/v1/faults", answer_faults)
    await visit.open(form.address.format(stream=stream, letter=letter, device=device))
    await expect(page.locator(form.shown).first).to_be_visible()
    await expect(page.get_by_text("loading…")).to_have_count(0)
    assert await walk(page) == []
    await form.act(page, stream)
    await page.unroute_all(behavior="wait")


@pytest.mark.long
async def test_who_tabs_on_through_an_editor_is_not_fetched_back(visit: Visit) -> None:
    page = visit.page
    await visit.open("#/queries/new")
    await expect(page.locator("main .sql")).to_be_visible()
    await tab_to(page, "Query file")
    await page.keyboard.press("Tab")
    await page.evaluate(
        "new Promise((go) => setTimeout(go, 100))"
    )  # the editor colours after 30 ms
    await expect(page.get_by_role("button", name="Check")).to_be_focused()
