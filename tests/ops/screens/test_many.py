"""Lists and choices of more than one answer of the server holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.async_api import expect

from edgewake.cloud.kafka import topic_admin
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.erasure import Erasure, Step
from tests.chromium import accessibility_faults
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


async def test_erasures_beyond_a_page_are_led_to(visit: Visit, erased: list[str]) -> None:
    page = visit.page
    await visit.open("#/erasures")
    rows = page.get_by_role("region", name="Erasures").get_by_role("row")
    await expect(rows).to_have_count(101)
    await page.get_by_role("link", name="Older").click()
    await expect(page.get_by_role("region", name="Erasures")).to_contain_text(erased[0])
    assert await accessibility_faults(page) == []
