"""Bodies that wait for their turn to be read, at the bridge's door for HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.bridge.admission.allowance import (
    THINGS_TIMES,
    Account,
    Allowance,
    DeviceConfig,
)
from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.web import door as web_door
from edgewake.cloud.bridge.web.door import Door
from edgewake.cloud.bridge.web.requests import Asked, Requests
from edgewake.cloud.client_share import Bound, Clients
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.maps.device_tokens import DeviceTokens
from edgewake.protocol.maps.map_file import MapFile
from tests.services import PATIENCE_S

DEAR = (b"cpu v=1" + b"".join(b",f\\ %d=1" % i for i in range(200)) + b"\n") * 440
"""Half a second of a processor: a space that is escaped makes each character count."""
ATTACKS = 12


class Shares:
    """What a bridge says of shares; it takes nothing."""

    is_full = False

    def __init__(self, clock: FakeClock, config: DeviceConfig | None = None) -> None:
        self._allowance, self._clock = Allowance(config or DeviceConfig()), clock
        self.taken: list[str] = []

    def account(self, payer: str, *, is_named: bool = False) -> Account:
        now_s = self._clock.monotonic_s()
        of = self._allowance.together if is_named else self._allowance.account
        return of(payer, now_s)

    def wait_s(self, device: str) -> float:
        return self._allowance.wait_s(device, self._clock.monotonic_s())

    def take(
        self, parts: Sequence[Part], payer: str, on_settled: Callable[[], None], *, is_named: bool
    ) -> Awaited:
        self.taken.append(payer)
        on_settled()
        return Awaited(self._clock.monotonic_s(), on_settled)


class Read(Requests):
    """Counts whose bodies were read."""

    def parts(self, asked: Asked, body: bytes, now_ms: int) -> Sequence[Part]:
        READ[asked.payer] += 1
        return super().parts(asked, body, now_ms)


READ: Counter[str] = Counter()


async def test_a_gateway_pays_for_all_that_its_payloads_name(tmp_path: Path) -> None:
    """Small bodies under ever new names: each name would have a device's share."""
    file = tmp_path / "tokens"
    file.write_text("GATE gate gateway\nQUIET quiet\n")
    file.chmod(0o600)
    maps = MapFile(None, ("influx",), zone="UTC", needs_names=True).maps
    clock = FakeClock()
    shares = Shares(clock, DeviceConfig(messages_per_s=1, burst_s=2))
    door = Door(
        Requests(Mapper(maps, ""), DeviceTokens(file), "", 1 << 20),
        shares,
        Counter(),
        body_bytes_max=1 << 20,
        bodies=Bound("bytes", 64 << 20, 1),
        clients=Clients(),
        clock=clock,
    )
    transport = httpx.ASGITransport(app=door)
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:

        async def say(token: str, host: str) -> int:
            lines = f"cpu,host={host} v=1\n" * 2
            return (await client.post(f"/write?db=d&p={token}", content=lines)).status_code

        statuses = [await say("GATE", f"h{n}") for n in range(30)]
        assert statuses == [204] * THINGS_TIMES + [429] * (30 - THINGS_TIMES)
        assert await say("QUIET", "h1") == 204


async def test_a_request_that_is_refused_owes_no_more(tmp_path: Path) -> None:
    """It names a device that has to wait: the others in it, and its gateway, pay nothing."""
    file = tmp_path / "tokens"
    file.write_text("GATE gate gateway\n")
    file.chmod(0o600)
    maps = MapFile(None, ("influx",), zone="UTC", needs_names=True).maps
    clock = FakeClock()
    shares = Shares(clock, DeviceConfig(messages_per_s=1, burst_s=2))
    door = Door(
        Requests(Mapper(maps, ""), DeviceTokens(file), "", 1 << 20),
        shares,
        Counter(),
        body_bytes_max=1 << 20,
        bodies=Bound("bytes", 64 << 20, 1),
        clients=Clients(),
        clock=clock,
    )
    owes = shares.account("h1")
    owes.pay(1 << 40, 0.0)
    gate = shares.account("gate", is_named=True)
    whole = gate.messages
    transport = httpx.ASGITransport(app=door)
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:

        async def say(host: str) -> int:
            lines = f"cpu,host=h0 v=1\ncpu,host={host} v=1\n"
            return (await client.post("/write?db=d&p=GATE", content=lines)).status_code

        assert [await say("h1") for _ in range(100)] == [429] * 100
        assert gate.messages == whole
        assert await say("h2") == 204, "another request of that gateway"
        assert gate.messages == whole - 2


async def test_who_used_up_its_share_meanwhile_is_not_read(tmp_path: Path) -> None:
    """All of them come at once, while the device has its whole share; another comes last."""
    READ.clear()
    file = tmp_path / "tokens"
    file.write_text("LOUD loud\nQUIET quiet\n")
    file.chmod(0o600)
    maps = MapFile(None, ("influx",), zone="UTC", needs_names=True).maps
    clock = FakeClock()
    shares = Shares(clock)
    door = Door(
        Read(Mapper(maps, ""), DeviceTokens(file), "", 1 << 20),
        shares,
        Counter(),
        body_bytes_max=1 << 20,
        bodies=Bound("bytes", 64 << 20, 1),
        clients=Clients(),
        clock=clock,
    )
    transport = httpx.ASGITransport(app=door)
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:

        async def say(token: str, body: bytes) -> int:
            return (await client.post(f"/write?db=d&p={token}", content=body)).status_code

        loud = [asyncio.create_task(say("LOUD", DEAR)) for _ in range(ATTACKS)]
        while not READ["loud"]:
            await asyncio.sleep(0)
        # On a slow machine the two that began take longer than anybody waits: it comes again.
        while (status := await say("QUIET", b"cpu v=1\n" * 700)) == 503:
            pass
        assert status == 204
        statuses = [await one for one in loud]
    assert READ["loud"] == 2, "those that began together, and no more"
    assert set(statuses) <= {429, 503}
    assert shares.taken == ["quiet"]


async def test_what_is_read_costs_the_same_where_its_request_waits_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread ends where nobody waits for it: its turn is taken until it has."""
    monkeypatch.setattr(web_door, "TAKE_S", 0.05)
    READ.clear()
    file = tmp_path / "tokens"
    file.write_text("LOUD loud\n")
    file.chmod(0o600)
    maps = MapFile(None, ("influx",), zone="UTC", needs_names=True).maps
    shares = Shares(FakeClock())
    door = Door(
        Read(Mapper(maps, ""), DeviceTokens(file), "", 1 << 20),
        shares,
        Counter(),
        body_bytes_max=1 << 20,
        bodies=Bound("bytes", 64 << 20, 1),
        clients=Clients(),
        clock=FakeClock(),
    )
    transport = httpx.ASGITransport(app=door)
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:

        async def say() -> int:
            return (await client.post("/write?db=d&p=LOUD", content=DEAR)).status_code

        assert set(await asyncio.gather(*(say() for _ in range(ATTACKS)))) == {503}
        async with asyncio.timeout(PATIENCE_S):
            while shares.account("loud").wait_s(0) == 0:
                await asyncio.sleep(0.01)
        assert [await say() for _ in range(ATTACKS)] == [429] * ATTACKS
    assert READ["loud"] == 2, "those that began together, and no more"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 204),
    ],
)
async def test_a_page_in_a_browser_of_a_trusted_machine_may_not_send(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    file = tmp_path / "tokens"
    file.write_text("QUIET quiet\n")
    file.chmod(0o600)
    maps = MapFile(None, ("influx",), zone="UTC", needs_names=True).maps
    clock = FakeClock()
    door = Door(
        Requests(Mapper(maps, ""), DeviceTokens(file), "", 1 << 20),
        Shares(clock),
        Counter(),
        body_bytes_max=1 << 20,
        bodies=Bound("bytes", 64 << 20, 1),
        clients=Clients(),
        clock=clock,
        trusts_machine=True,
    )
    transport = httpx.ASGITransport(app=door, client=("127.0.0.1", 4000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.post("/write?db=d", content="cpu,host=a v=1\n", headers=headers)
    assert answer.status_code == status, answer.text
