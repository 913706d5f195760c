"""The agent on a real wire that is cut without a word, or loses packets and is slow: 0 lost, 0
twice, 0 unsaid.

`make test` takes a sample; `make test-faults` more of each.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from edgewake.edge.liveness import Liveness, Outgoing
from edgewake.edge.log.keeping.work import OutFrame
from edgewake.edge.mqtt_link import MqttLink
from edgewake.edge.uplink.sender import Uplink
from edgewake.edge.uplink.session import UplinkState
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.frames.ack import Ack, AckToken
from tests.edge.bad_wire import FarBroker, Wire, far_broker, needs_network
from tests.edge.peer import Peer
from tests.edge.running import Running, drained, ns, running
from tests.services import PATIENCE_S

pytestmark = [pytest.mark.services, needs_network]
ALL = os.environ.get("EDGEWAKE_FAULTS") == "all"
CUTS = 10 if ALL else 2
WAVEFORMS = 200 if ALL else 8
LOSS = 0.05
LINK = 8_000
"""Bytes per second: 64 kbit/s."""
DELAY_S = 0.25
"""One way."""
LINK_PATIENCE_S = 600.0
"""For all to come, and for all to be acknowledged: answers are lost like everything else, and then
the frame takes its seconds again."""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarBroker]:
    with far_broker(tmp_path_factory.mktemp("far")) as broker:
        yield broker


@pytest.fixture
def wire(far: FarBroker) -> Iterator[Wire]:
    """As good as new, before and after."""
    yield far.wire
    far.wire.loss, far.wire.bytes_per_s, far.wire.delay_s, far.wire.is_cut = 0.0, None, 0.0, False


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


def agent(
    directory: Path, far: FarBroker, device: str, **uplink: float
) -> AbstractAsyncContextManager[Running]:
    """A log and its uplink on this side of the wire."""
    return running(
        directory,
        far.port,
        device,
        mqtt=BrokerConfig(host=far.host, port=far.port),
        keepalive_s=1,
        **uplink,
    )


async def cut_while_sending(one: Running, wire: Wire, numbers: range) -> None:
    """Accept readings while nothing gets through, until the agent has noticed; then the wire is
    whole again.
    """
    await until(lambda: one.uplink.session.state is UplinkState.STREAMING)
    wire.is_cut = True
    swallowed = wire.swallowed
    await one.put(numbers)
    await until(lambda: one.uplink.session.state is not UplinkState.STREAMING)
    assert wire.swallowed > swallowed, "the fault did not fire"
    wire.is_cut = False


async def test_a_connection_that_is_half_open_is_noticed_and_costs_nothing(
    tmp_path: Path, far: FarBroker, wire: Wire
) -> None:
    async with (
        Peer(far.port, connection=far.socket_beside()) as peer,
        agent(tmp_path, far, "half-1") as one,
    ):
        await one.put(range(10))
        for cut in range(1, CUTS + 1):
            await cut_while_sending(one, wire, range(10 * cut, 10 * cut + 10))
        await peer.until(lambda: ns(peer, "half-1") == list(range(10 * CUTS + 10)))
        await drained(one)


async def test_an_idle_connection_that_is_half_open_is_noticed(
    tmp_path: Path, far: FarBroker, wire: Wire
) -> None:
    async with (
        Peer(far.port, connection=far.socket_beside()) as peer,
        agent(tmp_path, far, "half-2") as one,
    ):
        await cut_while_sending(one, wire, range(0))
        await one.put(range(10))
        await peer.until(lambda: ns(peer, "half-2") == list(range(10)))


@pytest.mark.long
async def test_control_who_takes_what_is_sent_for_delivered_loses_on_a_half_open_connection(
    tmp_path: Path, far: FarBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Uplink._publish

    def take_for_delivered(self: Uplink, link: MqttLink, frame: OutFrame) -> int | None:
        asyncio.get_running_loop().call_soon(self._free, frame.key, Ack(AckToken(0, 0)))
        return publish(self, link, frame)

    monkeypatch.setattr(Uplink, "_publish", take_for_delivered)
    async with (
        Peer(far.port, connection=far.socket_beside()) as peer,
        agent(tmp_path, far, "half-3", drain_s=0) as one,
    ):
        await cut_while_sending(one, wire, range(10))
        await drained(one)
    assert not peer.kept.frames


async def put_waveforms(one: Running, count: int) -> None:
    """Readings of 3 KB that cannot be compressed."""
    log = one.events.stream("waveform")
    rows = (
        (1_790_000_000_000 + n, {"n": n, "w": base64.b64encode(os.urandom(2_250)).decode()})
        for n in range(count)
    )
    await log.accepted(log.append_all(rows))


@pytest.mark.long
async def test_a_slow_long_wire_that_loses_packets_delivers_all(
    tmp_path: Path, far: FarBroker, wire: Wire
) -> None:
    wire.loss, wire.bytes_per_s, wire.delay_s = LOSS, LINK, DELAY_S
    lost = wire.lost
    async with (
        Peer(far.port, connection=far.socket_beside()) as peer,
        agent(tmp_path, far, "lossy-1") as one,
    ):
        await put_waveforms(one, WAVEFORMS)
        async with asyncio.timeout(LINK_PATIENCE_S):
            await peer.until(
                lambda: (
                    [row["n"] for row in peer.kept.readings("lossy-1", "waveform")]
                    == list(range(WAVEFORMS))
                ),
                timeout_s=LINK_PATIENCE_S,
            )
        assert wire.lost > lost, "the fault did not fire"
        await drained(one, timeout_s=LINK_PATIENCE_S)


@pytest.mark.long
@pytest.mark.skipif(not ALL, reason="40 s; `test_slow_link` has the same control on a proxy")
async def test_control_who_sees_no_progress_on_a_slow_wire_cuts_it_for_ever(
    tmp_path: Path, far: FarBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, connections = Liveness.check, []
    monkeypatch.setattr(
        Liveness, "check", lambda self, now_s, _, oldest: check(self, now_s, Outgoing(0, 0), oldest)
    )
    made = Uplink._new_link
    monkeypatch.setattr(Uplink, "_new_link", lambda self: connections.append(1) or made(self))
    wire.bytes_per_s = LINK / 8
    async with (
        Peer(far.port, connection=far.socket_beside()) as peer,
        agent(tmp_path, far, "lossy-2", drain_s=0) as one,
    ):
        await put_waveforms(one, WAVEFORMS)
        await until(lambda: len(connections) >= 3)
        assert not [taken for taken in peer.taken if taken.device == "lossy-2"], (
            "what an agent before it sent may come yet"
        )
