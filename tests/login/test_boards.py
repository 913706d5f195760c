"""A board that is shared by its link: two people see of it what their own groups may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx
import pytest
from playwright.async_api import Browser, Page, Response, expect
from playwright.async_api import Error as PlaywrightError

from tests.chromium import accessibility_faults, open_page
from tests.keyboard import walk
from tests.login.conftest import OPS_KEY, World
from tests.login.test_people import asked, eventually, log_in, visit
from tests.services import PATIENCE_S

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]

NAME = "shared_board"


@pytest.fixture
def link(login_world: World) -> str:
    """Of a board with cards of both streams and of both devices."""
    mine, other = login_world.mine.name, login_world.other.name
    cards = [
        {"kind": "table", "source": mine, "title": "All speeds", "w": 6, "h": 3},
        {"kind": "chart", "source": mine, "field": "speed", "device": "car-1", "y": 3},
        {"kind": "value", "source": other, "field": "speed", "title": "Secret sum", "x": 6},
        {"kind": "text", "text": "Call the depot", "x": 6, "y": 3},
    ]
    answer = httpx.put(
        f"{login_world.ops}/v1/boards/{NAME}",
        headers={"X-API-Key": OPS_KEY},
        json={"title": "The fleet", "cards": cards},
        timeout=PATIENCE_S,
    )
    assert answer.status_code == 200, answer.text
    return f"{login_world.access}/#/boards/{NAME}"


@dataclass
class Heard:
    """Everything that a page was sent, as text."""

    page: Page
    texts: list[str] = field(default_factory=list)

    async def note(self, response: Response) -> None:
        if "/v1/" not in response.url or "events" in response.url:
            return
        with suppress(PlaywrightError):  # the page went on or closed before the body had come
            self.texts.append(await response.text())


@asynccontextmanager
async def opened(browser: Browser, link: str, who: str) -> AsyncIterator[Heard]:
    """The link, opened by somebody who logs in on the way."""
    page = await open_page(browser)
    heard = Heard(page)
    page.on("response", heard.note)
    await page.goto(link)
    await log_in(page, who)
    await expect(page.get_by_text("The fleet")).to_be_visible()
    assert page.url == link
    yield heard
    await page.close()


async def test_each_of_two_people_sees_what_their_own_groups_may_read(
    browser: Browser, login_world: World, link: str
) -> None:
    async with opened(browser, link, "ann") as ann:
        table = ann.page.get_by_role("group", name="All speeds")
        await expect(table).to_contain_text("car-1")
        await expect(table).to_contain_text("car-2")
        chart = ann.page.get_by_role("group", name="speed, car-1")
        await expect(chart.get_by_role("img")).to_be_visible()
        await expect(ann.page.get_by_text("Call the depot")).to_be_visible()
        await _sees_nothing(ann, login_world.other.name, "Secret sum")
        assert await accessibility_faults(ann.page) == []
        assert await walk(ann.page) == []
    async with opened(browser, link, "carl") as carl:
        login_world.mine.send("car-1", fields={"speed": [88.125]})
        login_world.mine.send("car-2", fields={"speed": [77.0]})
        table = carl.page.get_by_role("group", name="All speeds")
        await expect(table).to_contain_text("77")
        await _sees_nothing(carl, "car-1", login_world.other.name, "Secret sum", "88.1")
        assert await carl.page.get_by_role("group").count() == 2, "the table and the text"


async def _sees_nothing(heard: Heard, *words: str) -> None:
    shown = await heard.page.content()
    for word in words:
        assert word not in shown
        assert [text for text in heard.texts if word in text] == []


@pytest.mark.long
async def test_who_may_read_none_of_it_is_told_of_no_board(
    browser: Browser, login_world: World, link: str
) -> None:
    async with visit(browser, link) as page:
        await log_in(page, "bob")
        await expect(page.get_by_role("alert").first).to_contain_text("may read here")
        for path in ("/v1/boards", f"/v1/boards/{NAME}"):
            assert (await asked(page, path))[0] == 403
        assert "The fleet" not in await page.content()


@pytest.mark.long
async def test_boards_are_listed_with_the_cards_that_one_sees_and_one_that_is_hidden_is_none(
    browser: Browser, login_world: World, link: str
) -> None:
    hidden = {"cards": [{"kind": "table", "source": login_world.other.name}], "title": "Hidden"}
    httpx.put(
        f"{login_world.ops}/v1/boards/hidden_board",
        headers={"X-API-Key": OPS_KEY},
        json=hidden,
        timeout=PATIENCE_S,
    ).raise_for_status()
    async with opened(browser, link, "carl") as carl:
        listed = await eventually(carl.page, "/v1/boards", 200)
        assert [(one["name"], one["cards"]) for one in listed["boards"]] == [(NAME, 2)]
        status, problem = await asked(carl.page, "/v1/boards/hidden_board")
        _, none = await asked(carl.page, "/v1/boards/none_board")
        assert status == 404
        assert problem["detail"].replace("hidden", "none") == none["detail"]
        await carl.page.get_by_role("link", name="Boards").first.click()
        await expect(carl.page.get_by_role("link", name="The fleet")).to_be_visible()
        await expect(carl.page.get_by_text("Hidden")).to_have_count(0)
