"""Deliveries to webhooks are made, changed and ended on the operations pages."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Dialog, Page, Route, expect

from edgewake.cloud.kafka.config import KafkaConfig
from tests.chromium import chromium, open_page
from tests.ops.screens.test_data import holds_in_both_themes_and_on_a_phone
from tests.ops.service import Ops, running
from tests.push.receiver import Receiver, receiving
from tests.push.service import Readings, Service, asked, readings, serving
from tests.services import PATIENCE_S, Kafka

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]
READER = base64.b32encode(b"reader of the form").decode()
ORDER = """() => [...document.querySelectorAll("main :is(nav, table, form)")]
  .map((one) => one.tagName)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("delivery-form")


@pytest.fixture(scope="module")
def push(kafka: Kafka, folder: Path) -> Iterator[Service]:
    with serving(
        "push", kafka.bootstrap, folder, allow_hosts=["127.0.0.1"], session_timeout_s=3
    ) as service:
        yield service


@pytest.fixture(scope="module")
def ops(kafka: Kafka, push: Service, folder: Path) -> Iterator[Ops]:
    with running(kafka.bootstrap, folder, f'push = {{ url = "{push.url}" }}\n') as service:
        yield service


@pytest_asyncio.fixture(loop_scope="session")
async def page(ops: Ops) -> AsyncIterator[Page]:
    async with chromium() as browser:
        page = await open_page(browser, viewport={"width": 1440, "height": 900})
        page.on("dialog", _accept)
        ticket = await asyncio.to_thread(ops.client.post, "/v1/tickets")
        await page.goto(ops.url + ticket.json()["path"])
        await page.get_by_role("link", name="Clients", exact=True).click()
        await page.get_by_role("link", name="Deliver a stream to a webhook").click()
        await expect(page.get_by_role("form", name="Deliver to a webhook")).to_be_visible()
        yield page


@pytest.fixture
def stream(kafka_config: KafkaConfig) -> Readings:
    return readings(kafka_config, f"frm_{uuid.uuid4().hex[:12]}")


async def _accept(dialog: Dialog) -> None:
    await dialog.accept()


def refusing(status: int, detail: str) -> Callable[[Route], Awaitable[None]]:
    """The answer of a server that refuses."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, json={"status": status, "detail": detail})

    return answer


async def until_called(receiver: Receiver, numbers: list[int]) -> None:
    """Until exactly these readings were delivered."""
    async with asyncio.timeout(PATIENCE_S):
        while _delivered(receiver) != numbers:
            await asyncio.sleep(0.05)


def _delivered(receiver: Receiver) -> list[int]:
    bodies = [json.loads(call.body) for call in receiver.calls]
    return sorted(event["n"] for body in bodies for event in body["events"] if "n" in event)


async def test_a_delivery_is_made_by_keyboard_changed_and_ended(
    page: Page, push: Service, stream: Readings
) -> None:
    name = f"d{uuid.uuid4().hex[:10]}"
    stream.add(2)
    async with receiving() as receiver:
        await page.get_by_label("Name", exact=True).focus()
        for text in (name, stream.stream):
            await page.keyboard.type(text)
            await page.keyboard.press("Tab")
        await page.get_by_label("Only where").fill("n != 2")
        await page.get_by_label("Begin").select_option("earliest")
        await page.get_by_label("Address", exact=True).fill(receiver.url)
        await page.get_by_label("Headers", exact=True).fill("X-Mine: yes")
        await page.get_by_label("Address", exact=True).press("Enter")
        secret = await page.get_by_text(re.compile("^whsec_")).inner_text()
        await until_called(receiver, [1])
        call = next(one for one in receiver.calls if json.loads(one.body)["events"])
        call.verified(secret)
        assert call.headers["x-mine"] == "yes"
        row = page.get_by_role("region", name="Deliveries").get_by_role("row").filter(has_text=name)
        await expect(row).to_contain_text("running")
        assert await page.evaluate(ORDER) == ["NAV", "TABLE", "FORM"]
        await holds_in_both_themes_and_on_a_phone(page)

        await row.get_by_role("button", name=f"Change {name}").click()
        await expect(page.get_by_label("Streams", exact=True)).to_have_value(stream.stream)
        await page.get_by_label("Only where").fill("n != 3")
        await page.get_by_label("Address", exact=True).fill(receiver.url)
        await page.get_by_role("button", name="Replace").click()
        await expect(row.get_by_title("n != 3")).to_be_visible()
        stream.add(2)  # 3 and 4; what was passed by stays behind
        await until_called(receiver, [1, 4])

        await row.get_by_role("button", name=f"End {name}").click()
        await expect(row).to_have_count(0)
        await asked(push, "GET", f"/v1/deliveries/{name}", expected=404)


async def test_anothers_row_is_only_tested_and_ended_and_ours_of_its_name_is_left_alone(
    page: Page, ops: Ops, push: Service, stream: Readings
) -> None:
    stream.add(1)
    name = f"d{uuid.uuid4().hex[:10]}"
    body = {"streams": [stream.stream], "url": "http://127.0.0.1:9/hook"}
    await asked(push, "PUT", f"/v1/deliveries/{name}", body | {"where": "n > 100"}, expected=201)
    from_elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx.AsyncClient(base_url=push.url, transport=from_elsewhere) as another:
        made = await another.put(f"/v1/deliveries/{name}", json=body | {"where": "n > 200"})
    assert made.status_code == 201, made.text

    rows = page.get_by_role("region", name="Deliveries").get_by_role("row").filter(has_text=name)
    ours, anothers = (rows.filter(has=page.get_by_title(f"n > {n}")) for n in (100, 200))
    await expect(ours.get_by_role("button")).to_have_text(["Test", "Change", "End"])
    await expect(anothers.get_by_role("button")).to_have_text(["Test", "End"])
    id_ = made.json()["id"]
    for method, path in (("PUT", f"{name}?id={id_}"), ("POST", f"{id_}/enable")):
        answer = await asyncio.to_thread(
            ops.client.request, method, f"/v1/deliveries/{path}", json=body
        )
        assert (answer.status_code, answer.json()["title"]) == (409, "not ours"), method
    found = await asked(push, "GET", f"/v1/deliveries/{name}")
    assert found["where"] == "n > 100"
    path = f"/v1/deliveries/other?id={found['id']}"
    renamed = await asyncio.to_thread(ops.client.put, path, json=body)
    assert (renamed.status_code, renamed.json()["title"]) == (409, "other name")
    await anothers.get_by_role("button", name=f"End {name}").click()
    await expect(anothers).to_have_count(0)
    await expect(ours).to_have_count(1)
    async with httpx.AsyncClient(base_url=push.url, transport=from_elsewhere) as another:
        assert (await another.get(f"/v1/deliveries/{name}")).status_code == 404


@pytest.mark.long
async def test_a_change_keeps_what_the_form_does_not_show(
    page: Page, push: Service, stream: Readings
) -> None:
    stream.add(1)
    name = f"d{uuid.uuid4().hex[:10]}"
    unseen = {"select": "n", "on_gap": "latest", "kind": "push_service"}
    url = "http://127.0.0.1:9/hook"
    body = {"streams": [stream.stream], "url": url, "events_max": 7, "wait_s": 1.5, **unseen}
    before = await asked(push, "PUT", f"/v1/deliveries/{name}", body, expected=201)
    await page.get_by_role("button", name=f"Change {name}").click()
    await expect(page.get_by_label("Events in a call")).to_have_value("7")
    await expect(page.get_by_label("Seconds to wait for more")).to_have_value("1.5")
    await page.get_by_label("Only where").fill("n > 1")
    await page.get_by_label("Address", exact=True).fill(url)
    await page.get_by_role("button", name="Replace").click()
    status = page.get_by_role("form").get_by_role("status")
    await expect(status).to_have_text(f"{name} is kept, to 127.0.0.1.")
    after = await asked(push, "GET", f"/v1/deliveries/{name}")
    assert after["where"] == "n > 1"
    for key in ("events_max", "wait_s", *unseen):
        assert after[key] == before[key], key


@pytest.mark.long
async def test_a_secret_and_what_was_typed_survive_a_look_at_another_delivery(
    page: Page, push: Service, stream: Readings
) -> None:
    stream.add(1)
    first = f"d{uuid.uuid4().hex[:10]}"
    form = page.get_by_role("form")
    url = "http://127.0.0.1:9/hook"
    await page.get_by_label("Name", exact=True).fill(first)
    await page.get_by_label("Streams", exact=True).fill(stream.stream)
    await page.get_by_label("Address", exact=True).fill(url)
    await page.get_by_role("button", name="Deliver", exact=True).click()
    secret = await page.get_by_text(re.compile("^whsec_")).inner_text()
    await page.get_by_label("Name", exact=True).fill("another")
    await page.get_by_label("Headers", exact=True).fill("X-Long: typed")

    await page.get_by_role("button", name=f"Change {first}").click()
    for where in ("n > 1", "n > 2"):
        await page.get_by_label("Only where").fill(where)
        await page.get_by_label("Address", exact=True).fill(url)
        await page.get_by_role("button", name="Replace").click()
        await expect(page.get_by_label("Address", exact=True)).to_have_value("")
        await expect(page.get_by_role("heading", name=f"Change {first}")).to_be_visible()
        found = await asked(push, "GET", f"/v1/deliveries/{first}")
        assert found["where"] == where
    await expect(form.get_by_text(secret)).to_be_visible()

    await page.get_by_role("button", name="Leave as it is").click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value("another")
    await expect(page.get_by_label("Headers", exact=True)).to_have_value("X-Long: typed")
    await expect(form.get_by_text(secret)).to_be_visible()


@pytest.mark.long
async def test_what_is_wrong_stands_at_the_form_and_what_was_typed_stays(
    page: Page, stream: Readings
) -> None:
    stream.add(1)
    await page.get_by_label("Name", exact=True).fill("typed")
    await page.get_by_label("Streams", exact=True).fill("nowhere_at_all")
    await page.get_by_label("Address", exact=True).fill("http://127.0.0.1:9/hook")
    deliver = page.get_by_role("button", name="Deliver", exact=True)
    await deliver.click()
    status = page.get_by_role("form").get_by_role("status")
    await expect(status).to_contain_text("nowhere_at_all")
    await page.get_by_label("Streams", exact=True).fill(stream.stream)
    await page.get_by_label("Headers", exact=True).fill("no colon here")
    await deliver.click()
    await expect(status).to_contain_text("header 1: expected Name: value")
    await page.get_by_label("Headers", exact=True).fill("")
    await page.get_by_label("Address", exact=True).fill("http://10.1.2.3/hook")
    await deliver.click()
    await expect(status).to_contain_text("expected https")
    for code in (401, 404, 409, 422, 503):
        detail = f"no such thing <b>{code}</b>"
        await page.route("**/v1/deliveries/typed", refusing(code, detail))
        await deliver.click()
        await expect(status).to_contain_text(detail)
        await expect(deliver).to_be_enabled()
        await page.unroute_all(behavior="wait")
    await expect(page.get_by_label("Streams", exact=True)).to_have_value(stream.stream)


@pytest.mark.long
async def test_a_server_without_a_proxy_or_with_a_wrong_key_says_what_it_needs(
    kafka: Kafka, tmp_path: Path, stream: Readings
) -> None:
    stream.add(1)
    keys, key = tmp_path / "readers.keys", tmp_path / "push.key"
    keys.write_text(f"reader everything {READER}\n")
    keys.chmod(0o600)
    key.write_text("not-" + READER + "\n")
    key.chmod(0o600)
    body = {"streams": [stream.stream], "url": "http://127.0.0.1:9/hook"}
    rights = {"rights.key_file": str(keys)}
    with serving("push", kafka.bootstrap, tmp_path, allow_hosts=["127.0.0.1"], **rights) as proxy:
        more = f'push = {{ url = "{proxy.url}", key_file = "{key}" }}\n'
        with running(kafka.bootstrap, tmp_path, more) as ops:
            answer = ops.client.put("/v1/deliveries/one", json=body)
            assert answer.status_code == 409, answer.text
            assert "key_file of [push] in ops.toml" in answer.json()["detail"]
    (tmp_path / "away").mkdir()
    with running(kafka.bootstrap, tmp_path / "away", f'push = {{ url = "{proxy.url}" }}\n') as ops:
        assert ops.client.put("/v1/deliveries/one", json=body).status_code == 503
        assert ops.client.delete("/v1/deliveries/none").status_code == 404
    (tmp_path / "none").mkdir()
    with running(kafka.bootstrap, tmp_path / "none") as ops:
        answer = ops.client.put("/v1/deliveries/one", json=body)
        assert (answer.status_code, answer.json()["title"]) == (409, "no push proxy")
