"""What operators see of sleeping clients, deliveries and groups, and waking one to try it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Page, expect

from edgewake.cloud.kafka.config import KafkaConfig
from tests.chromium import chromium, open_page
from tests.ops.service import Ops, running
from tests.push.receiver import receiving
from tests.push.service import Reader, Readings, Service, asked, readings, serving
from tests.services import PATIENCE_S, Kafka

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def push(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("operators")
    with serving(
        "push", kafka.bootstrap, directory, allow_hosts=["127.0.0.1"], session_timeout_s=3
    ) as service:
        yield service


@pytest.fixture(scope="module")
def access(
    kafka: Kafka, push: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """With the key that signs cursors of the proxy."""
    directory = tmp_path_factory.mktemp("operators-access")
    with serving("access", kafka.bootstrap, directory) as service:
        yield service


@pytest.fixture(scope="module")
def ops(kafka: Kafka, push: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    more = f'push = {{ url = "{push.url}" }}\n'
    with running(kafka.bootstrap, tmp_path_factory.mktemp("ops"), more) as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest.fixture
def stream(kafka_config: KafkaConfig) -> Readings:
    made = readings(kafka_config, f"opr_{uuid.uuid4().hex[:12]}")
    made.add(1)
    return made


async def until(ops: Ops, path: str, is_wanted: Callable[[Row], bool]) -> Row:
    """The one row that the operations API says, once there is one like this."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await asyncio.to_thread(ops.client.get, f"{path}?limit=500")
            if answer.status_code == 200:
                for row in answer.json()["items"]:
                    if is_wanted(row):
                        return row
            await asyncio.sleep(0.1)


async def sleeper(access: Service, push: Service, stream: Readings, url: str) -> str:
    """The lease of a client that sleeps until a thousand events came: never, here."""
    client = Reader(access.url, stream.stream)
    await client.stand()
    body = {
        "subscription": {"streams": [stream.stream]},
        "cursor": client.cursor,
        "endpoint": {"url": url},
        "wake": {"min_events": 1000},
    }
    return str((await asked(push, "POST", "/v1/leases", body, expected=201))["id"])


async def accept(dialog: Dialog) -> None:
    await dialog.accept()


async def clients_page(browser: Browser, ops: Ops) -> Page:
    page = await open_page(browser)
    ticket = await asyncio.to_thread(ops.client.post, "/v1/tickets")
    await page.goto(ops.url + ticket.json()["path"])
    await expect(page.get_by_role("link", name="Clients", exact=True)).to_be_visible()
    await page.evaluate("location.hash = '#/clients'")
    return page


@pytest.mark.long
async def test_a_sleeping_client_is_woken_by_a_button_and_how_it_went_is_said(
    browser: Browser, access: Service, push: Service, ops: Ops, stream: Readings
) -> None:
    async with receiving() as receiver:
        receiver.answer = lambda n: (204, {}) if n == 0 else (503, {})
        name = await sleeper(access, push, stream, receiver.url)
        await until(ops, "/v1/leases", lambda row: row["id"] == name)
        assert receiver.calls == []
        page = await clients_page(browser, ops)
        row = page.get_by_role("row").filter(has_text=name)
        wake = row.get_by_role("button", name=f"Wake {name} now")
        await wake.click()
        await expect(row.get_by_text("taken by 127.0.0.1")).to_be_visible()
        (call,) = receiver.calls
        assert json.loads(call.body)["lease"] == name
        await wake.click()
        await expect(row.get_by_text("did not take it")).to_be_visible()
        assert len(receiver.calls) >= 2
        await page.close()


async def test_who_is_not_there_or_whose_endpoint_is_given_up_is_not_woken(
    access: Service, push: Service, ops: Ops, stream: Readings
) -> None:
    assert ops.client.post("/v1/leases/none/wake").status_code == 404
    async with receiving() as receiver:
        receiver.answer = lambda _: (410, {})
        name = await sleeper(access, push, stream, receiver.url)
        await until(ops, "/v1/leases", lambda row: row["id"] == name)
        path = f"/v1/leases/{name}/wake"
        await asyncio.to_thread(ops.client.post, path)
        is_given_up = lambda row: row["id"] == name and row["state"] == "disabled"  # noqa: E731
        await until(ops, "/v1/leases", is_given_up)
        calls = len(receiver.calls)
        refused = await asyncio.to_thread(ops.client.post, path)
        assert refused.status_code == 409
        assert "disabled" in refused.json()["detail"]
        assert len(receiver.calls) == calls == 1


async def test_deliveries_and_groups_are_listed_without_their_secrets(
    browser: Browser, push: Service, ops: Ops, stream: Readings
) -> None:
    delivery, group = f"d{uuid.uuid4().hex[:10]}", f"g{uuid.uuid4().hex[:10]}"
    async with receiving() as receiver:
        receiver.answer = lambda _: (500, {})
        body = {"streams": [stream.stream], "url": receiver.url, "from": "earliest"}
        made = await asked(push, "PUT", f"/v1/deliveries/{delivery}", body, expected=201)
        shared = {"streams": [stream.stream], "from": "earliest"}
        await asked(push, "PUT", f"/v1/groups/{group}", shared, expected=201)
        row = await until(
            ops, "/v1/deliveries", lambda one: one["name"] == delivery and one["failures"] > 0
        )
        assert row["endpoint_host"] == "127.0.0.1"
        for secret in (made["secret"], made["cursor"], receiver.url):
            assert secret not in json.dumps(row)
        page = await clients_page(browser, ops)
        deliveries = page.get_by_role("region", name="Deliveries").get_by_role("row")
        await expect(deliveries.filter(has_text=delivery)).to_contain_text("retrying")
        receiver.answer = lambda _: (204, {})
        calls = len(receiver.calls)
        row = deliveries.filter(has_text=delivery)
        await row.get_by_role("button", name=f"Test {delivery}").click()
        await expect(row.get_by_text("taken by 127.0.0.1")).to_be_visible()
        tests = [json.loads(one.body) for one in receiver.calls[calls:]]
        assert {"type": "edgewake.test", "delivery": delivery, "events": []} in tests
        receiver.answer = lambda _: (503, {})
        await row.get_by_role("button", name=f"Test {delivery}").click()
        await expect(row.get_by_text("not taken: ")).to_be_visible()
        row_id = (await until(ops, "/v1/deliveries", lambda one: one["name"] == delivery))["id"]
        refused = await asyncio.to_thread(ops.client.post, "/v1/deliveries/none/test")
        assert refused.status_code == 404
        audited = ops.client.get("/v1/audit").json()["items"]
        assert f"/v1/deliveries/{row_id}/test" in {one["path"] for one in audited}
        groups = page.get_by_role("region", name="Groups").get_by_role("row")
        shared_row = groups.filter(has_text=group)
        await expect(shared_row).to_contain_text(stream.stream)
        page.once("dialog", accept)
        await shared_row.get_by_role("button", name=f"End group {group}").click()
        await expect(shared_row).to_have_count(0)
        await asked(push, "GET", f"/v1/groups/{group}", expected=404)
        unknown = await asyncio.to_thread(ops.client.delete, "/v1/shares/none")
        assert unknown.status_code == 404
        await asked(push, "DELETE", f"/v1/deliveries/{delivery}", expected=204)
        await expect(page.get_by_text(delivery)).to_have_count(0)
        await expect(page.get_by_text(group)).to_have_count(0)
        await page.close()
