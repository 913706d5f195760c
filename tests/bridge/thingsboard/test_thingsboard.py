"""Devices and gateways of ThingsBoard, moved by changing an address: its own client library, a
real bridge, Kafka, sequencer and operations API.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mqtt5
import orjson
import pytest

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.mqtt import PacketReader
from tests.bridge.running import World, read, read_some, start
from tests.bridge.thingsboard.library import environment
from tests.ops.service import Ops, running
from tests.services import PATIENCE_S, Process, free_ports, port_is_open, wait_until

pytestmark = pytest.mark.services
FIRST_MS = 1_790_000_000_000
COUNT = 200


@dataclass
class Moved:
    """A process with the library."""

    process: subprocess.Popen[str]
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        """What it said."""
        found = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [json.loads(line) for line in found]

    async def says(self, what: str, count: int = 1) -> dict[str, Any]:
        """Wait for something, `count` times; the last of it."""
        await asyncio.to_thread(
            wait_until,
            lambda: (
                len([one for one in self.lines() if one["what"] == what]) >= count
                or self.process.poll() is not None
            ),
            f"{what}",
        )
        found = [one for one in self.lines() if one["what"] == what]
        assert len(found) >= count, self.log.read_text()[-3000:]
        return found[-1]

    def go_on(self) -> None:
        """Let it pass the next point at which it waits."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def moved(folder: Path, kind: str, port: int, token: str, last: int = COUNT) -> Iterator[Moved]:
    log = folder / f"{kind}.log"
    script = Path(__file__).with_name("moved.py")
    command = [sys.executable, str(script), kind, str(port), token, str(last)]
    with (
        log.open("w") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            text=True,
            env=environment(),
            cwd=folder,
        ) as process,
    ):
        try:
            yield Moved(process, log)
        finally:
            process.kill()


def bridge(here: World, name: str, more: str = "") -> int:
    """A bridge with the door; its port. `more`: lines of its table."""
    (port,) = free_ports(1)
    tokens = here.folder / "tokens"
    tokens.write_text(
        "token-of-boiler tb-boiler\ntoken-of-hall hall-gw gateway\ntoken-of-valve tb-valve\n"
    )
    table = f'[thingsboard]\nport = {port}\ntokens_file = "{tokens}"\nprefix = "tb-"\n{more}'
    here.bridge(name, mqtt=table)
    return port


def fields(here: World, device: str, stream: str) -> dict[int, dict[str, object]]:
    """By event time."""
    found = [
        record.decode(one.value() or b"") for one in read(here.config, topics.UP, device=device)
    ]
    return {
        one.frame.t[0]: {name: column[0] for name, column in one.frame.fields.items()}
        for one in found
        if one.stream == stream
    }


def asks(api: Ops, device: str, name: str, *args: str) -> str:
    answer = api.client.post(
        f"/v1/devices/{device}/commands", json={"name": name, "args": list(args)}
    )
    assert answer.status_code == 202, answer.text
    return f"/v1/devices/{device}/commands/{answer.json()['id']}"


async def done(api: Ops, path: str) -> dict[str, Any]:
    await asyncio.to_thread(
        wait_until, lambda: api.client.get(path).json()["state"] == "done", "it is done"
    )
    found: dict[str, Any] = api.client.get(path).json()["answer"]
    return found


async def test_a_device_sends_is_commanded_and_asks_although_the_bridge_is_killed(
    here: World, tmp_path: Path
) -> None:
    port = bridge(here, "b-tb")
    killed = here.parts[-1]
    here.sequencer()
    with (
        running(here.node.bootstrap, tmp_path) as api,
        moved(tmp_path, "device", port, "token-of-boiler") as one,
    ):
        await one.says("some sent")
        asked = await one.says("asked")
        assert asked["body"] == {"client": {"firmware": "1.2"}, "shared": {}}
        assert (await one.says("replied"))["body"] == {"error": "nobody here does 'unknown'"}
        killed.kill()
        start(killed)
        await one.says("all sent")
        await asyncio.to_thread(
            wait_until, lambda: len(fields(here, "tb-boiler", "thingsboard")) == COUNT, "all"
        )
        came = fields(here, "tb-boiler", "thingsboard")
        assert came == {
            FIRST_MS + n * 1000: {"temperature": 20.5 + n, "n": n} for n in range(COUNT)
        }
        (attributes,) = fields(here, "tb-boiler", "thingsboard_attributes").values()
        assert attributes == {"firmware": "1.2", "rooms": 3}
        await asyncio.to_thread(
            wait_until,
            lambda: api.client.get("/v1/devices/tb-boiler").json().get("state") == "online",
            "it is online",
        )
        answer = await done(api, asks(api, "tb-boiler", "open_valve", "5"))
        assert json.loads(answer["output"]) == {"valve": 5, "done": True}
        assert await one.says("rpc") == {"what": "rpc", "method": "open_valve", "params": 5}
        await done(api, asks(api, "tb-boiler", "set_attributes", '{"interval": 10}'))
        assert await one.says("shared") == {"what": "shared", "interval": 10}
        one.go_on()
        known = {"client": {"firmware": "1.2"}, "shared": {"interval": 10}}
        assert (await one.says("asked", 2))["body"] == known, "sent before the bridge was killed"
        one.go_on()
        await state_is(api, "tb-boiler", "offline")
        await told_once(api, port, killed)


async def state_is(api: Ops, device: str, state: str) -> None:
    await asyncio.to_thread(
        wait_until,
        lambda: api.client.get(f"/v1/devices/{device}").json().get("state") == state,
        f"{device} is {state}",
    )


async def next_is_a_check(api: Ops, one: Raw) -> bool:
    """Is nothing sent before a command that is new? Commands are sent in their order."""
    asks(api, "tb-valve", "check")
    found = await asyncio.to_thread(one.next_call)
    one.acknowledge(found)
    return orjson.loads(found.payload)["method"] == "check"


async def told_once(api: Ops, port: int, killed: Process) -> None:
    """A command that a device has is not sent again, one that it may not have is."""
    one = await asyncio.to_thread(Raw, port, "token-of-valve", listens=True)
    other = await asyncio.to_thread(Raw, port, "token-of-valve", "other")
    await state_is(api, "tb-valve", "online")
    path = asks(api, "tb-valve", "open_valve", "5")
    first = await asyncio.to_thread(one.next_call)
    one.close()
    # Two of a token: it is not gone while one of them is there.
    again = await asyncio.to_thread(Raw, port, "token-of-valve", listens=True)
    second = await asyncio.to_thread(again.next_call)
    assert second.topic == first.topic, "it was not acknowledged: the same number again"
    again.acknowledge(second)
    assert await next_is_a_check(api, again), "it has it"
    again.close()
    third = await asyncio.to_thread(Raw, port, "token-of-valve", listens=True)
    assert await next_is_a_check(api, third), "it had it on another connection"
    assert api.client.get("/v1/devices/tb-valve").json()["state"] == "online"
    other.close()
    killed.kill()
    start(killed)
    fourth = await asyncio.to_thread(Raw, port, "token-of-valve", listens=True)
    assert await next_is_a_check(api, fourth), "it had it before the bridge was killed"
    number = first.topic.rpartition("/")[2]
    fourth.publish(f"v1/devices/me/rpc/response/{number}", b'{"done":true}')
    assert json.loads((await done(api, path))["output"]) == {"done": True}
    third.close()
    fourth.close()
    await state_is(api, "tb-valve", "offline")


@pytest.mark.long
async def test_a_device_gets_its_token_by_a_code_and_then_its_firmware(
    here: World, tmp_path: Path
) -> None:
    image = bytes(range(256)) * 10 + b"end"
    folder = tmp_path / "firmware" / "boiler"
    folder.mkdir(parents=True)
    (folder / "2.0").write_bytes(image)
    passwords = tmp_path / "passwords"
    (web,) = free_ports(1)
    with running(here.node.bootstrap, tmp_path, f'password_file = "{passwords}"\n') as api:
        port = bridge(
            here,
            "b-tbnew",
            f'password_file = "{passwords}"\nenrol_url = "{api.url}"\n'
            f'firmware_dir = "{tmp_path / "firmware"}"\n'
            f'[http]\nport = {web}\npassword_file = "{passwords}"\nenrol_url = "{api.url}"\n',
        )
        door = here.parts[-1]
        here.sequencer()
        wanted = {"count": 2, "life_s": 3600, "prefix": "tb-"}
        answer = api.client.post("/v1/claims", json=wanted)
        code = answer.json()["code"]
        with moved(tmp_path, "new", port, code, web) as one:
            await one.says("sent by http")
            assert [*fields(here, "tb-web", "thingsboard").values()] == [{"degrees": 180}]
            versions = '{"fw_title":"boiler","fw_version":"2.0"}'
            await asks_by_http(api, one, versions)
            assert (await one.says("refused"))["answer"] is None
            given = (await one.says("provisioned"))["answer"]
            assert given["credentialsValue"].startswith("tb-new:")
            await one.says("connected")
            wrong = asks(api, "tb-new", "set_attributes", '{"fw_title":"boiler","fw_version":"9"}')
            await asyncio.to_thread(
                wait_until,
                lambda: api.client.get(wrong).json()["state"] == "refused",
                "there is no such version",
            )
            assert "expected the file TITLE/VERSION" in api.client.get(wrong).text
            await done(api, asks(api, "tb-new", "set_attributes", versions))
            got = await one.says("firmware")
            assert got["size"] == len(image)
            assert (got["sha256"], got["version"]) == (hashlib.sha256(image).hexdigest(), "2.0")
            by_http = await one.says("web firmware")
            assert by_http["sha256"] == hashlib.sha256(image).hexdigest()
            assert api.client.delete("/v1/credentials/tb-new").status_code == 204
            revoked = '"event":"thingsboard.revoked"'
            await asyncio.to_thread(
                wait_until, lambda: revoked in door.output(), "its token was taken back"
            )


async def asks_by_http(api: Ops, one: Moved, versions: str) -> None:
    """A device that speaks HTTP alone has attributes and commands."""
    known = await one.says("web attributes")
    assert known["body"] == {"client": {"serial": "W-1"}}
    answer = await done(api, asks(api, "tb-web", "open_valve", "5"))
    assert json.loads(answer["output"])["params"] == {"valve": 5}
    assert (await one.says("web rpc"))["method"] == "open_valve"
    await done(api, asks(api, "tb-web", "set_attributes", '{"interval": 10}'))
    await done(api, asks(api, "tb-web", "set_attributes", versions))


@pytest.mark.long
async def test_devices_behind_a_gateway_are_devices_with_commands_of_their_own(
    here: World, tmp_path: Path
) -> None:
    port = bridge(here, "b-tbgw")
    here.sequencer()
    with (
        running(here.node.bootstrap, tmp_path) as api,
        moved(tmp_path, "gateway", port, "token-of-hall") as one,
    ):
        await one.says("all sent")
        names = [
            next(device for device in devices(here) if device.startswith(f"tb-Press_{n}"))
            for n in await pressed(here)
        ]
        for n, name in enumerate(names):
            await read_some(here.config, topics.UP, name, COUNT // 2)
            strokes = fields(here, name, "thingsboard")
            assert strokes == {FIRST_MS + at * 1000: {"strokes": at} for at in range(n, COUNT, 2)}
        asked = await one.says("asked")
        assert (asked["body"]["device"], asked["body"]["value"]) == ("Press 1", "1")
        answer = await done(api, asks(api, names[1], "stop"))
        assert json.loads(answer["output"]) == {"of": "Press 2"}
        said = await one.says("rpc")
        assert (said["device"], said["data"]["method"]) == ("Press 2", "stop")
        one.go_on()
        await one.says("disconnected one")
        for name, state in zip(names, ("online", "offline"), strict=True):
            await asyncio.to_thread(
                wait_until,
                lambda name=name, state=state: (
                    api.client.get(f"/v1/devices/{name}").json().get("state") == state
                ),
                f"{name} is {state}",
            )


def devices(here: World) -> set[str]:
    return {(one.key() or b"").decode() for one in read(here.config, topics.UP)}


async def pressed(here: World) -> list[int]:
    """Numbers of the presses, once both have sent."""

    def are_there() -> bool:
        return len([one for one in devices(here) if one.startswith("tb-Press_")]) == 2

    await asyncio.to_thread(wait_until, are_there, "both have sent")
    return [1, 2]


@pytest.mark.long
async def test_who_shows_no_token_is_refused(here: World, tmp_path: Path) -> None:
    port = bridge(here, "b-tbno")
    with moved(tmp_path, "device", port, "another-token"):
        await asyncio.to_thread(
            wait_until,
            lambda: "thingsboard.denied" in here.parts[-1].output(),
            "it is refused",
        )


class Raw:
    """A device of few words, so that a test has both ends of its connections."""

    def __init__(
        self, port: int, token: str, client_id: str = "raw", *, listens: bool = False
    ) -> None:
        """`listens`: to commands and attributes, at QoS 1."""
        wait_until(lambda: port_is_open(port), "a bridge that has just started listens")
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        hello = mqtt5.ConnectPacket(client_id=client_id, username=token, keep_alive=60)
        self._socket.sendall(hello.write())
        self._packets = PacketReader()
        self._read: list[object] = []
        assert isinstance(self.next(), mqtt5.ConnAckPacket)
        if listens:
            qos = mqtt5.QoS.AT_LEAST_ONCE
            filters = [
                mqtt5.TopicFilter(one, max_qos=qos)
                for one in ("v1/devices/me/rpc/request/+", "v1/devices/me/attributes/response/+")
            ]
            self._socket.sendall(mqtt5.SubscribePacket(1, filters).write())
            assert isinstance(self.next(), mqtt5.SubAckPacket)

    def publish(self, topic: str, payload: bytes) -> None:
        """At QoS 0."""
        self._socket.sendall(mqtt5.PublishPacket(topic, payload).write())

    def next_call(self) -> mqtt5.PublishPacket:
        """The next command."""
        found = self.next()
        assert isinstance(found, mqtt5.PublishPacket), found
        return found

    def acknowledge(self, packet: mqtt5.PublishPacket) -> None:
        """Say that it came."""
        assert packet.packet_id is not None
        self._socket.sendall(mqtt5.PubAckPacket(packet.packet_id).write())

    def next(self) -> object:
        """The next packet; None once the other end has closed."""
        while not self._read:
            try:
                piece = self._socket.recv(65_536)
            except ConnectionResetError:
                return None
            if not piece:
                return None
            self._read += self._packets.feed(piece)
        return self._read.pop(0)

    def send(self, packet_id: int, *, is_again: bool) -> None:
        """A reading at QoS 1."""
        payload = orjson.dumps({"ts": FIRST_MS + packet_id, "values": {"n": packet_id}})
        topic, qos = "v1/devices/me/telemetry", mqtt5.QoS.AT_LEAST_ONCE
        packet = mqtt5.PublishPacket(
            topic, payload, qos=qos, packet_id=packet_id, duplicate=is_again
        )
        self._socket.sendall(packet.write())

    def close(self) -> None:
        self._socket.close()


@pytest.mark.long
async def test_what_comes_again_beside_a_connection_that_looks_alive_is_taken_once(
    here: World,
) -> None:
    """The device lost its connection and the answers on it; the bridge knows nothing of that."""
    port = bridge(here, "b-tbhalf")
    lost = await asyncio.to_thread(Raw, port, "token-of-boiler")
    for number in range(1, 6):
        lost.send(number, is_again=False)
    came = [await asyncio.to_thread(lost.next) for _ in range(5)]
    assert all(isinstance(one, mqtt5.PubAckPacket) for one in came)
    back = await asyncio.to_thread(Raw, port, "token-of-boiler")
    for number in range(1, 6):
        back.send(number, is_again=True)
    back.send(6, is_again=False)
    for _ in range(6):
        assert isinstance(await asyncio.to_thread(back.next), mqtt5.PubAckPacket)
    assert await asyncio.to_thread(lost.next) is None, "its place is taken"
    found = [
        record.decode(one.value() or b"").frame.fields["n"][0]
        for one in await read_some(here.config, topics.UP, "tb-boiler", 6)
        if FIRST_MS < record.decode(one.value() or b"").frame.t[0] <= FIRST_MS + 6
    ]
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    back.close()
    lost.close()


async def test_a_token_that_is_taken_back_ends_its_connection(here: World) -> None:
    port = bridge(here, "b-tbrevoked")
    one = await asyncio.to_thread(Raw, port, "token-of-boiler")
    one.send(1, is_again=False)
    assert isinstance(await asyncio.to_thread(one.next), mqtt5.PubAckPacket)
    (here.folder / "tokens").write_text("token-of-hall hall-gw gateway\n")
    assert await asyncio.to_thread(one.next) is None
    one.close()
