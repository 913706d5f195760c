"""Long names and long texts: no page is wider than its window, and no table is cut on a desk."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from playwright.async_api import expect

from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.device import DeviceSeen
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_screens import CUT, SCREENS
from tests.ops.service import Ops
from tests.ops.test_app import eventually

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]
NAME_CHARS = 60
TEXT = "What a newcomer writes who wants to be understood by everybody, at some length. " * 4
DESKS = (1280, 1440, 3840)
TOPS = """() => new Set(["#top > form[role=search]", ".pill", ".who", "#leave", "#theme"]
  .map((one) => document.querySelector(one).getBoundingClientRect())
  .map(({ top, bottom }) => Math.round((top + bottom) / 16))).size"""
"""Rows of the top line."""


def long_name(unique: Callable[[str], str]) -> str:
    """As long as a name gets, nearly, and in one word."""
    return unique("a" + "very" * 9).ljust(NAME_CHARS, "z")


def fill(ops: Ops, writer: Writer, name: str, device: str) -> None:
    """A stream, a device, a letter, a board and a rule with long names and texts."""
    now = time.time_ns() // 1_000_000
    fields = {f"field_number_{number}": FieldInfo(type=FieldType.NUMBER) for number in range(12)}
    stream = Stream(name=name, fields=fields, description=TEXT[:300])
    writer.put(topics.STREAMS, name, stream.model_dump_json().encode())
    seen = DeviceSeen(device=device, last_seen=now, skew_ms=0, records=1, streams={name: 1})
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    letter = DeadLetter(
        reason=RejectReason.JSON, detail=TEXT, topic="t", part="bridge-1", received_at=now
    )
    writer.put(topics.DEAD, device, b"{" + b"x" * 300, letter.headers())
    eventually(lambda: ops.client.get(f"/v1/streams/{name}"))
    board = {"title": TEXT[:80], "cards": []}
    ops.client.put(f"/v1/boards/{name}", json=board).raise_for_status()
    rule = {"text": TEXT[:300], "severity": "warning", "stream": name, "silent_s": 3600}
    ops.client.put(f"/v1/alerts/{name}", json=rule).raise_for_status()
    note = {"note": TEXT[:300], "groups": [name]}
    ops.client.put(f"/v1/devices/{device}/note", json=note).raise_for_status()
    ops.client.post("/v1/claims", json={"prefix": name}).raise_for_status()


async def test_nothing_is_cut_by_long_names_and_texts(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    page = visit.page
    name, device = long_name(unique), long_name(unique)
    fill(ops, writer, name, device)
    own = (f"#/devices/{device}", f"#/streams/{name}", f"#/boards/{name}", f"#/alerts/{name}")
    found = []
    for address in (*SCREENS, "#/deliveries", *own):
        await visit.open(address)
        await expect(page.get_by_text("loading…")).to_have_count(0)
        for width in (390, 768, *DESKS):
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("document.documentElement.scrollWidth")
            cut = await page.evaluate(CUT) if width != 768 else []
            rows = await page.evaluate(TOPS) if width == 390 else 1
            if wide > width or cut or rows > 2:
                found.append((address, width, wide, cut, rows))
    await page.set_viewport_size({"width": 1440, "height": 900})
    for path in (f"/v1/boards/{name}", f"/v1/alerts/{name}", f"/v1/devices/{device}"):
        ops.client.delete(path)
    assert found == [], "\n".join(map(str, found))
