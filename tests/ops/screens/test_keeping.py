"""How long a stream is kept, how a query is computed, how values lie, on the operations pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.async_api import Dialog, expect

from edgewake.cloud.summaries.summary import MINUTE_MS, Series
from edgewake.protocol import topics
from tests.keyboard import tab_to
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_data import holds_in_both_themes_and_on_a_phone, now_ms
from tests.ops.service import Ops
from tests.ops.test_app import declare, eventually, sql
from tests.summaries.made import minute

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


async def test_how_long_a_stream_is_kept_is_shown_and_changed(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, page, asked = unique("s"), visit.page, []

    async def accept(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await dialog.accept()

    page.on("dialog", accept)
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    path = f"/v1/streams/{stream}/retention"
    ops.client.patch(f"/v1/streams/{stream}", json={"retention_ms": 5 * 86_400_000})
    eventually(lambda: ops.client.get(path), lambda one: one["kept_ms"] == 5 * 86_400_000)
    await visit.open(f"#/streams/{stream}")
    days = page.get_by_label("Days")
    await expect(days).to_have_value("5")
    button = page.get_by_role("button", name=f"Keep {stream} for so long")
    await expect(button).to_be_disabled()
    await holds_in_both_themes_and_on_a_phone(page)
    await days.fill("9")
    await button.click()
    await expect(page.get_by_text("Readings stay for 9 days")).to_be_visible()
    assert asked == []  # nothing is removed by keeping more
    await days.fill("1.5")
    await button.click()
    await expect(page.get_by_text("Readings stay for 36 h")).to_be_visible()
    assert len(asked) == 1
    await days.fill("")  # an emptied field asks for nothing, beside another one too
    await expect(button).to_be_disabled()
    await page.get_by_label("GB of each partition").fill("2")
    await button.click()
    await expect(page.get_by_text("at most 2 GB of each partition")).to_be_visible()
    assert ops.client.get(path).json()["kept_ms"] == 129_600_000
    await days.fill("0.001")
    await button.click()
    await expect(page.get_by_text("retention_ms")).to_be_visible()
    assert ops.client.get(path).json()["kept_ms"] == 129_600_000
    assert [one for one in visit.complaints if "status of 422" not in one] == []


async def test_what_a_stream_is_and_a_fields_type_and_unit_are_changed_on_its_page(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, page, asked = unique("s"), visit.page, []

    async def accept(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await dialog.accept()

    page.on("dialog", accept)
    declare(writer, stream)
    fields = eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))["fields"]
    field = next(name for name, info in fields.items() if info["type"] == "number")
    await visit.open(f"#/streams/{stream}")
    await page.get_by_text("Change the description, types and units").click()
    await page.get_by_label("Description", exact=True).fill("The climate of the kitchen")
    await page.get_by_role("button", name="Keep the description").click()
    await expect(page.locator("dd", has_text="The climate of the kitchen")).to_be_visible()
    await page.get_by_label("Field", exact=True).select_option(field)
    await page.get_by_label("Unit", exact=True).fill("Cel")
    await page.get_by_role("button", name=f"Keep {field}").click()
    table = page.get_by_role("region", name="Fields")
    await expect(table).to_contain_text("°C")
    assert asked == []
    await page.get_by_label("Type", exact=True).select_option("string")
    await page.get_by_role("button", name=f"Keep {field}").click()
    await expect(table.get_by_role("row", name=field)).to_contain_text("string")
    assert len(asked) == 1
    kept = ops.client.get(f"/v1/streams/{stream}").json()
    assert (kept["description"], kept["fields"][field]["unit"]) == (
        "The climate of the kitchen",
        "Cel",
    )
    await holds_in_both_themes_and_on_a_phone(page)
    assert visit.complaints == []


@pytest.mark.long
async def test_a_query_says_how_it_is_computed_and_is_computed_again(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, name, page = unique("s"), unique("q"), visit.page
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    made = ops.client.post("/v1/queries", json={"text": sql(name, stream)})
    assert made.status_code == 201, made.text
    await visit.open(f"#/queries/{name}")
    await expect(page.get_by_role("heading", name="How it is computed")).to_contain_text("shared")
    cost = ops.client.get(f"/v1/queries/{name}/plan").json()["cost"]
    await expect(page.get_by_text(f"Spark plans {cost} of at most")).to_be_visible()
    await page.get_by_text("What is done with a reading", exact=True).click()
    steps = page.get_by_role("list", name="What is done with a reading").get_by_role("listitem")
    await expect(steps.first).to_contain_text(f"read {stream}")
    await tab_to(page, "Windows of the last")
    await page.keyboard.type("day")
    await tab_to(page, "Repair")
    await page.keyboard.press("Enter")
    row = page.get_by_role("region", name="Repairs").get_by_role("row").filter(has_text="repair")
    await expect(row).to_contain_text("waiting")
    (repair,) = ops.client.get(f"/v1/queries/{name}/repairs").json()["items"]
    assert 0 <= now_ms() - repair["begin"] - 86_400_000 < 600_000
    await holds_in_both_themes_and_on_a_phone(page)
    assert visit.complaints == []
    assert ops.client.delete(f"/v1/queries/{name}").status_code == 204


async def test_a_summary_draws_how_its_values_lie(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, page = unique("s"), visit.page
    start = now_ms() // MINUTE_MS * MINUTE_MS - 3 * MINUTE_MS
    held = minute(start, [float(one) for one in range(1, 101)], Series(stream, "price"))
    writer.put(topics.MINUTES, held.key, held.encode())
    path = f"/v1/summaries/{stream}/price?from={start - MINUTE_MS}"
    eventually(lambda: ops.client.get(path), lambda one: one["rows"][0]["figures"]["readings"])
    await visit.open(f"#/summaries/{stream}.price")
    curve = page.get_by_role("img", name="Quantiles of price: half are at most 50")
    await expect(curve.locator("canvas")).to_be_visible()
    rows = page.get_by_role("region", name="Quantiles").get_by_role("row")
    await expect(rows).to_have_count(6)  # the heading and five of the curve's points
    await holds_in_both_themes_and_on_a_phone(page)
    assert visit.complaints == []
