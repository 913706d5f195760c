"""Letters by hour, and all of a filter given back: counted first, oldest first, each once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.async_api import Dialog, expect

from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_more import now_ms
from tests.ops.service import Ops
from tests.ops.test_app import declare, eventually

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


def refuse(
    writer: Writer, device: str, stream: str, payload: bytes, *, at: int | None = None
) -> int:
    """A letter that its bridge refused for its type; its offset."""
    letter = DeadLetter(
        reason=RejectReason.FIELD_TYPE,
        detail="speed: expected a number",
        topic=f"ew/v1/{device}/up/{stream}",
        part="bridge-1",
        received_at=now_ms() if at is None else at,
    )
    return writer.put(topics.DEAD, device, payload, letter.headers())[1]


def readings(ops: Ops, stream: str, device: str) -> list[float]:
    """Speeds of the device as they are on the stream, in order."""
    path = f"/v1/recent?source={stream}&device={device}&minutes=60"
    return [one["speed"] for one in ops.client.get(path).json()["events"]]


async def test_all_of_a_device_are_counted_and_given_back_once_and_in_order(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, device, other = unique("s"), unique("dev"), unique("dev")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    for speed in range(60):
        refuse(writer, device, stream, b'{"speed": %d}' % speed)
    refuse(writer, device, stream, b'{"speed":')
    refuse(writer, other, stream, b'{"speed": 1}')
    await visit.open(f"#/letters?device={device}")
    hours = visit.page.get_by_role("figure")
    await expect(hours).to_contain_text("61 in the last 24 hours")
    asked: list[str] = []

    async def accept(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await dialog.accept()

    visit.page.on("dialog", accept)
    button = visit.page.get_by_role("button", name="Give all of these back")
    await button.click()
    await expect(visit.page.get_by_text("60 given back, 0 were before, 1 still")).to_be_visible()
    assert asked[0].startswith("61 letters")
    assert readings(ops, stream, device) == [float(speed) for speed in range(60)]
    assert readings(ops, stream, other) == []
    await expect(button).to_be_enabled()
    await button.click()
    await expect(visit.page.get_by_text("0 given back, 60 were before, 1 still")).to_be_visible()
    assert len(readings(ops, stream, device)) == 60
    audit = ops.client.get("/v1/audit").json()["items"]
    told = [one["detail"] for one in audit if one["path"] == "/v1/dead-letters:replay"]
    assert f"of any reason, {device}: 50 given back, 0 refused" in told


async def test_letters_are_counted_by_hour_and_reason(
    ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device, hour = unique("dev"), 3_600_000
    now = now_ms()
    for ago in (0, 0, 3, 30):
        refuse(writer, device, "s", b"{}", at=now - ago * hour)
    path = f"/v1/dead-letter-counts?device={device}"
    found = eventually(lambda: ops.client.get(path), lambda body: body["letters"] == 3)
    begun = [now - now % hour - 3 * hour, now - now % hour]
    assert [(one["at"], one["reasons"]) for one in found["hours"]] == [
        (begun[0], {"field_type": 1}),
        (begun[1], {"field_type": 2}),
    ]
    none = ops.client.get(f"{path}&reason=json").json()
    assert (none["letters"], none["hours"]) == (0, [])


async def test_a_request_that_says_not_how_far_is_refused(ops: Ops) -> None:
    wrong = ops.client.post("/v1/dead-letters:replay", json={"before": 1, "reasons": "x"})
    assert wrong.status_code == 422
    assert ops.client.post("/v1/dead-letters:replay", json={}).status_code == 422
