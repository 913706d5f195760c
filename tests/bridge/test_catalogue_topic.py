"""Bridges agree on streams, names and types over a real Kafka before they accept anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from edgewake.cloud.kafka import clients
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import record
from edgewake.protocol.frames.ack import Ack, LaterReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import FRAME_TYPE, Frame, encode
from edgewake.protocol.frames.stream import FieldInfo, NameKind, Stream, StreamTable
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
from tests.bridge.running import Device, World, read, read_some
from tests.services import PATIENCE_S, wait_until

DEVICES = 20


def declare(world: World, row: Stream) -> None:
    """Put a row on `ew.streams`, as the operations API does."""
    producer = clients.producer(world.config, "test-catalogue")
    producer.produce(topics.STREAMS, row.model_dump_json().encode(), row.name)
    assert producer.flush(10) == 0


def sent_of(world: World, devices: Iterable[Device]) -> list[object]:
    """The values of field `v` that Kafka holds of these devices."""
    found = [one for device in devices for one in read(world.config, topics.UP, device=device.name)]
    return [value for one in found for value in record.decode(one.value()).frame.fields["v"]]


async def fleet(world: World, name: str, stream: str, count: int = DEVICES) -> list[Device]:
    devices = [Device(world, f"{name}-{i}", stream) for i in range(count)]
    await asyncio.gather(*(device.connected() for device in devices))
    return devices


async def one_answer(device: Device, number: int) -> Ack | None:
    """Wait for the first answer; the acknowledgement, or None where it was `later`."""
    async with asyncio.timeout(PATIENCE_S):
        while number not in device.acks and number not in device.postponed:
            await asyncio.sleep(0.005)
    return device.acks.get(number)


async def test_two_bridges_that_meet_a_field_at_once_accept_one_type_and_refuse_nobody(
    here: World,
) -> None:
    """Half of the devices send text and half numbers, to two bridges, in the same moment: what is
    of the other type stands beside.
    """
    here.bridge("b-types-1")
    here.bridge("b-types-2")
    devices = await fleet(here, "types", "types")
    for number, device in enumerate(devices):
        device.publish(b'{"v":1}' if number % 2 else b'{"v":"one"}', correlation=b"1")
    for device in devices:
        assert (await device.answered(1)).rejected is None
    values = sent_of(here, devices)
    assert len(values) == DEVICES
    assert sum(value is None for value in values) == DEVICES / 2
    assert len({type(value) for value in values if value is not None}) == 1


def frame_of(value: object, number: int) -> bytes:
    return encode(Frame(1, number, number, [1_790_000_000_000], {"v": [value]}))  # type: ignore[list-item]


async def test_an_agent_that_was_told_later_is_accepted_after_an_operator_changed_the_type(
    here: World,
) -> None:
    here.bridge("b-change")
    liar, honest = await fleet(here, "change", "change", 2)
    liar.publish(b'{"v":"warm"}', correlation=b"1")
    assert (await liar.answered(1)).rejected is None
    honest.publish(frame_of(1, 1), correlation=b"1", content_type=FRAME_TYPE)
    later = await honest.told_later(1)
    assert later.reason is LaterReason.FIELD_TYPE
    assert later.retry_after_ms > 0
    assert "expected a string, found a number" in later.detail
    assert sent_of(here, [honest]) == []
    declare(here, Stream(name="change", fields={"v": FieldInfo(type=FieldType.NUMBER, revision=1)}))
    async with asyncio.timeout(PATIENCE_S):
        number = 2
        while number - 1 not in honest.acks:
            honest.publish(
                frame_of(1, 1),
                correlation=b"%d" % number,
                packet_id=number,
                content_type=FRAME_TYPE,
            )
            await one_answer(honest, number)
            number += 1
    liar.publish(frame_of("warm", 1), correlation=b"2", packet_id=2, content_type=FRAME_TYPE)
    refused = await liar.answered(2)
    assert refused.rejected is RejectReason.FIELD_TYPE
    assert refused.types == {"v": FieldType.NUMBER}, "so that the next ones are right"


@pytest.mark.long
async def test_a_frame_without_an_answer_is_a_dead_letter_where_others_are_told_later(
    here: World,
) -> None:
    here.bridge("b-plain")
    (device,) = await fleet(here, "plain", "plain", 1)
    for number, payload in enumerate((b'{"v":1}', frame_of("text", 1), b'{"v":2}'), 1):
        kind = FRAME_TYPE if number == 2 else None
        device.publish(payload, packet_id=number, response_topic=None, content_type=kind)
    device.publish(b'{"v":3}', correlation=b"9", packet_id=9)
    assert (await device.answered(9)).rejected is None
    assert sent_of(here, [device]) == [1, 2, 3]
    (letter,) = await read_some(here.config, topics.DEAD, device.name)
    assert DeadLetter.from_headers(letter.headers() or ()).reason == RejectReason.FIELD_TYPE


async def test_what_an_agent_says_of_its_fields_is_in_the_catalogue_and_not_in_its_row(
    here: World,
) -> None:
    here.bridge("b-said")
    (device,) = await fleet(here, "said", "said", 1)
    device.publish(b'{"a_b":1}', correlation=b"1")
    assert (await device.answered(1)).rejected is None
    known = {"said": {"a_b": {"path": "a-b", "unit": "Cel"}}}
    status = DeviceStatus(device=device.name, state=DeviceState.ONLINE, epoch=1, fields=known)
    topic = topics.status(device.name)
    device.publish(status.to_json(), correlation=b"2", packet_id=2, topic=topic)
    assert (await device.answered(2)).rejected is None
    wait_until(lambda: said_of(here, "said") == {"a_b": ("a-b", "°C")}, "it is known")
    (row,) = read(here.config, topics.DEVICES, device=f"{device.name}|status")
    assert DeviceStatus.from_json(row.value() or b"").fields is None


def said_of(world: World, stream: str) -> dict[str, tuple[str, str]]:
    """Path and unit of each field of a stream, by the catalogue."""
    table = StreamTable()
    for one in read(world.config, topics.STREAMS):
        table.apply((one.key() or b"").decode(), one.value())
    row = table.get(stream)
    return {} if row is None else {name: (one.path, one.unit) for name, one in row.fields.items()}


@pytest.mark.long
async def test_a_device_can_take_neither_a_querys_name_nor_one_of_the_systems(here: World) -> None:
    here.bridge("b-names")
    (device,) = await fleet(here, "names", "names", 1)
    declare(here, Stream(name="top_streets", kind=NameKind.QUERY, claim="1"))
    declare(here, Stream(name="part_status", fields={"part": FieldInfo(type=FieldType.STRING)}))
    for number, stream in enumerate(("top_streets", "part_status"), 1):
        device.publish(
            b'{"part":"x"}',
            correlation=b"%d" % number,
            packet_id=number,
            topic=topics.up(device.name, stream),
        )
        assert (await device.answered(number)).rejected is RejectReason.NAME
    assert read(here.config, topics.UP, device=device.name) == []


async def test_a_device_that_invents_streams_ends_at_its_share_and_others_go_on(
    here: World,
) -> None:
    """Nothing of what is over the share reaches Kafka but a dead letter, or nothing at all where
    the device can be told.
    """
    here.bridge("b-share")
    greedy, modest = await fleet(here, "share", "share", 2)
    for number in range(1, 61):
        greedy.publish(
            b'{"v":1}',
            correlation=b"%d" % number,
            packet_id=number,
            topic=topics.up(greedy.name, f"invented_{number}"),
        )
    answers = await asyncio.gather(*(one_answer(greedy, number) for number in range(1, 61)))
    assert sum(answer is not None for answer in answers) == 32
    assert {later.reason for later in greedy.postponed.values()} == {LaterReason.QUOTA}
    assert len(sent_of(here, [greedy])) == 32
    modest.publish(b'{"v":1}', correlation=b"1")
    assert (await modest.answered(1)).rejected is None
