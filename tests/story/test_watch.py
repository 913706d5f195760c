"""A person's day: she logs in, sees a device fall silent, is told, takes it, asks why, sends a
command, makes a board, shares it; and somebody without her right sees nothing of all that.

Chromium, a certified identity provider, a mail server, a webhook's receiver, and the whole system
as processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.chromium import chromium, open_page
from tests.login.conftest import IdentityProvider, provider_process, through_the_form
from tests.ops.alerts.receivers import SECRET, Hook, Mail, hook, mail
from tests.services import Process, free_ports
from tests.story.system import OPS_KEY, System

PUMP, OTHER = "pump-7", "pump-8"
STREAM = "pump_state"
COMMAND = "clean_filter"
SILENT_S = 10
HEADERS = {"Content-Type": "application/json"}


class Watched(System):
    """With logins, alerts that leave the machine, and a command that devices allow."""

    def __init__(self, directory: Path, provider: IdentityProvider, urls: dict[str, str]) -> None:
        self._provider, self._urls = provider, urls
        super().__init__(directory, agents=[PUMP, OTHER], stream=STREAM, bridges=1, servers=1)
        access, ops = (int(urls[name].rsplit(":", 1)[1]) for name in ("access", "ops"))
        self._ports, self._ops_port = [access], ops

    def _part(
        self, command: str, name: str, text: str, environment: dict[str, str] | None = None
    ) -> Process:
        folder = self.directory
        if command == "ops":
            seal = folder / "seal.key"
            seal.write_text(os.urandom(32).hex())
            keys = f'seal_key_file = "{seal}"\nalert_hosts = ["127.0.0.1"]\n'
            keys += f'lake_dir = "{folder}/lake"\n'
            text = keys + text + self._login("ops", {"operators": "operate"})
        if command == "access":
            text += self._login("access", {"operators": "everything"})
        if command == "agent":
            text += (
                f"[downlink.command.{COMMAND}]\n"
                f'argv = ["/usr/bin/touch", "{folder}/{name}.cleaned"]\n'
            )
        return super()._part(command, name, text, environment)

    def _login(self, part: str, groups: dict[str, str]) -> str:
        secret, keys = self.directory / "client.secret", self.directory / "session.key"
        secret.write_text("secret+/ %of the client")
        if not keys.exists():
            keys.write_text(secrets.token_hex(32))
        lines = [
            "[login]",
            f'issuer = "{self._provider.issuer}"',
            'client_id = "edgewake"',
            f'client_secret_file = "{secret}"',
            f'url = "{self._urls[part]}"',
            f'session_key_file = "{keys}"',
            'scopes = ["openid", "profile", "offline_access"]',
            "[login.groups]",
            *(f'{group} = "{role}"' for group, role in groups.items()),
        ]
        return "\n".join(lines) + "\n"

    def measure(self, device: str, **fields: Any) -> None:
        """A reading, now."""
        line = {"t": time.time_ns() // 1_000_000, **fields}
        with self.input_file(device).open("a") as out:
            out.write(json.dumps(line) + "\n")


async def measure_on(system: Watched, stop: asyncio.Event, *, pressure: dict[str, float]) -> None:
    """Both pumps say something twice a second, for as long as they have power."""
    while not stop.is_set():
        for device in (PUMP, OTHER):
            system.measure(device, pressure=pressure[device])
        await asyncio.sleep(0.5)


async def prepared(page: Page, told: Hook, mailbox: Mail) -> None:
    """Whom to tell, and of what: by the forms."""
    await page.get_by_role("link", name="Alerts", exact=True).click()
    await page.get_by_role("link", name="Destinations").click()
    await page.get_by_label("Name").fill("oncall_mail")
    await page.get_by_label("Address").fill(mailbox.address)
    await page.get_by_role("button", name="Keep").click()
    await expect(page.get_by_role("row").filter(has_text="oncall_mail")).to_be_visible()
    # A secret of one's own is not in the form: the page's own program asks.
    status = await page.evaluate(
        """async ([url, secret]) => (await fetch("/v1/destinations/desk", {
             method: "PUT", headers: {"Content-Type": "application/json"},
             body: JSON.stringify({address: url, secret})})).status""",
        [told.url, SECRET],
    )
    assert status == 200
    await page.get_by_role("link", name="Alerts", exact=True).first.click()
    await page.get_by_role("link", name="New rule").click()
    await page.get_by_label("Devices that fall silent").check()
    await page.get_by_label("Only those that send").select_option(STREAM)
    await page.locator("label", has_text="Nothing heard for").locator("input").fill(str(SILENT_S))
    await page.get_by_label("Nothing heard for: unit").select_option("1")
    await page.get_by_label("Name of the rule").fill("silent_pump")
    for name in ("oncall_mail", "desk"):
        await page.get_by_role("checkbox", name=name).check()
    await page.get_by_role("button", name="Make the rule").click()
    await expect(page.get_by_text("It has raised nothing")).to_be_visible()


async def is_told_and_takes_it(page: Page, system: Watched, told: Hook, mailbox: Mail) -> None:
    """The pump has no power any more."""
    await page.get_by_role("link", name="Devices", exact=True).click()
    row = page.get_by_role("row").filter(has_text=PUMP)
    await expect(row).to_contain_text("online")
    system.kill(PUMP)
    await expect(row).to_contain_text("offline")
    await system.until(lambda: told.ids() and mailbox.letters, "webhook and mail come")
    assert told.calls[0]["firing"] == [PUMP]
    assert "silent_pump" in str(mailbox.letters[0]["subject"])
    assert PUMP in str(mailbox.letters[0])
    await page.get_by_role("link", name="Alerts", exact=True).first.click()
    await page.get_by_role("button", name=f"Acknowledge {PUMP}").click()
    await expect(page.get_by_role("heading", name="Acknowledged")).to_be_visible()
    await page.get_by_role("link", name="silent_pump").first.click()
    await expect(page.locator(".history")).to_contain_text("acknowledged by Ann (ann)")


async def asks_why(page: Page) -> None:
    """SQL, of what came until then."""
    await page.get_by_role("link", name="Ask", exact=True).click()
    await page.get_by_label("One SELECT over").fill(
        f"SELECT device, max(pressure) AS most FROM {STREAM} GROUP BY device ORDER BY device"
    )
    await page.get_by_role("button", name="Ask").click()
    answer = page.locator("section").filter(has_text="Answer")
    await expect(answer.get_by_role("row").nth(1)).to_contain_text("9.5")
    await expect(answer.get_by_role("row").nth(2)).to_contain_text("2.5")


async def sends_a_command(page: Page, system: Watched, told: Hook) -> None:
    """It waits until the pump has power again, and is done once."""
    cleaned = system.directory / f"{PUMP}.cleaned"
    await page.get_by_role("link", name="Devices", exact=True).click()
    await page.get_by_role("link", name=PUMP).click()
    await page.get_by_label("Name, of its own list").fill(COMMAND)
    await page.get_by_role("button", name="Ask", exact=True).click()
    row = page.get_by_role("region", name="Commands").get_by_role("row").filter(has_text=COMMAND)
    await expect(row).to_be_visible()
    assert not cleaned.exists()
    await system.start(PUMP)
    await expect(row).to_contain_text("done")
    assert cleaned.exists()
    await system.until(lambda: told.ids("resolved"), "it is told that the pump is back")


async def makes_a_board(page: Page) -> str:
    """Its link."""
    await page.get_by_role("link", name="Boards", exact=True).click()
    await page.get_by_label("New board").fill("pumps")
    await page.get_by_role("button", name="Make").click()
    await page.get_by_label("Stream or query").select_option(STREAM)
    await page.get_by_label("Field", exact=True).select_option("pressure")
    await page.get_by_role("button", name="Add card").click()
    await expect(page.locator(".editable .figure").first).not_to_have_text("–")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Copy link").click()
    return page.url


async def sees_the_shared_board(browser: Browser, link: str) -> None:
    """A colleague who has the right opens the link, and is there after the login."""
    page = await open_page(browser)
    await page.goto(link)
    await page.get_by_role("link", name="Log in as yourself").click()
    await through_the_form(page, "dora")
    await expect(page.locator(".grid .figure")).to_be_visible()
    await page.close()


async def sees_nothing(browser: Browser, system: Watched, link: str, access: str) -> None:
    """Somebody who can log in and has no right: not the board, not the streams, by no door."""
    page = await open_page(browser)
    await page.goto(link)
    await page.get_by_role("link", name="Log in as yourself").click()
    await through_the_form(page, "bob")
    await expect(page.get_by_text("none of your groups (visitors) gives a right")).to_be_visible()
    await page.goto(access)
    await expect(page.get_by_role("alert").first).to_contain_text("may read here")
    await expect(page.get_by_text(STREAM)).to_have_count(0)
    held = {one["name"]: one["value"] for one in await page.context.cookies()}
    async with httpx.AsyncClient(cookies=held, timeout=30) as bob:
        for path in (
            "/v1/boards/pumps",
            "/v1/devices",
            "/v1/raised",
            f"/v1/recent?source={STREAM}",
        ):
            assert (await bob.get(system.ops_url + path)).status_code == 403, path
        for path in (f"/v1/streams/{STREAM}/events", f"/v1/latest/{STREAM}", "/v1/streams"):
            assert (await bob.get(access + path)).status_code == 403, path
    await page.close()


@pytest.mark.long
async def test_a_persons_day(tmp_path: Path) -> None:
    *ports, provider_port = free_ports(3)
    urls = {
        name: f"http://127.0.0.1:{port}"
        for name, port in zip(("access", "ops"), ports, strict=True)
    }
    provider = provider_process(tmp_path, provider_port, list(urls.values()))
    people = {
        "ann": {"name": "Ann", "groups": ["operators"]},
        "bob": {"name": "Bob", "groups": ["visitors"]},
        "dora": {"name": "Dora", "groups": ["operators"]},
    }
    pressure = {PUMP: 9.5, OTHER: 2.5}
    stop = asyncio.Event()
    with hook() as told, mail() as mailbox:
        try:
            provider.start().tell("people", people)
            async with Watched(tmp_path, provider, urls) as system, chromium() as browser:
                await system.start("access-1", "ops", "sequencer", "bridge-1", PUMP, OTHER)
                measuring = asyncio.create_task(measure_on(system, stop, pressure=pressure))
                page = await open_page(browser, viewport={"width": 1440, "height": 900})
                await page.goto(urls["access"])
                await page.get_by_role("link", name="Log in as yourself").click()
                await through_the_form(page, "ann")
                await expect(page.get_by_role("article", name=f"Stream {STREAM}")).to_contain_text(
                    "2 devices"
                )
                await page.goto(urls["ops"])
                await prepared(page, told, mailbox)
                await is_told_and_takes_it(page, system, told, mailbox)
                await asks_why(page)
                await sends_a_command(page, system, told)
                link = await makes_a_board(page)
                await sees_the_shared_board(browser, link)
                await sees_nothing(browser, system, link, urls["access"])
                stop.set()
                await measuring
        finally:
            provider.process.stop()
    assert OPS_KEY not in (tmp_path / "provider.log").read_text()
