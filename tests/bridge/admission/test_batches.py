"""Several readings of a plain device in one message: each goes its own way, one answer for all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import mqtt5
import orjson
import pytest

from edgewake.cloud.bridge.admission.batches import parts
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import record
from edgewake.protocol.frames.ack import Ack, decode_answer
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.maps.rule import READINGS_MAX
from edgewake.protocol.mqtt import PacketReader
from tests.bridge.running import World, read, read_some
from tests.services import PATIENCE_S

NOW_MS = 1_790_000_000_000
UP = "ew/v1/d/up/s"


def packet(payload: bytes, **more: object) -> mqtt5.PublishPacket:
    return mqtt5.PublishPacket(UP, payload, **more)  # type: ignore[arg-type]


def test_a_list_of_too_many_loses_those_past_the_bound_and_says_so() -> None:
    found = parts(packet(orjson.dumps([{"v": n} for n in range(READINGS_MAX + 1)])), NOW_MS)
    assert found is not None
    assert len(found) == READINGS_MAX + 1
    assert found[-1].refusal is not None
    assert found[-1].refusal.reason is RejectReason.OVERSIZE


def test_what_is_none_is_refused_whole_and_an_empty_list_is_looked_at_as_ever() -> None:
    (one,) = parts(packet(b"[{"), NOW_MS) or []
    assert one.refusal is not None
    assert one.refusal.reason is RejectReason.JSON
    assert parts(packet(b"[]"), NOW_MS) is None
    assert parts(packet(b"[1, 2]"), NOW_MS) is None


def test_who_asks_for_the_answer_on_the_topic_of_another_is_looked_at_as_ever() -> None:
    assert parts(packet(b"[{}]", response_topic="ew/v1/other/ack"), NOW_MS) is None


def test_a_wrong_event_among_others_is_refused_by_itself() -> None:
    good = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"v": 1}}
    batch = orjson.dumps([good, {"specversion": "1.0"}])
    one, bad = parts(packet(batch, content_type="application/cloudevents-batch+json"), NOW_MS) or []
    assert one.refusal is None
    assert orjson.loads(one.packet.payload)["v"] == 1  # type: ignore[union-attr]
    assert bad.refusal is not None
    assert (bad.refusal.reason, bad.packet.topic) == (RejectReason.SHAPE, UP)


@dataclass
class Sender(asyncio.Protocol):
    """A plain device that waits for answers."""

    device: str
    answers: list[Ack] = field(default_factory=list)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    reader: PacketReader = field(default_factory=PacketReader)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(mqtt5.ConnectPacket(self.device).write())
        wanted = [mqtt5.TopicFilter(topics.ack(self.device))]
        self.transport.write(mqtt5.SubscribePacket(1, wanted).write())

    def data_received(self, data: bytes) -> None:
        for one in self.reader.feed(data):
            if isinstance(one, mqtt5.SubAckPacket):
                self.subscribed.set()
            elif isinstance(one, mqtt5.PublishPacket):
                answer = decode_answer(one.payload)
                assert isinstance(answer, Ack)
                self.answers.append(answer)

    def send(self, stream: str, payload: bytes, content_type: str | None = None) -> None:
        self.transport.write(
            mqtt5.PublishPacket(
                topics.up(self.device, stream),
                payload,
                qos=mqtt5.QoS.AT_LEAST_ONCE,
                packet_id=7,
                response_topic=topics.ack(self.device),
                content_type=content_type,
            ).write()
        )


async def test_a_list_becomes_readings_and_a_wrong_one_costs_itself_and_one_answer_tells(
    here: World,
) -> None:
    here.bridge("b-batch")
    loop = asyncio.get_running_loop()
    _, sender = await loop.create_connection(
        lambda: Sender("batch-1"), here.broker.host, here.broker.port
    )
    async with asyncio.timeout(30):
        await sender.subscribed.wait()
        sender.send("batch", b'[{"v":1,"seq":1},{"v":2,"seq":2},{"v":3,"seq":3}]')
        while not sender.answers:
            await asyncio.sleep(0.01)
        sender.send("batch", b'[{"v":4,"seq":4},7,{"v":"warm","h":48,"seq":5}]')
        while len(sender.answers) < 2:
            await asyncio.sleep(0.01)
    sender.transport.close()
    good, partly = sender.answers
    assert good.rejected is None
    assert partly.rejected is RejectReason.SHAPE
    found = [
        record.decode(one.value() or b"").frame
        for one in await read_some(here.config, topics.UP, "batch-1", 5)
    ]
    assert [(one.seq, one.fields["v"]) for one in found[:4]] == [(n, [n]) for n in range(1, 5)]
    assert found[4].fields == {"v": [None], "h": [48], "v_odd": ["warm"]}
    (letter,) = await read_some(here.config, topics.DEAD, "batch-1")
    assert letter.value() == b"7"
    assert DeadLetter.from_headers(letter.headers() or []).reason == RejectReason.SHAPE
    dead = {(one.partition(), one.offset()) for one in read(here.config, topics.DEAD)}
    assert partly.token.dead
    assert (partly.token.partition, partly.token.offset) in dead


@pytest.mark.long
async def test_a_list_is_taken_whole_where_its_device_has_anything_left(here: World) -> None:
    """And leaves a debt; its later readings were dead letters before."""
    here.bridge("b-debt", mqtt="[device]\nmessages_per_s = 10\nburst_s = 1\n")
    loop = asyncio.get_running_loop()
    _, sender = await loop.create_connection(
        lambda: Sender("debt-1"), here.broker.host, here.broker.port
    )
    async with asyncio.timeout(30):
        await sender.subscribed.wait()
        readings = [{"v": n, "seq": n} for n in range(1, 51)]
        sender.send("debt", orjson.dumps(readings))
        while not sender.answers:
            await asyncio.sleep(0.01)
    sender.transport.close()
    assert [one.rejected for one in sender.answers] == [None]
    assert len(await read_some(here.config, topics.UP, "debt-1", 50)) == 50


async def test_senml_and_lines_are_told_by_their_content_type_at_a_real_broker(here: World) -> None:
    here.bridge("b-types")
    loop = asyncio.get_running_loop()
    _, sender = await loop.create_connection(
        lambda: Sender("contents-1"), here.broker.host, here.broker.port
    )
    pack = b'[{"bn":"b/","bt":1790000000,"bu":"Cel","n":"temp","v":21.5},{"n":"temp","t":1,"v":22}]'
    lines = b'{"v":1}\nnonsense\n{"v":2}\n'
    async with asyncio.timeout(PATIENCE_S):
        await sender.subscribed.wait()
        for count, (stream, payload, kind) in enumerate(
            [
                ("types_senml", pack, "application/senml+json; charset=utf-8"),
                ("types_lines", lines, "application/x-ndjson; charset=utf-8"),
            ],
            1,
        ):
            sender.send(stream, payload, kind)
            while len(sender.answers) < count:
                await asyncio.sleep(0.01)
    sender.transport.close()
    assert [one.rejected for one in sender.answers] == [None, RejectReason.JSON]
    found = [
        record.decode(one.value() or b"")
        for one in await read_some(here.config, topics.UP, "contents-1", 4)
    ]
    senml = [one.frame for one in found if one.stream == "types_senml"]
    assert [(one.t[0], one.fields["temp"]) for one in senml] == [
        (1_790_000_000_000, [21.5]),
        (1_790_000_001_000, [22]),
    ]
    assert set(senml[0].fields) == {"temp", "base_name"}, "the unit is the field's, not its own"
    rows = await read_some(here.config, topics.STREAMS, "types_senml", 2)
    assert Stream.model_validate_json(rows[-1].value() or b"").fields["temp"].unit == "°C"
    plain = [one.frame.fields["v"] for one in found if one.stream == "types_lines"]
    assert plain == [[1], [2]]
    (letter,) = await read_some(here.config, topics.DEAD, "contents-1")
    assert letter.value() == b"nonsense"
