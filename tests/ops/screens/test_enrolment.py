"""Devices are let in on the operations pages: a code, a password, and both taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.async_api import Dialog, Route, expect

from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_data import holds_in_both_themes_and_on_a_phone
from tests.ops.service import Ops

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


async def accept(dialog: Dialog) -> None:
    await dialog.accept()


async def test_a_code_lets_a_device_in_and_is_ended(
    visit: Visit, ops: Ops, unique: Callable[[str], str]
) -> None:
    page, prefix = visit.page, unique("shed-")
    page.on("dialog", accept)
    await visit.open("#/devices")
    await page.get_by_role("link", name="Let devices in").first.click()
    await page.get_by_label("Devices", exact=True).fill("2")
    await page.get_by_label("their names begin with").fill(prefix)
    await page.get_by_role("button", name="Make a code").click()
    line = page.get_by_text("edgewake-agent init")
    await expect(line).to_contain_text(f"--device {prefix}1 --claim ")
    code = (await line.inner_text()).split("--claim ")[1].split()[0]
    row = page.get_by_role("region", name="Codes").get_by_role("row").filter(has_text=prefix)
    await expect(row.get_by_role("cell").nth(1)).to_have_text("2")
    asked = {"code": code, "device": f"{prefix}1"}
    assert ops.client.post("/v1/enrol", json=asked).status_code == 200
    await expect(row.get_by_role("cell").nth(1)).to_have_text("1")
    await holds_in_both_themes_and_on_a_phone(page)
    await row.get_by_role("button", name="End the code").click()
    await expect(row).to_have_count(0)
    refused = ops.client.post("/v1/enrol", json=asked | {"device": f"{prefix}2"})
    assert refused.status_code == 403, refused.text
    assert visit.complaints == []


async def test_a_password_is_given_once_and_taken_back(
    visit: Visit, ops: Ops, unique: Callable[[str], str]
) -> None:
    page, device = visit.page, unique("boiler-")
    page.on("dialog", accept)
    await visit.open("#/enrolment")
    await page.get_by_text("A password for one device").click()
    await page.get_by_label("Its name").fill(device)
    await page.get_by_role("button", name="Give a password").click()
    await expect(page.get_by_text(f"{device}: ")).to_be_visible()
    await page.get_by_role("button", name="Give a password").click()
    await expect(page.get_by_text("has a password already")).to_be_visible()
    await page.get_by_label("Find").fill(device)
    row = page.get_by_role("region", name="Who has what").get_by_role("row").filter(has_text=device)
    await expect(row).to_contain_text("password")
    await row.get_by_role("button", name=f"Take it back from {device}").click()
    await expect(row).to_have_count(0)
    assert device not in ops.client.get("/v1/credentials").json()["devices"]
    assert [one for one in visit.complaints if "status of 409" not in one] == []


async def test_a_server_that_gives_no_passwords_says_what_it_needs(visit: Visit) -> None:
    async def refused(route: Route) -> None:
        detail = "this server gives devices no passwords: expected password_file in ops.toml"
        await route.fulfill(status=409, json={"detail": detail})

    await visit.page.route("**/v1/claims", refused)
    await visit.page.route("**/v1/credentials", refused)
    await visit.open("#/enrolment")
    await expect(visit.page.get_by_role("alert")).to_contain_text("expected password_file")
    await visit.page.unroute_all(behavior="wait")
