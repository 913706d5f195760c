"""Bridges on a real broker and a real Kafka: nothing acknowledged is lost, nothing refused stops
anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import partial
from pathlib import Path

import mqtt5
import psutil
import pytest

from edgewake.cloud.kafka.config import UP_BATCH_BYTES
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.ack import Ack, LaterReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.frame import FRAME_TYPE, Frame, encode
from edgewake.protocol.ops.device import DeviceStatus
from tests.bridge.admission.test_admit import REFUSED
from tests.bridge.running import (
    Device,
    World,
    frame,
    numbers,
    read,
    read_some,
    sequenced,
    start,
    up_setting,
    world,
)
from tests.services import (
    PATIENCE_S,
    Kafka,
    Mosquitto,
    Process,
    free_ports,
    part,
    port_is_open,
    wait_until,
)

ACKED = 'edgewake_bridge_messages_total{outcome="acked"}'


async def test_a_frame_is_acknowledged_with_its_place_in_kafka(here: World) -> None:
    here.bridge("b-place")
    device = Device(here, "place-1", "place")
    await device.send(3)
    found = {
        (one.partition(), one.offset()) for one in read(here.config, topics.UP, device="place-1")
    }
    assert {(ack.token.partition, ack.token.offset) for ack in device.acks.values()} <= found


async def test_a_device_that_asks_for_joined_answers_gets_all_of_them_in_fewer_messages(
    here: World,
) -> None:
    """QoS 0, as agents send where they are told to: the broker confirms nothing, the frames are
    ordered nevertheless.
    """
    here.bridge("b-joined")
    here.sequencer()
    device = Device(here, "joined-1", "joined", window=400)
    await device.connected()
    for number in range(1, 401):
        device.publish(
            frame(number),
            content_type=FRAME_TYPE,
            correlation=b"joined|1|%d" % number,
            packet_id=0,
            response_topic=topics.acks("joined-1"),
        )
    async with asyncio.timeout(PATIENCE_S):
        while len(device.joined) < 400:
            await asyncio.sleep(0.01)
    assert {data: answer.rejected for data, answer in device.joined.items()} == {
        b"joined|1|%d" % n: None for n in range(1, 401)
    }
    assert device.joined_messages < 200
    assert device.confirmed == set(), "a PUBACK for QoS 0"
    assert await sequenced(here, "joined", "joined-1", 400) == list(range(1, 401))


@pytest.mark.long
async def test_two_bridges_share_the_load(here: World) -> None:
    here.bridge("b-share-1")
    here.bridge("b-share-2")
    await Device(here, "share-1", "share", resend_s=PATIENCE_S).send(300)
    acked = partial(here.metric, line=ACKED)
    wait_until(lambda: acked("b-share-1") + acked("b-share-2") == 300, "each is counted")
    assert acked("b-share-1") > 50
    assert acked("b-share-2") > 50


@pytest.mark.long
async def test_a_bridge_killed_between_kafka_and_acknowledgement_loses_nothing(here: World) -> None:
    """Control: `ew.up` does hold repeats; after the sequencer there are none and the order is
    right.
    """
    killed, other = here.bridge("b-kill-1"), here.bridge("b-kill-2")
    here.sequencer()
    device = Device(here, "kill-1", "kill", window=400)
    await device.send(4000, until=lambda: len(device.acks) > 1000 and len(device.waiting) > 100)
    killed.kill()
    in_kafka = set(numbers(read(here.config, topics.UP, device="kill-1")))
    assert in_kafka - set(device.acks), "the kill did not fall between Kafka and an acknowledgement"
    start(killed)
    await device.send(4000)
    up = numbers(read(here.config, topics.UP, device="kill-1"))
    assert set(up) == set(range(1, 4001))
    assert len(up) > 4000, "no frame was repeated: the test shows nothing"
    assert await sequenced(here, "kill", "kill-1", 4000) == list(range(1, 4001))
    assert other.is_running()


class HalfStored(Device):
    """Keeps a session on the broker, and of its first hundred messages the later half in memory
    only.
    """

    def __init__(self, here: World, stored: set[bytes], came: list[bytes], *, puback: str) -> None:
        super().__init__(here, "control-bridge", "x")
        self._stored, self._came, self._puback = stored, came, puback
        self._was_heard = asyncio.Event()

    async def is_heard(self) -> None:
        """Wait until the broker has read all that was sent: it answers in order."""
        self._transport.write(mqtt5.PingReqPacket().write())
        async with asyncio.timeout(PATIENCE_S):
            await self._was_heard.wait()

    def hello(self) -> bytes:
        return mqtt5.ConnectPacket(self.name, clean_start=False, session_expiry_interval=60).write()

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            match packet:
                case mqtt5.ConnAckPacket():
                    filters = [
                        mqtt5.TopicFilter(
                            "$share/control/control/up", max_qos=mqtt5.QoS.AT_LEAST_ONCE
                        )
                    ]
                    self._transport.write(mqtt5.SubscribePacket(1, filters).write())
                case mqtt5.SubAckPacket():
                    self._subscribed = True
                case mqtt5.PingRespPacket():
                    self._was_heard.set()
                case mqtt5.PublishPacket():
                    self._came.append(packet.payload)
                    stores = len(self._came) <= 50 or len(self._came) > 100
                    if stores:
                        self._stored.add(packet.payload)
                    if stores or self._puback == "on arrival":
                        self._transport.write(mqtt5.PubAckPacket(packet.packet_id).write())


@pytest.mark.long
@pytest.mark.parametrize("puback", ["on arrival", "when stored"])
async def test_the_control_that_acknowledges_at_once_loses(
    own_broker: Mosquitto, puback: str
) -> None:
    """A consumer dies with half of its messages in memory only: what it had confirmed on arrival
    never comes again.
    """
    here = World(own_broker, None, None)  # type: ignore[arg-type]
    stored: set[bytes] = set()
    came: list[bytes] = []
    consumer, device = (
        HalfStored(here, stored, came, puback=puback),
        Device(here, "control-device", "x"),
    )
    await consumer.connected()
    await device.connected()
    for i in range(1, 101):
        device.publish(b"%d" % i, topic="control/up", packet_id=i)
    async with asyncio.timeout(PATIENCE_S):
        while len(came) < 100:
            await asyncio.sleep(0.01)
    await consumer.is_heard()
    await consumer.close()
    await HalfStored(here, stored, came, puback=puback).connected()
    device.publish(b"101", topic="control/up", packet_id=101)
    async with asyncio.timeout(PATIENCE_S):
        while b"101" not in stored:
            await asyncio.sleep(0.01)
    assert len(stored) == (51 if puback == "on arrival" else 101)
    for one in here.devices:
        await one.close()


async def test_kafka_killed_nothing_is_acknowledged_meanwhile_and_all_goes_on_after(
    here: World, own_kafka: Kafka
) -> None:
    bridge = here.bridge("b-kafka", inflight_messages_max=200)
    here.sequencer()
    device = Device(here, "kafka-1", "kafka", window=1000, resend_s=300)
    await device.send(6000, until=lambda: len(device.acks) > 1000)
    rss_before = psutil.Process(bridge.pid).memory_info().rss
    own_kafka.process.kill()
    try:
        await device.send(
            6000, until=lambda: here.metric("b-kafka", "edgewake_bridge_inflight_messages") >= 200
        )
        confirmed = here.metric("b-kafka", ACKED)
        await device.send(
            6000, until=lambda: len(device.acks) == confirmed and len(device.waiting) == 1000
        )
        assert here.metric("b-kafka", ACKED) == confirmed, "acknowledged without Kafka"
        assert psutil.Process(bridge.pid).memory_info().rss - rss_before < 50 << 20
    finally:
        own_kafka.start()
    await device.send(6000)
    assert await sequenced(here, "kafka", "kafka-1", 6000) == list(range(1, 6001))
    assert bridge.is_running()


@pytest.mark.long
async def test_the_broker_killed_and_restarted_is_found_again(here: World) -> None:
    here.bridge("b-broker")
    device = Device(here, "broker-1", "broker")
    await device.send(2000, until=lambda: len(device.acks) > 200)
    here.broker.process.kill()
    assert device.waiting or len(device.acks) < 2000
    here.broker.start()
    await device.send(2000)
    assert set(numbers(read(here.config, topics.UP, device="broker-1"))) == set(range(1, 2001))


async def test_what_is_refused_becomes_a_dead_letter_and_the_rest_flows_on(here: World) -> None:
    here.bridge("b-poison")
    device = Device(here, "poison-1", "poison")
    await device.connected()
    for i, (payload, content_type, _) in enumerate(REFUSED.values(), start=1):
        device.publish(
            payload, content_type=content_type, correlation=b"%d" % (1000 + i), packet_id=2 * i
        )
        device.publish(
            frame(i), content_type=FRAME_TYPE, correlation=b"%d" % i, packet_id=2 * i + 1
        )
    letters = {}
    for i, (payload, _, reason) in enumerate(REFUSED.values(), start=1):
        refused = await device.answered(1000 + i)
        assert (refused.rejected, refused.token.dead) == (reason, True)
        assert (await device.answered(i)).rejected is None
        letters[refused.token.offset] = (payload, reason.value)
    found = {one.offset(): one for one in read(here.config, topics.DEAD, device="poison-1")}
    assert {
        at: (one.value(), DeadLetter.from_headers(one.headers()).reason)
        for at, one in found.items()
    } == letters
    letter = DeadLetter.from_headers(next(iter(found.values())).headers())
    assert (letter.topic, letter.part) == ("ew/v1/poison-1/up/poison", "b-poison")


async def test_ten_megabytes_become_a_dead_letter_and_never_memory(
    own_kafka: Kafka, tmp_path
) -> None:
    """On a broker that lets them pass; ours ends the connection of a device that sends more than
    PACKET_BYTES_MAX.
    """
    (port,) = free_ports(1)
    (tmp_path / "loose.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
    )
    with Process(
        ["/usr/sbin/mosquitto", "-c", str(tmp_path / "loose.conf")], tmp_path / "loose.log"
    ) as process:
        wait_until(lambda: port_is_open(port), "Mosquitto takes connections")
        async with world(Mosquitto(port, process), own_kafka, tmp_path) as here:
            await _send_ten_megabytes(here)


async def _send_ten_megabytes(here: World) -> None:
    bridge = here.bridge("b-large")
    rss_before = psutil.Process(bridge.pid).memory_info().rss
    device = Device(here, "large-1", "large")
    await device.connected()
    device.publish(b'{"a":"' + b"x" * (10 << 20) + b'"}', correlation=b"1", packet_id=1)
    device.publish(frame(1), content_type=FRAME_TYPE, correlation=b"2", packet_id=2)
    large = await device.answered(1)
    assert (large.rejected, "10485" in large.detail) == (RejectReason.OVERSIZE, True)
    assert (await device.answered(2)).rejected is None
    assert psutil.Process(bridge.pid).memory_info().rss - rss_before < 20 << 20


@pytest.mark.long
async def test_a_device_of_ours_that_sends_ten_megabytes_is_told_by_the_broker(here: World) -> None:
    here.bridge("b-huge")
    huge, good = Device(here, "huge-1", "huge"), Device(here, "huge-2", "huge")
    await huge.connected()
    huge.publish(b"x" * (10 << 20), packet_id=1)
    await good.send(10)
    async with asyncio.timeout(PATIENCE_S):
        while huge._transport is not None:
            await asyncio.sleep(0.01)


async def test_a_foreign_response_topic_is_never_answered(here: World) -> None:
    here.bridge("b-foreign")
    victim, thief = Device(here, "victim-1", "foreign"), Device(here, "thief-1", "foreign")
    await victim.connected()
    await thief.connected()
    thief.publish(
        frame(1), content_type=FRAME_TYPE, correlation=b"1", response_topic=topics.ack("victim-1")
    )
    thief.publish(frame(1), content_type=FRAME_TYPE, correlation=b"3", packet_id=3)
    assert (await thief.answered(3)).rejected is None
    assert victim.acks == {}
    letters = await read_some(here.config, topics.DEAD, "thief-1")
    reasons = [DeadLetter.from_headers(one.headers()).reason for one in letters]
    assert set(reasons) == {"response_topic"}


@pytest.mark.long
async def test_a_status_is_kept_and_a_malformed_one_is_a_dead_letter(here: World) -> None:
    here.bridge("b-status")
    device = Device(here, "status-1", "status")
    await device.connected()
    topic = topics.status("status-1")
    device.publish(
        b'{"device":"status-1","state":"online","epoch":3}',
        topic=topic,
        correlation=b"1",
        packet_id=1,
    )
    device.publish(
        b'{"device":"status-1","state":"lost"}', topic=topic, correlation=b"2", packet_id=2
    )
    await device.answered(1)
    assert (await device.answered(2)).rejected is RejectReason.SHAPE
    (row,) = read(here.config, topics.DEVICES, device="status-1|status")
    status = DeviceStatus.from_json(row.value())
    assert (status.epoch, status.received_at is not None) == (3, True)


@pytest.mark.long
async def test_a_restarted_bridge_knows_the_fields_that_were_learnt_before(here: World) -> None:
    bridge = here.bridge("b-learn")
    device = Device(here, "learn-1", "learn")
    await device.send(1)
    assert bridge.stop() == 0
    start(bridge)
    await device.connected()
    frame = Frame(1, 1, 1, [1_790_000_000_000], {"speed": ["fast"]})
    device.publish(encode(frame), content_type=FRAME_TYPE, correlation=b"99", packet_id=99)
    assert (await device.told_later(99)).reason is LaterReason.FIELD_TYPE


@pytest.mark.long
async def test_a_bridge_started_before_kafka_and_broker_serves_when_they_come(
    here: World, own_kafka: Kafka
) -> None:
    own_kafka.process.kill()
    here.broker.process.kill()
    try:
        bridge = _unready_bridge(here)
    finally:
        own_kafka.start()
        here.broker.start()
    await Device(here, "early-1", "early").send(5)
    assert bridge.is_running()


def _unready_bridge(here: World, until: str = "waiting for Kafka"):
    file = here.folder / "early.toml"
    file.write_text(
        f'name = "b-early"\n[mqtt]\nport = {here.broker.port}\n[kafka]\nbootstrap = '
        f'"{here.node.bootstrap}"\n'
    )
    process = part("bridge", file, here.folder / "early.log")
    here.parts.append(process)
    process.start()
    process.wait_for(until)
    return process


async def test_a_record_that_kafka_finds_too_large_becomes_a_dead_letter(here: World) -> None:
    """An operator lowered the topic's bound below a frame's size."""
    here.bridge("b-refused")
    device = Device(here, "refused-1", "refused")
    await device.send(1)
    with _bound_of_a_record(here, 2000):
        device.publish(
            b'{"a":[' + b",".join(b"%d" % (i * 7919 % 100_000) for i in range(1200)) + b"]}",
            correlation=b"50",
            packet_id=50,
        )
        refused = await device.answered(50)
        device.publish(b'{"b":1}', correlation=b"51", packet_id=51)
        assert await device.answered(51) == Ack(device.acks[51].token)
    assert (refused.rejected, refused.token.dead) == (RejectReason.OVERSIZE, True)


@pytest.mark.long
async def test_a_batch_over_the_topics_bound_refuses_none_of_its_messages(here: World) -> None:
    """Kafka refuses the whole batch by its size; each message in it is small enough."""
    rng = random.Random(1)
    burst = [b'{"a":"%s"}' % rng.randbytes(1700).hex().encode() for _ in range(300)]
    bridge = here.bridge("b-batch")
    with _bound_of_a_record(here, UP_BATCH_BYTES // 4):
        device = Device(here, "batch-1", "batch")
        await device.connected()
        bridge.freeze()  # so that it finds them all at once
        for i, payload in enumerate(burst, start=1):
            device.publish(payload, correlation=b"%d" % i, packet_id=i)
        await device.confirms(300)
        bridge.thaw()
        assert [(await device.answered(i)).rejected for i in range(1, 301)] == [None] * 300
    wait_until(
        lambda: here.metric("b-batch", 'edgewake_bridge_sent_alone_total{kind="record"}') > 0,
        "a batch was refused",
    )


@pytest.mark.long
async def test_a_bridge_does_not_start_on_a_topic_that_would_refuse_its_messages(
    here: World,
) -> None:
    with _bound_of_a_record(here, 65_536):
        bridge = _unready_bridge(here, "max.message.bytes is 65536, expected at least 2097152")
        async with asyncio.timeout(PATIENCE_S):
            while bridge.is_running():
                await asyncio.sleep(0.05)
    here.parts.remove(bridge)
    assert bridge.stop() != 0


def _bound_of_a_record(here: World, size: int) -> contextlib.AbstractContextManager[None]:
    return up_setting(here.config, "max.message.bytes", size)


@pytest.mark.services
def test_a_wrong_configuration_is_said_in_one_line_with_exit_2(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('naem = "x"\n')
    process = part("bridge", tmp_path / "bad.toml", tmp_path / "bad.log").start()
    with pytest.raises(AssertionError):
        process.wait_for("never")
    assert process.stop() == 2
    assert "naem: unknown key; did you mean 'name'?" in process.output()
