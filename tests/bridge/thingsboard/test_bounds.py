"""What one client of ThingsBoard costs is bounded, however it behaves."""

from __future__ import annotations

import asyncio
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
from edgewake.cloud.bridge.web import provisioning
from edgewake.cloud.client_share import Bound
from tests.bridge.test_outbox import row, sent
from tests.bridge.thingsboard.test_hostile_clients import ASKED, TOPIC, Client, here
from tests.feeds import eventually
from tests.services import PATIENCE_S

ASKED_AT_ONCE = 100
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


async def test_an_answer_that_is_not_final_is_asked_for_again(tmp_path: Path) -> None:
    """Control: the final one is asked for once, or a connection could try many codes."""
    given = orjson.dumps({"items": [{"device": "new", "password": "p"}]})
    answers = [b"503 Not Now", b"200 OK"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        await reader.readexactly(size)
        line = b"HTTP/1.1 " + answers.pop(0)
        writer.write(b"%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (line, len(given)))
        writer.write(given)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    more = {"enrol_url": f"http://127.0.0.1:{port}", "password_file": tmp_path / "none"}
    async with server, here(tmp_path, **more) as site, site.client("provision") as asks:
        await asks.listens(provisioning.RESPONSE)
        said = [await _provisioned(asks) for _ in range(3)]
    assert said == ["FAILURE", "SUCCESS", "SUCCESS"]
    assert answers == []


async def _provisioned(client: Client) -> str:
    client.says(provisioning.REQUEST, {"deviceName": "new", "provisionDeviceSecret": "code"})
    (told,) = await client.told(1)
    return str(orjson.loads(told.payload)["status"])


async def test_a_request_waits_for_its_turn_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provisioning, "ANSWER_S", 0.1)
    asks = provisioning.Provisioning("http://127.0.0.1:9", None)
    for _ in range(provisioning.AT_ONCE_MAX):
        await asks._turns.acquire()
    async with asyncio.timeout(PATIENCE_S):
        answer = await asks.answer({"deviceName": "new", "provisionDeviceSecret": "code"}, "here")
    assert orjson.loads(answer)["status"] == "FAILURE"


async def test_who_asks_for_tokens_without_end_leaves_turns_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may ask. One turn is left, however many one client asks for."""
    monkeypatch.setattr(provisioning, "ANSWER_S", PATIENCE_S)
    asking = {"deviceName": "new", "provisionDeviceSecret": "code"}
    silent = asyncio.Event()
    came: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        came.append(await reader.readexactly(length))
        if b"hostile" in came[-1]:
            await silent.wait()
        else:
            body = b'{"items": [{"device": "new", "password": "p"}]}'
            head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % len(body) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asks = provisioning.Provisioning(url, None)
        hostile = [
            asyncio.create_task(asks.answer(asking | {"deviceName": "hostile"}, "203.0.113.1"))
            for _ in range(ASKED_AT_ONCE)
        ]
        await eventually(lambda: len(came) >= provisioning.AT_ONCE_MAX - 1, "it has its turns")
        answer = await asks.answer(asking, "198.51.100.7")
        assert orjson.loads(answer)["status"] == "SUCCESS"
        at_once = [one for one in hostile if one.done()]
        own = Bound("", provisioning.WAITING_MAX).own_max
        assert len(at_once) == ASKED_AT_ONCE - own, "these are too many of one"
        assert {one.result() for one in at_once} == {provisioning.AGAIN}
        silent.set()
        await asyncio.gather(*hostile)
