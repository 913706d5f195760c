"""Lists and choices of more than one answer of the server holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.async_api import expect

from edgewake.cloud.kafka import topic_admin
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.alert import Alert, Rule, State
from edgewake.protocol.ops.erasure import Erasure, Step
from tests.chromium import accessibility_faults
from tests.commands.test_status import run
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_data import send
from tests.ops.service import Ops
from tests.ops.test_app import eventually
from tests.services import wait_until

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]
MANY = 505


def put_all(writer: Writer, topic: str, rows: dict[str, bytes | None]) -> None:
    """Rows of a table, written together."""
    topic_admin.ensure_topics(writer.config, [topic])
    for key, value in rows.items():
        writer.producer.produce(topic, key=key, value=value)
    assert writer.producer.flush(30) == 0


@pytest.fixture
def many(ops: Ops, writer: Writer, unique: Callable[[str], str]) -> Iterator[list[str]]:
    """Names of so many streams that were declared, the last of which has a unit."""
    part = unique("zz_many")
    names = [f"{part}_{i:03}" for i in range(MANY)]
    rows: dict[str, bytes | None] = {}
    for name in names:
        info = FieldInfo(type=FieldType.NUMBER, unit="°C" if name == names[-1] else "")
        rows[name] = Stream(name=name, fields={"temperature": info}).model_dump_json().encode()
    put_all(writer, topics.STREAMS, rows)
    eventually(lambda: ops.client.get(f"/v1/streams/{names[-1]}"))
    yield names
    put_all(writer, topics.STREAMS, dict.fromkeys(names))
    gone = f"/v1/streams/{names[-1]}"
    wait_until(lambda: ops.client.get(gone).status_code == 404, "they are gone")


@pytest.fixture
def erased(ops: Ops, writer: Writer, unique: Callable[[str], str]) -> Iterator[list[str]]:
    """Ids of erasures that ended long ago, more than a page has, the oldest first."""
    part = unique("e").replace("_", "-")
    ids = [f"{part}-{i:03}" for i in range(101)]
    rows: dict[str, bytes | None] = {}
    for at, one in enumerate(ids):
        row = Erasure(
            id=one,
            what="stream",
            name=one,
            asked_at=1000 + at,
            asked_by="me",
            step=Step.DONE,
            updated_at=2000,
        )
        rows[one] = row.model_dump_json().encode()
    put_all(writer, topics.ERASURES, rows)
    eventually(lambda: ops.client.get(f"/v1/erasures/{ids[-1]}"))
    yield ids
    put_all(writer, topics.ERASURES, dict.fromkeys(ids))


async def test_the_501st_stream_is_listed_found_chosen_and_has_its_unit(
    visit: Visit, writer: Writer, many: list[str]
) -> None:
    last, page = many[-1], visit.page
    await visit.open("#/streams")
    rows = page.get_by_role("region", name="Streams").get_by_role("row")
    await expect(rows).to_have_count(501)
    await expect(page.get_by_text(re.compile("^and .* more$"))).to_be_visible()
    await page.get_by_role("button", name=re.compile("^Show .* more$")).click()
    await expect(page.get_by_role("region", name="Streams")).to_contain_text(last)
    await page.get_by_role("searchbox", name="Find in Streams").fill(last.upper())
    await expect(rows).to_have_count(2)
    assert await accessibility_faults(page) == []
    send(writer, "kitchen", last, temperature=21.5)
    await visit.open(f"#/boards/{last}?edit=1")
    form = page.get_by_role("form", name="Add a card")
    await form.get_by_role("searchbox", name="Find a name").fill(last[-6:])
    choice = form.get_by_label("Stream or query", exact=True)
    await expect(choice.get_by_role("option")).to_have_count(2)
    await choice.select_option(last)
    await form.get_by_label("Field", exact=True).select_option("temperature")
    await page.get_by_role("button", name="Add card").click()
    card = page.get_by_role("group", name=re.compile(last))
    await expect(card.locator(".figure + small")).to_have_text("°C")
    assert await accessibility_faults(page) == []


@pytest.mark.long
async def test_erasures_beyond_a_page_are_led_to(visit: Visit, erased: list[str]) -> None:
    page = visit.page
    await visit.open("#/erasures")
    rows = page.get_by_role("region", name="Erasures").get_by_role("row")
    await expect(rows).to_have_count(101)
    await page.get_by_role("link", name="Older").click()
    await expect(page.get_by_role("region", name="Erasures")).to_contain_text(erased[0])
    await visit.open("#/history?show=events&kind=erasure")
    happened = page.get_by_role("region", name="What happened").get_by_role("row")
    await expect(happened.filter(has_text=erased[-1]).first).to_contain_text("gone")
    assert await accessibility_faults(page) == []


@pytest.fixture
def raised(ops: Ops, writer: Writer, unique: Callable[[str], str]) -> Iterator[list[str]]:
    """Keys of alerts that fire, more than a page has, those that fire longest at the end."""
    stream, rule = unique("s"), unique("rule")
    keys = [f"{rule}-{i:03}" for i in range(MANY)]
    kept = Rule(name=rule, stream=stream, when="x > 1", version=1, changed_at=1, changed_by="me")
    put_all(writer, topics.ALERT_RULES, {f"rule|{rule}": kept.model_dump_json().encode()})
    rows: dict[str, bytes | None] = {}
    for at, key in enumerate(keys):
        since = 10_000 - at
        one = Alert(
            rule=rule, key=key, basis=kept.basis, state=State.FIRING,
            since=since, began=since, last_at=since,
        )  # fmt: skip
        rows[one.id] = one.model_dump_json().encode()
    put_all(writer, topics.ALERTS, rows)
    last = {"limit": 500, "after": f"firing|{10_000 - MANY + 2}|z"}
    wait_until(
        lambda: ops.client.get("/v1/raised", params=last).json()["items"][:1] != [], "all are there"
    )
    yield keys
    put_all(writer, topics.ALERTS, dict.fromkeys(rows))
    put_all(writer, topics.ALERT_RULES, {f"rule|{rule}": None})
    gone = f"/v1/alerts/{rule}"
    wait_until(lambda: ops.client.get(gone).status_code == 404, "they are gone")


@pytest.mark.long
async def test_raised_alerts_beyond_a_page_are_shown_by_a_press(
    visit: Visit, ops: Ops, raised: list[str]
) -> None:
    page = visit.page
    await visit.open("#/alerts")
    firing = page.locator(".raised[data-state=firing]").get_by_role("listitem")
    await expect(firing.filter(has_text=raised[0])).to_be_visible()
    await expect(firing.filter(has_text=raised[-1])).to_have_count(0)
    await page.get_by_role("button", name=re.compile("^Show [0-9]+ more$")).click()
    await expect(firing.filter(has_text=raised[-1])).to_be_visible()
    await expect(firing.filter(has_text=raised[0])).to_have_count(1)
    listed = json.loads(run(ops, "alert", "list", "--json").stdout)
    assert [one["key"] for one in listed if one["key"] in set(raised)] == raised
    refused = ops.client.get("/v1/raised", params={"after": "firing|x|y"})
    assert refused.status_code == 422
    assert "the `next` of an earlier answer" in refused.json()["detail"]
