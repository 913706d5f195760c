"""ThingsBoard's HTTP device API but for readings: real requests to a door with a bridge that notes
what it is given.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import mqtt5
import orjson
import pytest

from edgewake.cloud.bridge import service
from edgewake.cloud.bridge.admission.allowance import Account, Allowance, DeviceConfig
from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard import device_api, words
from edgewake.cloud.bridge.thingsboard.device_api import DeviceApi
from edgewake.cloud.bridge.thingsboard.firmware import Firmware
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.cloud.bridge.web import door as web_door
from edgewake.cloud.bridge.web.door import ASIDE_BYTES, RETRY_S, Door
from edgewake.cloud.bridge.web.requests import Asked, Requests
from edgewake.cloud.client_share import Bound, Clients
from edgewake.protocol.clock import FakeClock, SystemClock
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.down_row import DownRow, key_of
from edgewake.protocol.downlink.downlink import DownKind
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.maps.device_tokens import DeviceTokens
from edgewake.protocol.maps.http_forms import Head, unpacked
from edgewake.protocol.maps.map_file import MapFile
from tests.bridge.thingsboard.alone import away, bridge
from tests.feeds import eventually
from tests.services import PATIENCE_S, free_ports, port_is_open

DATA = bytes(range(256)) * 5
HOUR_MS = 3_600_000


class Given:
    """A bridge with room for everything; Kafka confirms at once, unless it is away."""

    is_full = False

    def __init__(self) -> None:
        self._allowance = Allowance(DeviceConfig())
        self.packets: list[mqtt5.PublishPacket] = []
        self.is_away = False

    def account(self, payer: str, *, is_named: bool = False) -> Account:
        return self._allowance.account(payer, 0)

    def wait_s(self, device: str) -> float:
        return 0.0

    def take(
        self, parts: Sequence[Part], payer: str, on_settled: Callable[[], None], *, is_named: bool
    ) -> Awaited:
        for one in parts:
            assert isinstance(one.packet, mqtt5.PublishPacket)
            assert one.refusal is None, one.refusal
            self.packets.append(one.packet)
        if not self.is_away:
            on_settled()
        return Awaited(0, on_settled)

    def answers(self, device: str) -> list[tuple[str, str, Any]]:
        """Id, state and output or detail of what a device has answered."""
        found = [
            orjson.loads(one.payload)
            for one in self.packets
            if one.topic == f"ew/v1/{device}/up/down_answers"
        ]
        return [(one["id"], one["state"], one.get("output") or one.get("detail")) for one in found]


class Here:
    """A door, and an operations API that asks for commands."""

    def __init__(self, folder: Path) -> None:
        tokens = folder / "tokens"
        tokens.write_text("T-BOILER boiler\nT-OVEN oven\nT-HALL hall gateway\n")
        tokens.chmod(0o600)
        (folder / "fw" / "heater").mkdir(parents=True)
        (folder / "fw" / "heater" / "2.0").write_bytes(DATA)
        self.firmware = firmware = Firmware(folder / "fw")
        firmware.look()
        self.bridge, self.outbox = Given(), Outbox()
        self.memory, self.clock = Memory("one", "bridge-1"), SystemClock()
        self.outbox.is_loaded = True
        self.looked = asyncio.Event()
        self.looked.set()
        api = DeviceApi(
            self.bridge, self.outbox, self.memory, firmware, self.looked, self.clock, "web-"
        )
        mapper = Mapper(compile_presets(["thingsboard"], needs_names=True), "web-")
        self.door = Door(
            Requests(mapper, DeviceTokens(tokens), "web-", 1 << 20),
            self.bridge,
            Counter(),
            body_bytes_max=1 << 20,
            bodies=Bound("bytes", 64 << 20, 1.0),
            clients=Clients(()),
            clock=self.clock,
            questions=api,
        )
        transport = httpx.ASGITransport(self.door)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://bridge/api/v1")

    def command(self, device: str, ident: str, name: str, *args: str) -> None:
        """Somebody asks a device for something."""
        asked = Command(id=ident, name=name, args=args)
        now_ms = self.clock.now_ms()
        row = DownRow(
            device=device,
            kind=DownKind.COMMAND,
            payload=orjson.dumps({"id": ident, "name": name, "args": args}).decode(),
            asked_at=now_ms,
            expires_at=now_ms + HOUR_MS,
            asked_by="test",
        )
        assert row.message == asked
        self.outbox.follow(key_of(device, ident), row.model_dump_json().encode())
        for _ in self.outbox.due(now_ms):
            """As the bridge does; nobody is at the broker."""

    async def get(self, path: str, **query: str) -> httpx.Response:
        async with asyncio.timeout(PATIENCE_S):
            return await self.http.get(path, params=query)

    async def waits(self, path: str, **query: str) -> asyncio.Task[httpx.Response]:
        """A request that waits now."""
        before = self.waiting
        asked = asyncio.create_task(self.get(path, **query))
        async with asyncio.timeout(PATIENCE_S):
            while self.waiting == before:
                await asyncio.sleep(0.001)
        return asked

    @property
    def waiting(self) -> int:
        (way,) = self.outbox.ways
        api = getattr(way, "__self__")  # noqa: B009
        return sum(map(len, api._waiting.values()))


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


async def test_a_device_is_told_its_attributes_and_nobody_elses(here: Here) -> None:
    sent = await here.http.post("/T-BOILER/attributes", json={"serial": "A-1", "rooms": 3})
    assert (sent.status_code, sent.content) == (200, b"")
    here.memory.keep("boiler", "boiler", "shared", {"interval": 10, "mode": "eco"})
    both = {"client": {"serial": "A-1", "rooms": 3}, "shared": {"interval": 10, "mode": "eco"}}
    assert (await here.get("/T-BOILER/attributes")).json() == both
    some = await here.get("/T-BOILER/attributes", clientKeys="serial", sharedKeys="mode,none")
    assert some.json() == {"client": {"serial": "A-1"}, "shared": {"mode": "eco"}}
    each = await here.http.get("/T-BOILER/attributes?sharedKeys=mode&sharedKeys=interval")
    assert each.json() == {"shared": {"interval": 10, "mode": "eco"}}, "as the library asks"
    assert (await here.get("/T-OVEN/attributes")).json() == {}
    assert (await here.get("/T-OTHER/attributes")).status_code == 401
    assert (await here.get("/T-BOILER/telemetry")).status_code == 405
    assert (await here.http.put("/T-BOILER/rpc")).status_code == 405


async def test_a_command_waits_for_who_asks_and_is_given_once(here: Here) -> None:
    here.command("boiler", "c-1", "open_valve", "5")
    here.command("oven", "c-2", "bake")
    found = (await here.get("/T-BOILER/rpc")).json()
    number = words.number_of("c-1")
    assert found == {"id": number, "method": "open_valve", "params": 5}
    assert (await here.get("/T-BOILER/rpc", timeout="20")).status_code == 408, "it has it"
    answer = await here.http.post(f"/T-BOILER/rpc/{number}", json={"done": True})
    assert answer.status_code == 200
    assert here.bridge.answers("boiler") == [("c-1", "done", '{"done":true}')]
    late = await here.http.post("/T-BOILER/rpc/7", json={})
    assert late.status_code == 200, "nothing that a device can mend"
    assert len(here.bridge.answers("boiler")) == 1
    assert here.bridge.answers("oven") == []


async def test_who_waits_for_a_command_hears_it_when_it_is_asked_for(here: Here) -> None:
    first, other = await here.waits("/T-BOILER/rpc"), await here.waits("/T-OVEN/rpc")
    here.command("boiler", "c-1", "open_valve")
    async with asyncio.timeout(PATIENCE_S):
        assert (await first).json()["method"] == "open_valve"
    assert not other.done()
    here.command("oven", "c-2", "bake", '{"at":180}', "x")
    async with asyncio.timeout(PATIENCE_S):
        assert (await other).json()["params"] == [{"at": 180}, "x"]
    assert here.waiting == 0


async def test_of_many_that_wait_for_one_device_the_oldest_comes_again(here: Here) -> None:
    most = device_api.WAITING_MAX
    asked = [await here.waits("/T-BOILER/rpc") for _ in range(most)]
    last = asyncio.create_task(here.get("/T-BOILER/rpc"))
    async with asyncio.timeout(PATIENCE_S):
        assert (await asked[0]).status_code == 408
    here.command("boiler", "c-1", "open_valve")
    async with asyncio.timeout(PATIENCE_S):
        assert (await asked[1]).status_code == 200
    for one in (*asked[2:], last):
        one.cancel()
    await asyncio.gather(*asked[2:], last, return_exceptions=True)
    assert here.waiting == 0


async def test_what_is_given_to_a_client_that_has_left_waits_for_the_next_one(here: Here) -> None:
    left = asyncio.Event()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append("head")
            return {"type": "http.request", "body": b"", "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    path = b"/api/v1/T-BOILER/rpc"
    scope = {"type": "http", "method": "GET", "path": path.decode(), "raw_path": path}
    scope |= {"query_string": b"", "headers": [], "client": ("10.0.0.7", 1)}  # type: ignore[dict-item]
    asking = asyncio.create_task(here.door(scope, receive, send))  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE_S):
        while not here.waiting:
            await asyncio.sleep(0.001)
    left.set()
    here.command("boiler", "c-1", "open_valve")
    async with asyncio.timeout(PATIENCE_S):
        await asking
        assert (await here.get("/T-BOILER/rpc")).json()["method"] == "open_valve"


async def test_shared_attributes_are_told_to_who_waits_and_set_by_who_asks(here: Here) -> None:
    waiting = await here.waits("/T-BOILER/attributes/updates")
    here.command("boiler", "s-1", "set_attributes", '{"interval": 10}')
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting).json() == {"interval": 10}
    again = await here.get("/T-BOILER/attributes/updates", timeout="20")
    assert again.status_code == 408
    here.command("boiler", "s-2", "set_attributes", '{"mode": "eco"}')
    some = await here.get("/T-BOILER/attributes", sharedKeys="interval")
    assert some.json() == {"shared": {"interval": 10}}
    assert [one[0] for one in here.bridge.answers("boiler")] == ["s-1"], "it knows of no mode yet"
    both = await here.get("/T-BOILER/attributes", sharedKeys="mode,interval")
    assert both.json() == {"shared": {"interval": 10, "mode": "eco"}}
    states = [(ident, state) for ident, state, _ in here.bridge.answers("boiler")]
    assert states == [("s-1", "done"), ("s-2", "done")]


async def test_firmware_comes_whole_and_in_pieces(here: Here) -> None:
    named = {"title": "heater", "version": "2.0"}
    none = await here.get("/T-BOILER/firmware", **named)
    assert none.status_code == 404
    assert "fw_title and fw_version say otherwise" in none.json()["error"]
    offer = '{"fw_title": "heater", "fw_version": "%s"}'
    here.command("boiler", "s-0", "set_attributes", offer % "9")
    here.command("boiler", "s-1", "set_attributes", offer % "2.0")
    shared = (await here.get("/T-BOILER/attributes")).json()["shared"]
    assert shared["fw_size"] == len(DATA)
    refused, done = here.bridge.answers("boiler")
    assert (refused[1], done[1]) == ("refused", "done")
    whole = await here.get("/T-BOILER/firmware", **named)
    assert (whole.status_code, whole.content) == (200, DATA)
    size = 500
    pieces = [
        (await here.get("/T-BOILER/firmware", **named, size=str(size), chunk=str(n))).content
        for n in range(4)
    ]
    assert [*map(len, pieces)] == [500, 500, 280, 0]
    assert b"".join(pieces) == DATA
    assert (await here.get("/T-OVEN/firmware", **named)).status_code == 404
    wrong = await here.get("/T-BOILER/firmware", **named, size="-1")
    assert wrong.status_code == 400
    other = await here.get("/T-BOILER/software", **named)
    assert other.status_code == 404


async def test_a_gateways_own_device_is_itself(here: Here) -> None:
    sent = await here.http.post("/T-HALL/attributes", json={"serial": "G"})
    assert sent.status_code == 200
    assert here.bridge.packets[-1].topic == "ew/v1/hall/up/thingsboard_attributes"
    assert (await here.get("/T-HALL/attributes")).json() == {"client": {"serial": "G"}}


async def test_an_answer_that_kafka_does_not_have_is_asked_for_again(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_api, "TAKE_S", 0.05)
    here.command("boiler", "c-1", "open_valve")
    number = (await here.get("/T-BOILER/rpc")).json()["id"]
    here.bridge.is_away = True
    again = await here.http.post(f"/T-BOILER/rpc/{number}", json={"done": True})
    assert again.status_code == 503
    here.bridge.is_away = False
    assert (await here.http.post(f"/T-BOILER/rpc/{number}", json={})).status_code == 200


async def test_an_answer_that_finds_no_room_is_not_taken_and_asked_for_again(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.command("boiler", "c-1", "open_valve")
    number = (await here.get("/T-BOILER/rpc")).json()["id"]
    with monkeypatch.context() as short:
        short.setattr(device_api, "TAKE_S", 0.05)
        here.bridge.is_full = True
        again = await here.http.post(f"/T-BOILER/rpc/{number}", json={"done": True})
    assert (again.status_code, again.headers["Retry-After"]) == (503, str(RETRY_S))
    assert here.bridge.packets == []
    here.bridge.is_full = False
    assert (await here.http.post(f"/T-BOILER/rpc/{number}", json={})).status_code == 200
    assert here.bridge.answers("boiler") == [("c-1", "done", "{}")]


async def test_attributes_that_wait_to_be_set_wait_for_room(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is answered to who set it, which is a record in Kafka."""
    monkeypatch.setattr(device_api, "TAKE_S", 0.05)
    here.command("boiler", "s-1", "set_attributes", '{"interval": 10}')
    here.bridge.is_full = True
    again = await here.get("/T-BOILER/attributes")
    assert (again.status_code, again.headers["Retry-After"]) == (503, str(RETRY_S))
    assert (await here.get("/T-BOILER/attributes/updates", timeout="20")).status_code == 408
    assert here.bridge.packets == []
    monkeypatch.setattr(device_api, "TAKE_S", PATIENCE_S)
    waiting = asyncio.create_task(here.get("/T-BOILER/attributes"))
    other = asyncio.create_task(here.get("/T-BOILER/attributes"))
    done, _ = await asyncio.wait({waiting, other}, timeout=0.1)
    assert not done
    here.bridge.is_full = False
    for one in (waiting, other):
        assert (await one).json() == {"shared": {"interval": 10}}
    assert here.bridge.answers("boiler") == [("s-1", "done", None)], "once"


async def test_large_attributes_are_read_beside_the_loop(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[bool] = []
    read = words.object_of

    def noted(payload: bytes) -> Any:
        beside.append(threading.current_thread() is not threading.main_thread())
        return read(payload)

    monkeypatch.setattr(words, "object_of", noted)
    small, large = {"small": 1}, {"large": "x" * ASIDE_BYTES}
    for values in (small, large):
        assert (await here.http.post("/T-BOILER/attributes", json=values)).status_code == 200
    assert beside == [False, True]
    assert (await here.get("/T-BOILER/attributes")).json() == {"client": small | large}


async def test_a_question_has_a_bound(here: Here) -> None:
    """It is read by the loop, which serves nobody else meanwhile."""
    body = {"method": "getTime", "params": "x" * web_door.QUESTION_BYTES_MAX}
    assert (await here.http.post("/T-BOILER/rpc", json=body)).status_code == 413


async def test_a_long_file_is_paid_for_and_a_device_is_sent_one_at_a_time(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_api, "PIECE_BYTES", 500)
    named = {"title": "heater", "version": "2.0"}
    for device in ("boiler", "oven"):
        shared = {f"fw_{word}": text for word, text in named.items()}
        here.memory.keep(device, device, "shared", shared)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Any) -> None:
        begun.set()
        await goes_on.wait()

    whole = here.bridge.account("boiler").bytes
    path = b"/api/v1/T-BOILER/firmware"
    scope = {"type": "http", "method": "GET", "path": path.decode(), "raw_path": path}
    scope |= {"query_string": b"title=heater&version=2.0", "headers": [], "client": ("::1", 1)}  # type: ignore[dict-item]
    first = asyncio.create_task(here.door(scope, receive, send))  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
    second = await here.get("/T-BOILER/firmware", **named)
    assert (second.status_code, second.headers["Retry-After"]) == (429, str(RETRY_S))
    piece = await here.get("/T-BOILER/firmware", **named, size="500", chunk="2")
    assert (piece.status_code, len(piece.content)) == (200, 280)
    assert (await here.get("/T-OVEN/firmware", **named)).content == DATA, "another device"
    goes_on.set()
    async with asyncio.timeout(PATIENCE_S):
        await first
    assert (await here.get("/T-BOILER/firmware", **named)).content == DATA
    assert whole - here.bridge.account("boiler").bytes == 2 * len(DATA) + 280


async def test_while_the_files_are_read_what_may_tell_of_one_is_asked_for_again(
    here: Here,
) -> None:
    """A version that is not known is refused for good, so nobody is told what is known so far."""
    here.looked.clear()
    here.command("boiler", "s-1", "set_attributes", '{"fw_title": "heater", "fw_version": "2.0"}')
    here.command("boiler", "c-1", "open_valve")
    for path in ("attributes", "attributes/updates", "firmware", "software"):
        later = await here.get(f"/T-BOILER/{path}")
        assert (later.status_code, later.headers["Retry-After"]) == (503, str(RETRY_S))
    assert here.bridge.packets == []
    assert (await here.get("/T-BOILER/rpc")).json()["method"] == "open_valve"
    for kind in ("telemetry", "attributes"):
        assert (await here.http.post(f"/T-BOILER/{kind}", json={"a": 1})).status_code == 200
    here.looked.set()
    shared = (await here.get("/T-BOILER/attributes")).json()["shared"]
    assert shared["fw_size"] == len(DATA)


async def test_the_door_for_http_is_open_before_the_files_of_firmware_are_read(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    config = BridgeConfig.model_validate(
        {"http": {"port": port}, "thingsboard": {"firmware_dir": tmp_path}}
    )
    clock, stop = FakeClock(), asyncio.Event()
    made, memory = bridge(clock, away(10)), Memory("one", "bridge-1")
    doors = dict(service._doors(config, made, Outbox(), memory, clock, stop))
    served = asyncio.create_task(doors["http"])
    reading = None
    try:
        await eventually(lambda: port_is_open(port), "it is served")
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            at = f"http://127.0.0.1:{port}"
            assert (await client.get(f"{at}/ping")).status_code == 204
            asked = f"{at}/api/v1/boiler/attributes"
            assert (await client.get(asked)).status_code == 503
            reading = asyncio.create_task(doors["firmware"])
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await client.get(asked)).status_code == 503:
                    await asyncio.sleep(0.01)
            assert answer.json() == {}
    finally:
        stop.set()
        if reading is None:
            doors["firmware"].close()
        else:
            reading.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await served


async def test_the_body_of_a_question_counts_until_it_is_answered(here: Here) -> None:
    body = b"x" * 50_000
    asking = asyncio.create_task(here.http.request("GET", "/T-BOILER/rpc", content=body))
    await eventually(lambda: here.waiting == 1, "it waits")
    assert here.door._held.total() == len(body)
    here.command("boiler", "c-1", "open_valve")
    async with asyncio.timeout(PATIENCE_S):
        assert (await asking).json()["method"] == "open_valve"
    assert here.door._held.total() == 0


async def test_only_attributes_are_unpacked_once_more_and_beside_the_loop(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[bool] = []

    def noted(body: bytes, coding: str, most: int) -> bytes:
        beside.append(threading.current_thread() is not threading.main_thread())
        return unpacked(body, coding, most)

    monkeypatch.setattr(web_door, "unpacked", noted)

    async def send(kind: str, values: dict[str, str]) -> None:
        packed = gzip.compress(orjson.dumps(values))
        headers = {"Content-Encoding": "gzip"}
        sent = await here.http.post(f"/T-BOILER/{kind}", content=packed, headers=headers)
        assert sent.status_code == 200

    large = random.Random(1).randbytes(ASIDE_BYTES).hex()
    await send("telemetry", {"large": large})
    assert beside == []
    await send("attributes", {"small": "x"})
    await send("attributes", {"large": large})
    assert beside == [True, True], "a few packed bytes may unfold to many"
    kept = (await here.get("/T-BOILER/attributes")).json()["client"]
    assert kept == {"small": "x", "large": large}


@pytest.mark.parametrize(
    ("topic", "form"), [("api/v1/{device}/rpc", "other"), ("x/{device}", "thingsboard")]
)
def test_a_path_that_the_map_file_reads_is_no_question(topic: str, form: str) -> None:
    text = f'[[map]]\ntopic = "{topic}"\ndevice = "{{device}}"\nstream = "s"\n'
    maps = MapFile(None, text=text, needs_names=True).maps
    head = Head.of("POST", "/api/v1/press/rpc", {})
    asked = Requests(Mapper(maps, ""), None, "", 1 << 20).asked(head)
    assert isinstance(asked, Asked)
    assert asked.form == form


async def test_what_a_device_asks_of_its_server_is_answered_and_a_claim_taken(here: Here) -> None:
    unknown = await here.http.post("/T-BOILER/rpc", json={"method": "getTime", "params": {}})
    assert unknown.json() == {"error": "nobody here does 'getTime'"}
    claim = await here.http.post("/T-BOILER/claim", json={"secretKey": "x"})
    assert (claim.status_code, claim.content) == (200, b"")
    bad = await here.get("/T-BOILER/rpc", timeout="soon")
    assert bad.status_code == 400
    assert "expected milliseconds" in bad.json()["error"]
