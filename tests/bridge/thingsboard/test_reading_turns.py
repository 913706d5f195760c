"""Large messages wait for their turn to be read, and what happens meanwhile counts."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mqtt5
import orjson
import pytest

from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.thingsboard import client as clients
from tests.bridge.thingsboard.test_hostile_clients import TOPIC, Here, here
from tests.feeds import eventually
from tests.services import PATIENCE_S

LARGE = {"text": "x" * (2 * clients.ASIDE_BYTES)}
TELEMETRY = "v1/devices/me/telemetry"


class Slow:
    """Reads of large messages, which end when they may."""

    def __init__(self, site: Here, patch: pytest.MonkeyPatch) -> None:
        self.begun: Counter[str] = Counter()
        """By device; empty: a gateway's."""
        self.may_end = threading.Event()
        self.holds: str | None = None
        """Whose end waits for that."""
        parts_of = site.door.mapper.parts_of

        def slow(
            packet: mqtt5.PublishPacket, now_ms: int, *, device: str = "", **more: Any
        ) -> list[Part]:
            if len(packet.payload) > clients.ASIDE_BYTES:
                self.begun[device] += 1
                if device == self.holds:
                    assert self.may_end.wait(PATIENCE_S)
            return parts_of(packet, now_ms, device=device, **more)

        patch.setattr(site.door.mapper, "parts_of", slow)


def published(
    topic: str, body: object, *, packet_id: int = 1, is_again: bool = False
) -> mqtt5.PublishPacket:
    """A message at QoS 1."""
    qos, said = mqtt5.QoS.AT_LEAST_ONCE, orjson.dumps(body)
    return mqtt5.PublishPacket(topic, said, qos=qos, packet_id=packet_id, duplicate=is_again)


@pytest.mark.parametrize("cause", ["share", "full", "control"])
async def test_what_waits_for_a_turn_is_not_read_once_there_is_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """All passed while there was room. Control: there still is, and all are read."""
    async with here(tmp_path) as site, AsyncExitStack() as stack:
        slow = Slow(site, monkeypatch)
        slow.holds = "deaf"
        account = site.bridge.account("deaf")
        whole_s = account.busy_s
        loud = [await stack.enter_async_context(site.client("DEAF", f"id-{n}")) for n in range(6)]
        quiet = await stack.enter_async_context(site.client("QUIET"))
        for one in loud:
            one.says(TELEMETRY, LARGE)
        await eventually(lambda: slow.begun["deaf"] >= 1, "one is read")
        await eventually(lambda: all(one.reading.locked() for one in of(site)), "all were heard")
        if cause == "share":
            account.busy_s, account.at_s = -1e6, site.door.clock.monotonic_s()
        monkeypatch.setattr(site.bridge, "is_full", cause == "full")
        slow.may_end.set()
        if cause == "share":
            quiet.writer.write(published(TELEMETRY, LARGE).write())
            await quiet.hears(mqtt5.PubAckPacket)
        if cause != "control":
            await eventually(lambda: site.bridge.taken.count("deaf") > 6, "the first is taken")
            await eventually(lambda: not site.door.readers.locked(), "no turn is held")
            assert slow.begun["deaf"] == 1
        account.busy_s = whole_s
        monkeypatch.setattr(site.bridge, "is_full", False)
        await eventually(lambda: slow.begun["deaf"] == 6, "there is room again")
        for one in loud:
            await one.is_heard()


def of(site: Here) -> list[clients.Client]:
    """The connections of the loud device."""
    return list(site.door._present.of("deaf"))


async def test_one_device_has_one_turn_and_another_one_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with here(tmp_path) as site, AsyncExitStack() as stack:
        slow = Slow(site, monkeypatch)
        slow.holds = "deaf"
        loud = [await stack.enter_async_context(site.client("DEAF", f"id-{n}")) for n in range(4)]
        quiet = await stack.enter_async_context(site.client("QUIET"))
        for one in loud:
            one.says(TELEMETRY, LARGE)
        await eventually(lambda: all(one.reading.locked() for one in of(site)), "all were heard")
        quiet.writer.write(published(TELEMETRY, LARGE).write())
        await quiet.hears(mqtt5.PubAckPacket)
        assert slow.begun == {"deaf": 1, "quiet": 1}
        slow.may_end.set()
        for one in loud:
            await one.is_heard()
        assert slow.begun["deaf"] == 4
        assert not site.door.reading, "nobody waits any more"


@pytest.mark.parametrize("comes_again", [True, False], ids=["sent again", "not sent again yet"])
async def test_what_a_gateway_said_before_it_connected_again_holds_for_its_new_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_again: bool
) -> None:
    """Its link broke while its message was read; the message that comes again is a repeat."""
    topic = "v1/gateway/attributes"
    said = {"oven": {"serial": "A-1", **LARGE}}
    async with here(tmp_path) as site, AsyncExitStack() as stack:
        slow = Slow(site, monkeypatch)
        slow.holds = ""
        lost = await stack.enter_async_context(site.client("GATE"))
        lost.writer.write(published(topic, said).write())
        await eventually(lambda: slow.begun[""] == 1, "it is read")
        back = await stack.enter_async_context(site.client("GATE"))
        repeat = published(topic, said, is_again=True).write()
        if comes_again:
            back.writer.write(repeat)
        slow.may_end.set()
        await eventually(lambda: bool(site.door.memory.of("oven").client), "it is kept")
        if not comes_again:
            back.writer.write(repeat)
        await back.hears(mqtt5.PubAckPacket)
        assert slow.begun[""] == 1, "its readings are taken once"
        assert site.door.memory.of("oven").client["serial"] == "A-1"
        (standing,) = site.door._present.of("oven")
        assert standing.things == {"oven": "oven"}
        assert not standing.is_replaced, "commands reach it"


async def test_what_a_device_says_on_its_new_connection_is_newer_than_what_is_read_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with here(tmp_path) as site, AsyncExitStack() as stack:
        slow = Slow(site, monkeypatch)
        slow.holds = "deaf"
        lost = await stack.enter_async_context(site.client("DEAF"))
        lost.writer.write(published(TOPIC, {"mode": "old", "serial": 7, **LARGE}).write())
        await eventually(lambda: slow.begun["deaf"] == 1, "it is read")
        back = await stack.enter_async_context(site.client("DEAF"))
        back.writer.write(published(TOPIC, {"mode": "new"}, packet_id=2).write())
        (standing,) = of(site)
        await eventually(standing.reading.locked, "it waits for what is older")
        slow.may_end.set()
        await back.hears(mqtt5.PubAckPacket)
        kept = site.door.memory.of("deaf").client
        assert (kept["mode"], kept["serial"]) == ("new", 7)
