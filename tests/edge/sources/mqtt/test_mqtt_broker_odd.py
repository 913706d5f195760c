"""A local broker that is odd, hostile or broken: what it costs is itself, and a message is gone
only when its readings are kept.
"""

from __future__ import annotations

import asyncio

import mqtt5
import pytest

from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.mqtt import mqtt_subscribe
from edgewake.edge.sources.mqtt.mqtt_subscribe import MqttSubscribe, MqttSubscribeConfig, bodies
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.errors import Rejected, RemoteError, Unavailable
from edgewake.protocol.mqtt import PACKET_BYTES_MAX
from tests.edge.scripted_broker import CONNECT, Broker, by
from tests.edge.sources.cage import served
from tests.edge.sources.sink import MemorySink, context, running
from tests.services import PATIENCE_S


def acknowledged(brokers: list[Broker]) -> list[int]:
    """Packet ids that the client acknowledged, in order."""
    return [
        each.packet_id
        for broker in brokers
        for each in broker.heard
        if isinstance(each, mqtt5.PubAckPacket)
    ]


def message(
    n: object, packet_id: int | None = None, *, duplicate: bool = False, topic: str = "t/room"
) -> mqtt5.PublishPacket:
    qos = mqtt5.QoS.AT_MOST_ONCE if packet_id is None else mqtt5.QoS.AT_LEAST_ONCE
    return mqtt5.PublishPacket(
        topic, b'{"n": %d}' % n, qos=qos, packet_id=packet_id, duplicate=duplicate
    )  # type: ignore[str-bytes-safe]


def source(port: int, position: str | None = None, **more: object) -> MqttSubscribe:
    config = MqttSubscribeConfig(
        type="mqtt_subscribe", stream="s", topic="t/{room}", broker=BrokerConfig(port=port), **more
    )  # type: ignore[arg-type]
    return MqttSubscribe(config, context(position))


def large(packet_id: int, size: int) -> bytes:
    """A publish over the bound."""
    return mqtt5.PublishPacket(
        "t/room", b" " * size, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id
    ).write()


async def test_a_message_past_the_bound_is_refused_and_acknowledged_and_the_next_are_taken() -> (
    None
):
    """Not acknowledged, the broker would send it again at each connection, and nothing behind it
    would ever come.
    """
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1, 1), large(2, PACKET_BYTES_MAX), message(3, 3))
        await broker.hears(mqtt5.PubAckPacket, 3)

    async with served(by(script, brokers)) as port, running(source(port)) as one:
        await one.until(lambda: acknowledged(brokers) == [1, 2, 3])
        assert one.sink.values() == [1, 3]
        assert dict(one.intake.refused) == {"oversize": 1}
        assert one.sink.lost == {"refused": 1}


async def test_a_message_that_is_no_mqtt_is_refused_and_the_next_one_is_taken() -> None:
    """Its properties are longer than it is; its packet id can be read all the same, and is
    acknowledged.
    """
    brokers: list[Broker] = []
    bad = b"\x32\x09" + b"\x00\x03t/a" + b"\x00\x07" + b"\x7f" + b"x"

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(bad, message(2, 8))
        await broker.hears(mqtt5.PubAckPacket, 2)

    async with served(by(script, brokers)) as port, running(source(port)) as one:
        await one.until(lambda: acknowledged(brokers) == [7, 8])
        assert one.sink.values() == [2]
        assert dict(one.intake.refused) == {"encoding": 1}


async def test_a_message_that_could_not_be_passed_on_is_taken_when_it_is_sent_again() -> None:
    """The log raised; the same source is run again, and the broker sends the message once more,
    marked as a repetition.
    """

    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1, 1, duplicate=True))
        await broker.hears(mqtt5.PubAckPacket)

    sink = MemorySink()
    sink.failures = [RuntimeError("the log")]
    async with served(by(script, brokers)) as port:
        same = source(port)
        async with running(same, sink) as one:
            assert isinstance(await one.error(), RuntimeError)
        async with running(same, sink) as one:
            await one.until(lambda: sink.values() == [1])
        async with running(same, sink) as one:
            await one.until(lambda: acknowledged(brokers[-1:]) == [1])
        assert sink.values() == [1]


@pytest.mark.parametrize(
    ("again", "taken"),
    [
        (message(1, 5, duplicate=True), [1]),
        (message(1, 5), [1, 1]),
        (message(2, 5, duplicate=True), [1, 2]),
        (message(1, 6, duplicate=True), [1, 1]),
        (message(1, 5, duplicate=True, topic="t/other"), [1, 1]),
        (message(1), [1, 1]),
    ],
    ids=[
        "a repetition",
        "not marked",
        "another content",
        "another packet id",
        "another topic",
        "QoS 0",
    ],
)
async def test_only_what_is_a_repetition_in_every_respect_is_left_out(
    again: mqtt5.PublishPacket, taken: list[int]
) -> None:
    """It is acknowledged all the same: the broker waits for that."""
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1, 5), again, message(9, 99))
        await broker.hears(mqtt5.PubAckPacket, 4)

    async with served(by(script, brokers)) as port, running(source(port)) as one:
        await one.until(lambda: 99 in acknowledged(brokers))
        assert one.sink.values() == [*taken, 9]
        assert acknowledged(brokers) == [5, *([again.packet_id] if again.packet_id else []), 99]


async def test_what_was_taken_before_a_crash_is_known_by_what_the_log_kept() -> None:
    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1, 5, duplicate=True), message(2, 6))

    async with served(by(script)) as port:
        async with running(source(port)) as one:
            await one.until(lambda: one.sink.values() == [1, 2])
            kept = one.sink.positions[-1]
        async with running(source(port, kept)) as one:
            await one.until(lambda: one.sink.values() == [2])
        async with running(source(port, "nonsense")) as one:
            await one.until(lambda: one.sink.values() == [1, 2])


async def test_messages_that_come_with_the_connack_are_taken() -> None:
    """A broker that kept them may send them before the SUBACK, in one piece with the CONNACK."""

    async def script(broker: Broker) -> None:
        await broker.subscribed(message(1, 1), message(2, 2))

    async with served(by(script)) as port, running(source(port)) as one:
        await one.until(lambda: one.sink.values() == [1, 2])


async def test_nothing_is_acknowledged_while_nothing_is_durable_and_then_in_order() -> None:
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1, 3), message(2), message(3, 1), message(4, 2))
        await broker.hears(mqtt5.PubAckPacket, 3)

    sink = MemorySink()
    sink.durable_now.clear()
    async with served(by(script, brokers)) as port, running(source(port), sink) as one:
        await one.until(lambda: sink.values() == [1, 2, 3, 4])
        assert acknowledged(brokers) == []
        sink.durable_now.set()
        await one.until(lambda: acknowledged(brokers) == [3, 1, 2])


async def test_at_the_stop_only_what_nobody_sends_again_is_passed_on_or_said_to_be_lost() -> None:
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1, 3), message(2), message(3, 1))

    sink = MemorySink()
    sink.is_full = True
    async with (
        served(by(script, brokers)) as port,
        running(source(port), sink, Policy.BLOCK) as one,
    ):
        await one.until(lambda: sink.waiting)
    assert (sink.values(), sink.lost) == ([], {"stopped": 1}), "those of QoS 1 come again"


async def test_while_the_log_is_full_a_message_waits_and_is_not_acknowledged() -> None:
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1, 1))
        await broker.hears(mqtt5.PubAckPacket)

    sink = MemorySink()
    sink.is_full = True
    async with (
        served(by(script, brokers)) as port,
        running(source(port), sink, Policy.BLOCK) as one,
    ):
        await one.until(
            lambda: (
                brokers
                and any(isinstance(each, mqtt5.SubscribePacket) for each in brokers[0].heard)
            )
        )
        assert sink.readings == []
        sink.free()
        await one.until(lambda: acknowledged(brokers) == [1])
        assert sink.values() == [1]


@pytest.mark.parametrize(
    ("said", "error", "says"),
    [
        (
            mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED),
            Unavailable,
            "refused: not_authorized",
        ),
        (mqtt5.SubAckPacket(1, []), Unavailable, "no MQTT 5 broker"),
        (mqtt5.PingRespPacket(), Unavailable, "no MQTT 5 broker"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 100, RemoteError, "MQTT"),
        (b"\x00\x00", RemoteError, "MQTT"),
        (b"\x20\xff\xff\xff\xff\x7f", RemoteError, "MQTT|length"),
    ],
    ids=[
        "refused",
        "SUBACK first",
        "PINGRESP first",
        "HTTP",
        "a type that is none",
        "a length that is none",
    ],
)
async def test_a_broker_that_does_not_let_us_in_is_named(
    said: object, error: type[Exception], says: str
) -> None:
    async def script(broker: Broker) -> None:
        await broker.hears(CONNECT)
        broker.send(said)

    async with served(by(script)) as port, running(source(port)) as one:
        found = await one.error()
    assert isinstance(found, error)
    assert says.split("|")[0] in str(found) or says.split("|")[-1] in str(found)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (
            mqtt5.SubAckPacket(1, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]),
            "refused the subscription: not_authorized",
        ),
        (
            mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER),
            "disconnected: session_taken_over",
        ),
    ],
    ids=["no right to subscribe", "somebody else has our name"],
)
async def test_a_broker_that_takes_back_its_word_is_left(said: object, says: str) -> None:
    async def script(broker: Broker) -> None:
        await broker.hears(CONNECT)
        broker.send(mqtt5.ConnAckPacket())
        await broker.hears(mqtt5.SubscribePacket)
        broker.send(said)

    async with served(by(script)) as port, running(source(port)) as one:
        assert says in str(await one.error())


async def test_a_broker_that_says_nothing_is_pinged_and_then_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqtt_subscribe, "KEEPALIVE_S", 0.05)
    pinged = asyncio.Event()

    async def script(broker: Broker) -> None:
        await broker.hears(CONNECT)
        broker.send(mqtt5.ConnAckPacket())
        await broker.hears(mqtt5.PingReqPacket)
        pinged.set()

    monkeypatch.setattr(
        mqtt5, "ConnectPacket", lambda *args, **named: CONNECT(*args, **(named | {"keep_alive": 1}))
    )
    async with served(by(script)) as port, asyncio.timeout(PATIENCE_S):
        while not pinged.is_set():
            async with running(source(port)) as one:
                assert "nothing heard of the broker" in str(await one.error())


@pytest.mark.parametrize(
    ("session_s", "clean"),
    [(0, True), (1, False), (86_400, False)],
    ids=["no session", "a short one", "the usual one"],
)
async def test_the_session_that_was_configured_is_asked_for(session_s: int, clean: bool) -> None:
    brokers: list[Broker] = []

    async def script(broker: Broker) -> None:
        await broker.subscribed()
        broker.send(message(1))

    async with (
        served(by(script, brokers)) as port,
        running(source(port, session_s=session_s)) as one,
    ):
        await one.until(lambda: one.sink.readings)
    (connect,) = await brokers[0].hears(CONNECT)
    (subscribe,) = await brokers[0].hears(mqtt5.SubscribePacket)
    assert (connect.clean_start, connect.session_expiry_interval) == (clean, session_s)  # type: ignore[attr-defined]
    assert connect.client_id == "edgewake-d1-s"  # type: ignore[attr-defined]
    assert [each.pattern for each in subscribe.topic_filters] == ["t/+"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b"21.5", [{"v": 21.5}]),
        (b"-3", [{"v": -3}]),
        (b"true", [{"v": True}]),
        (b'"on"', [{"v": "on"}]),
        (b"on", [{"v": "on"}]),
        (b"21,5", [{"v": "21,5"}]),
        (b"nan", [{"v": None}]),
        (b"-Infinity", [{"v": None}]),
        (b"NaN", [{"v": None}]),
        (b'{"temp": NaN, "hum": 48}', [{"temp": None, "hum": 48}]),
        (b"1\n2", [{"v": 1}, {"v": 2}]),
        (b"a\nb", [{"v": "a\nb"}]),
        (b"[1, 2]", [{"v": 1}, {"v": 2}]),
        (b"null", [{"v": None}]),
        (b'\xef\xbb\xbf{"a": 1}', [{"a": 1}]),
        (b'{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("warm, 21 °C".encode(), [{"v": "warm, 21 °C"}]),
    ],
)
def test_what_a_payload_of_any_form_holds(payload: bytes, found: list[object]) -> None:
    assert bodies(payload, "v") == found


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"{'temp': 1}",
        b' {"temp": 21.5, "hu',
        b"[1, 2",
        b'\xef\xbb\xbf{"a"',
        b'{"a": 1}\n{"a": ',
    ],
)
def test_what_begins_as_json_and_is_none_is_refused_and_no_text(payload: bytes) -> None:
    with pytest.raises(Rejected, match="begins as JSON but is not valid JSON"):
        bodies(payload, "v")


@pytest.mark.parametrize(
    "payload", [b"\xff\xfe{", b"\x80", "°".encode("latin-1"), b" " * (1 << 20) + b" 1"]
)
def test_a_payload_of_bytes_or_past_its_bound_is_refused(payload: bytes) -> None:
    with pytest.raises(Rejected):
        bodies(payload, "v")
