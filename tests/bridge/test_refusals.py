"""What a flood costs a bridge beyond its device's share, where nobody waits for answers; and what
it costs an agent, which does.
"""

from __future__ import annotations

import asyncio
import time

import httpx
import mqtt5
import pytest

from edgewake.cloud.bridge.admission.allowance import MUTED_S
from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.bridge import Bridge
from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger
from edgewake.protocol import topics
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.frames import record
from edgewake.protocol.maps.compiling import compile_presets
from tests.bridge.running import World, read, read_some, start
from tests.bridge.thingsboard.alone import away, bridge
from tests.services import PATIENCE_S, free_ports, part, port_is_open, wait_until

FLOOD = 5000
TIMES = 2.0
"""What is only counted is so many times cheaper at least; it is five times."""
OWED = 1e9
DEVICE, STREAM = "spammer", "many"


async def flooded(clock: FakeClock) -> Bridge:
    """A bridge to which a device owes much, and which keeps no dead letter of it any more, answers
    it no more, and has heard enough of its life.
    """
    made = bridge(clock, away(10), Mapper(compile_presets(["zigbee2mqtt"]), ""))
    account = made.account(DEVICE)
    account.pay_for(int(OWED), 0)
    account.letters = account.laters = account.life_bytes = -OWED
    return made


def message(number: int, topic: str, **more: object) -> mqtt5.PublishPacket:
    qos = mqtt5.QoS.AT_LEAST_ONCE if "packet_id" in more else mqtt5.QoS.AT_MOST_ONCE
    return mqtt5.PublishPacket(topic, b'{"n":%d}' % number, qos=qos, **more)  # type: ignore[arg-type]


KINDS = {
    "reading": (topics.up(DEVICE, STREAM), {}),
    "awaited": (
        topics.up(DEVICE, STREAM),
        {"response_topic": topics.ack(DEVICE), "correlation_data": b"1"},
    ),
    "status": (topics.status(DEVICE), {}),
    "mapped": (f"zigbee2mqtt/{DEVICE}", {}),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_message_is_counted_and_most_of_them_without_a_look_inside(kind: str) -> None:
    clock = FakeClock()
    one_by_one, at_once = await flooded(clock), await flooded(clock)
    topic, more = KINDS[kind]
    packets = [message(number, topic, **more) for number in range(FLOOD)]

    def cost_s(made: Bridge, pause_s: float) -> float:
        ledger, began_s = AckLedger(), time.thread_time()
        for packet in packets:
            made._on_publish(ledger, packet)
            clock.advance(pause_s)
        return time.thread_time() - began_s

    assert TIMES * cost_s(at_once, 0.0) < cost_s(one_by_one, MUTED_S)
    assert one_by_one.metrics.outcomes["counted"] == at_once.metrics.outcomes["counted"] == FLOOD


async def test_what_the_broker_awaits_is_acknowledged_and_who_awaits_an_answer_has_it() -> None:
    clock = FakeClock()
    made, ledger = await flooded(clock), AckLedger()
    topic = topics.up(DEVICE, STREAM)
    for number in (1, 2):
        made._on_publish(ledger, message(number, topic, packet_id=number))
    assert made.account(DEVICE).muted_until_s > clock.monotonic_s(), "the second one was counted"
    assert ledger.pubacks() == [1, 2]
    made.account(DEVICE).laters, made.account(DEVICE).life_bytes = 1, 1
    asked = {"response_topic": topics.ack(DEVICE), "correlation_data": b"3"}
    made._on_publish(ledger, message(3, topic, **asked))
    made._on_publish(ledger, message(4, topic, **asked))
    assert sum(made.metrics.later.values()) == 1, "of two; the other one was told no more"
    assert made.metrics.outcomes["counted"] == 3
    made._on_publish(ledger, mqtt5.PublishPacket(topics.status(DEVICE), b"online"))
    assert made.metrics.outcomes["counted"] == 3, "that it is there is no reading"


async def test_a_mapped_message_that_is_only_counted_is_acknowledged() -> None:
    made, ledger = await flooded(FakeClock()), AckLedger()
    for number in (1, 2):
        made._on_publish(ledger, message(number, f"zigbee2mqtt/{DEVICE}", packet_id=number))
    assert ledger.pubacks() == [1, 2]
    assert made.metrics.outcomes["counted"] == 2


async def test_a_gateway_over_its_share_is_muted_with_all_its_things_and_no_other() -> None:
    clock = FakeClock()
    made, ledger = bridge(clock, away(10)), AckLedger()
    together = made._allowance.together("gateway", clock.monotonic_s())
    together.pay_for(int(OWED), 0)
    together.letters = -OWED

    def says(gateway: str, thing: str) -> bool:
        made._on_publish(ledger, message(1, topics.up(gateway, topics.of_thing(STREAM, thing))))
        account = made._allowance.of_thing(thing, gateway, clock.monotonic_s())
        return account.is_muted(clock.monotonic_s())

    assert says("gateway", "one")
    assert made._allowance.of_thing("two", "gateway", clock.monotonic_s()).is_muted(
        clock.monotonic_s()
    ), "it has said nothing yet"
    assert says("gateway", "two")
    assert made.metrics.outcomes["counted"] == 2
    assert not says("other", "one"), "the same thing by another gateway"
    clock.advance(2 * MUTED_S)
    assert not made._allowance.of_thing("one", "gateway", clock.monotonic_s()).is_muted(
        clock.monotonic_s()
    )


async def test_who_owes_nothing_is_never_muted_by_a_letter_too_many() -> None:
    """It sends something wrong, more than there are dead letters for; good readings pass."""
    clock = FakeClock()
    made, ledger = bridge(clock, away(10)), AckLedger()
    account = made.account(DEVICE)
    account.letters = -OWED
    made._on_publish(ledger, mqtt5.PublishPacket(topics.up(DEVICE, STREAM), b"{wrong"))
    assert made.metrics.outcomes["counted"] == 1
    assert account.muted_until_s <= clock.monotonic_s()


READINGS, IN_A_FRAME = 300, 10
SHARE = "[device]\nmessages_per_s = 5\nburst_s = 1\n"
"""Lets an agent with frames of ten readings through in six seconds, which no other work delays."""
AGENT = """
device = "{name}"
data_dir = "{folder}"
[mqtt]
port = {broker}
[uplink]
qos = {qos}
frame_readings_max = {frame}
[[source]]
type = "http_intake"
stream = "over_share"
port = {port}
"""


@pytest.mark.parametrize("qos", [pytest.param(0, marks=pytest.mark.long), 1])
async def test_an_agent_over_its_share_slows_down_and_loses_nothing(here: World, qos: int) -> None:
    here.bridge("b-share", mqtt=SHARE)
    here.sequencer()
    (port,) = free_ports(1)
    name, file = f"over-share-{qos}", here.folder / "agent.toml"
    file.write_text(
        AGENT.format(
            name=name,
            folder=here.folder / "data",
            broker=here.broker.port,
            qos=qos,
            frame=IN_A_FRAME,
            port=port,
        )
    )
    agent = part("agent", file, here.folder / "agent.log")
    here.parts.append(agent)
    await asyncio.to_thread(start, agent)
    await asyncio.to_thread(wait_until, lambda: port_is_open(port), "the intake")
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        sent = [{"n": n} for n in range(READINGS)]
        answer = await client.post(f"http://127.0.0.1:{port}/", json=sent)
    assert answer.status_code < 300, answer.text
    stream = topics.stream_topic("over_share")
    found = await read_some(here.config, stream, name, READINGS // IN_A_FRAME)
    frames = [record.decode(one.value() or b"").frame for one in found]
    assert [n for one in frames for n in one.fields["n"]] == list(range(READINGS))
    assert here.metric("b-share", 'edgewake_bridge_later_total{reason="quota"}') > 0
    assert read(here.config, topics.DEAD, device=name) == []
