"""What one client of ThingsBoard costs is bounded, however it behaves."""

from __future__ import annotations

import gc
import logging
import weakref
from contextlib import AsyncExitStack
from pathlib import Path

import mqtt5
import orjson
import pytest

from edgewake.cloud.bridge.thingsboard import client as clients
from edgewake.cloud.bridge.thingsboard import door as module
from tests.bridge.test_outbox import row, sent
from tests.bridge.thingsboard.test_hostile_clients import ASKED, TOPIC, here
from tests.feeds import eventually

WHOLE = mqtt5.PublishPacket("v2/fw/request/1/chunk/0", b"").write()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["left", "replaced"])
async def test_who_connects_again_and_again_keeps_no_connection_of_before(
    tmp_path: Path, is_replaced: bool
) -> None:
    made: list[weakref.ref[clients.Client]] = []

    def are_gone() -> bool:
        gc.collect()
        return sum(one() is not None for one in made) <= 2

    async with here(tmp_path) as site, AsyncExitStack() as stack:
        for n in range(6):
            client = await stack.enter_async_context(site.client("QUIET"))
            reading = orjson.dumps({"n": n})
            client.writer.write(
                mqtt5.PublishPacket(
                    "v1/devices/me/telemetry", reading, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=n + 1
                ).write()
            )
            await client.hears(mqtt5.PubAckPacket)
            made.append(weakref.ref(site.door._present.of("quiet")[0]))
            if not is_replaced:
                client.writer.transport.abort()
                await eventually(lambda: not site.door.clients, "it has left")
        await eventually(are_gone, "the last one and the one before are all that is kept")


async def test_commands_that_a_client_does_not_acknowledge_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "IN_PACKETS_MAX", 10, raising=False)
    async with here(tmp_path) as site, site.client("QUIET") as quiet:
        box = site.door._outbox
        box.is_loaded = True
        for n in range(25):
            box.follow(*row("quiet", f"c{n:02}"))
        await quiet.listens("v1/devices/me/rpc/request/+", mqtt5.QoS.AT_LEAST_ONCE)
        assert len(sent(box)) == 15, "these find no room with it"
        first = await quiet.told(10)
        for one in first[:4]:
            assert one.packet_id is not None
            quiet.writer.write(mqtt5.PubAckPacket(one.packet_id).write())
        await quiet.is_heard()
        assert sent(box) == [], "it has more than half"
        assert first[4].packet_id is not None
        quiet.writer.write(mqtt5.PubAckPacket(first[4].packet_id).write())
        await quiet.is_heard()
        assert len(sent(box)) == 10
        assert len({one.topic for one in first + await quiet.told(5)}) == 15, "the next ones"


async def test_what_a_client_has_not_read_that_is_cut_off_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "DRAIN_S", 0.2)
    async with here(tmp_path) as site, site.client("DEAF") as deaf:
        await deaf.listens(TOPIC + "/#")
        transport = site.door._present.of("deaf")[0].writer.transport
        deaf.says(TOPIC, {"a": "x" * 14_000})
        for _ in range(ASKED):
            deaf.says(TOPIC + "/request/1", {"clientKeys": "a"})
        await eventually(lambda: not site.door.clients, "it is cut off")
        await eventually(lambda: not transport.get_write_buffer_size(), "nothing is kept for it")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Firmware that no socket's buffer holds."""
    made = tmp_path / "firmware" / "boiler"
    made.mkdir(parents=True)
    with (made / "2.0").open("wb") as file:
        file.truncate(16 << 20)
    return made.parent


@pytest.mark.parametrize(
    ("token", "turns", "why"),
    [("DEAF", 4, "while another is sent with its token"), ("QUIET", 1, "no turn within")],
)
async def test_who_reads_no_whole_file_holds_up_no_other(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    token: str,
    turns: int,
    why: str,
) -> None:
    """The other one hears at once, or soon, that there is no turn for it: it asks again."""
    monkeypatch.setattr(clients, "DRAIN_S", 0.2)
    monkeypatch.setattr(module, "WHOLE_FILES_MAX", turns)
    caplog.set_level(logging.INFO, "edgewake.bridge.thingsboard")
    async with here(tmp_path, firmware_dir=folder) as site:
        await site.door.look()
        for name in ("deaf", "quiet"):
            named = {"fw_title": "boiler", "fw_version": "2.0"}
            site.door.memory.keep(name, name, "shared", named)
        async with site.client("DEAF", "a") as deaf, site.client(token, "b") as other:
            deaf.writer.write(WHOLE)
            whole = site.bridge.account("other").bytes
            await eventually(lambda: site.waiting("deaf") > 1 << 20, "it is sent the file")
            assert site.bridge.account("deaf").bytes <= whole - (16 << 20), "at its expense"
            other.writer.write(WHOLE)
            await other.is_heard()
            assert why in caplog.text
        await eventually(lambda: not site.door.clients, "all have left")
        async with site.client("QUIET") as quiet:
            quiet.writer.write(WHOLE)
            await eventually(lambda: site.waiting("quiet") > 1 << 20, "the turns came back")


async def test_who_has_no_token_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROVISION_S", 0.2, raising=False)
    more = {"enrol_url": "http://127.0.0.1:9", "password_file": tmp_path / "none"}
    async with here(tmp_path, **more) as site, site.client("QUIET") as quiet:
        async with site.client("provision") as asks:
            await asks.ended()
        await quiet.is_heard()
