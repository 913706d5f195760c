"""Clients, traces, problems, letters, devices and streams on the operations pages, by role and
name."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import expect

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus
from tests.access.world import key_file, open_stream, server
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.service import Ops
from tests.ops.test_app import declare, eventually
from tests.services import Kafka

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_who_reads_is_shown_and_ended(
    visit: Visit, kafka: Kafka, tmp_path: Path, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream = unique("s")
    declare(writer, stream)
    token = writer.received("dev", stream, 1)
    writer.sequenced("dev", stream, 1, token)
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    with server(tmp_path, config, key_file(tmp_path)) as access:
        async with open_stream(access.url, stream, where="device = 'dev'") as opened:
            await opened.until_cursor()
            await visit.open(f"#/clients?stream={stream}")
            row = visit.page.get_by_role("row").filter(has_text=stream)
            await expect(row).to_contain_text("device = 'dev'")
            await expect(row).to_contain_text("event stream")
            visit.page.on("dialog", lambda dialog: dialog.accept("until noon"))
            await row.get_by_role("button", name="End").click()
            (event,) = await opened.take(1, kinds=frozenset({"end"}))
            assert "until noon" in event.data
            await expect(visit.page.get_by_text("Nobody reads here now")).to_be_visible()


async def test_a_letter_is_mended_checked_and_given_back(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, device = unique("s"), unique("dev")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    letter = DeadLetter(
        reason=RejectReason.JSON,
        detail="not JSON: char 12",
        topic=f"ew/v1/{device}/up/{stream}",
        part="bridge-1",
        received_at=now_ms(),
    )
    _, offset = writer.put(topics.DEAD, device, b'{"speed": 40,', letter.headers())
    await visit.open(f"#/letters/{offset}")
    payload = visit.page.get_by_label("Payload")
    await expect(payload).to_have_value('{"speed": 40,')
    await expect(visit.page.get_by_text("The error is at character 12")).to_be_visible()
    await visit.page.get_by_role("button", name="Check").click()
    await expect(visit.page.locator(".fault")).not_to_be_empty()
    await payload.fill('{"speed": 40}')
    await visit.page.get_by_role("button", name="Check").click()
    await expect(visit.page.get_by_text("It would be accepted")).to_be_visible()
    visit.page.on("dialog", lambda dialog: dialog.accept())
    await visit.page.get_by_role("button", name="Give back mended").click()
    await expect(visit.page.get_by_text(f"given back to {stream}")).to_be_visible()
    audit = ops.client.get("/v1/audit").json()["items"]
    path = f"/v1/dead-letters/{offset}/replay"
    assert [one["detail"] for one in audit if one["path"] == path] == ["with another payload"]


async def test_a_frame_is_followed_by_its_token(
    visit: Visit, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, device = unique("s"), unique("dev")
    declare(writer, stream)
    token = writer.received(device, stream, 1)
    writer.sequenced(device, stream, 1, token)
    await visit.open("#/trace")
    await visit.page.get_by_label("Token of an acknowledgement").fill(str(token))
    await visit.page.get_by_role("button", name="Follow it").click()
    way = visit.page.get_by_role("list", name="Its way")
    await expect(way).to_contain_text(device)
    await expect(way).to_contain_text("on its stream, for everybody to read")


async def test_a_reading_is_followed_by_its_device_and_number(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, device = unique("s"), unique("dev")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    token = writer.received(device, stream, 7)
    writer.sequenced(device, stream, 7, token)
    await visit.open("#/trace")
    form = visit.page.get_by_role("form", name="By device and number")
    await form.get_by_label("device").fill(device)
    await form.get_by_label("stream").fill(stream)
    await form.get_by_label("number").fill("7000")
    await form.get_by_role("button", name="Find it").click()
    await expect(form.get_by_role("alert")).to_contain_text(f"no reading 7000 of '{device}'")
    await form.get_by_label("number").fill("7")
    await form.get_by_role("button", name="Find it").click()
    way = visit.page.get_by_role("list", name="Its way")
    await expect(way).to_contain_text("on its stream, for everybody to read")
    assert await visit.page.evaluate("location.hash") == f"#/trace?token={token}"
    path = f"/v1/acks?device={device}&stream={stream}&seq=7"
    assert ops.client.get(path).json()["token"] == str(token)
    assert ops.client.get(f"{path}&epoch=99").status_code == 404
    assert ops.client.get(path.replace(stream, "never_there")).status_code == 404


async def test_devices_are_chosen_by_what_is_wrong_and_shown_with_their_readings(
    visit: Visit, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, device = unique("s"), unique("dev")
    declare(writer, stream)
    status = DeviceStatus(
        device=device, state=DeviceState.ONLINE, received_at=now_ms(), sent_at=now_ms(),
        lost_readings=7, version="9.8.7", oldest_unacked_s=120.0,
    )  # fmt: skip
    writer.put(topics.DEVICES, f"{device}|status", status.to_json())
    seen = DeviceSeen(device=device, last_seen=now_ms(), skew_ms=0, records=1, streams={stream: 1})
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    token = writer.received(device, stream, 1)
    writer.sequenced(device, stream, 1, token)
    await visit.open(f"#/devices?has=lost&q={device}")
    row = visit.page.get_by_role("row").filter(has_text=device)
    await expect(row).to_contain_text("9.8.7")
    await visit.open(f"#/devices?has=plain&q={device}")
    await expect(visit.page.get_by_text("No device here")).to_be_visible()
    await visit.open("#/")
    await expect(visit.page.get_by_role("link", name=device)).to_be_visible()
    await visit.open(f"#/devices/{device}")
    await expect(visit.page.get_by_text("agent 9.8.7")).to_be_visible()
    await expect(visit.page.get_by_text("7 readings")).to_be_visible()
    latest = visit.page.get_by_role("region", name=f"Latest of {stream}")
    await expect(latest.get_by_role("cell").first).to_be_visible()
    await visit.page.set_viewport_size({"width": 390, "height": 844})
    assert await latest.evaluate("one => one.scrollWidth <= one.clientWidth"), "nothing is cut"
    await visit.page.set_viewport_size({"width": 1440, "height": 900})
    told = visit.page.get_by_role("link", name="when it is silent")
    await expect(told).to_have_attribute("href", re.compile(f"kind=silence&device={device}$"))
    writer.put(topics.DEVICES, f"{device}|status", None)
    writer.put(topics.DEVICES, f"{device}|seen", None)
