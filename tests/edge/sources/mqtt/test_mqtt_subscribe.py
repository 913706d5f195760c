"""A local broker: topics become fields, and a message is acknowledged when it is durable, so it is
taken exactly once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mqtt5
import paho.mqtt.client as paho
import pytest
from paho.mqtt import publish
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.edge.sources.mqtt import mqtt_subscribe
from edgewake.edge.sources.mqtt.mqtt_subscribe import Link, MqttSubscribeConfig, bodies
from edgewake.edge.sources.mqtt.recent_packets import PACKETS_MAX, RecentPackets
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.errors import Rejected
from edgewake.protocol.maps.topic import TopicTemplate
from tests.edge.sources.cage import caged, served
from tests.services import PATIENCE_S, Mosquitto


def config(port: int, topic: str, **more: object) -> MqttSubscribeConfig:
    return MqttSubscribeConfig(
        type="mqtt_subscribe", stream="s", topic=topic, broker=BrokerConfig(port=port), **more
    )  # type: ignore[arg-type]


async def send(broker: Mosquitto, topic: str, *payloads: str) -> None:
    """Publish with QoS 1, acknowledged by the broker."""
    messages = [{"topic": topic, "payload": payload, "qos": 1} for payload in payloads]
    await asyncio.to_thread(publish.multiple, messages, broker.host, broker.port)


async def test_topics_become_fields_and_values_of_every_form_readings(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    to = config(mosquitto.port, "t1/{room}/+/{kind}")
    async with caged(tmp_path, to) as one:
        await subscribed(one, mosquitto, "t1/x/y/z")
        await send(
            mosquitto,
            "t1/kitchen/a/temperature",
            "21.5",
            '{"value": 22, "unit": "C"}',
            '[{"value": 23}]',
            "",
            "warm",
        )
        await one.until(lambda: one.column("room").count("kitchen") >= 4, "four readings")
        # Behind as many as it took until the first came through.
        first = one.column("room").index("kitchen")
        assert one.column("room")[first:] == ["kitchen"] * 4
        assert one.column("kind")[first:] == ["temperature"] * 4
        assert one.column("value")[first : first + 3] == [21.5, 22, 23]


async def test_senml_and_events_are_told_by_their_content_type(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """A pack was a reading for each of its records, with `n` and `v` as fields."""
    to = config(mosquitto.port, "t1c/{room}")
    async with caged(tmp_path, to) as one:
        await subscribed(one, mosquitto, "t1c/x")
        senml, event = Properties(PacketTypes.PUBLISH), Properties(PacketTypes.PUBLISH)
        senml.ContentType = "application/senml+json; charset=utf-8"
        event.UserProperty = [
            ("specversion", "1.0"), ("id", "7"), ("source", "/s"), ("type", "t"),
        ]  # fmt: skip
        pack = b'[{"bn":"b/","bt":1790000000,"n":"temp","u":"Cel","v":21.5},{"n":"hum","v":48}]'
        with connected(mosquitto, paho.MQTTv5) as client:
            client.publish("t1c/hall", pack, 1, properties=senml).wait_for_publish(PATIENCE_S)
            client.publish("t1c/bath", b'{"temp":23}', 1, properties=event).wait_for_publish(
                PATIENCE_S
            )
        await one.until(lambda: "bath" in one.column("room"), "both")
        at = one.column("room").index("hall")
        assert (one.column("temp")[at], one.column("hum")[at]) == (21.5, 48)
        assert one.units() == {"temp": "Cel"}
        assert one.column("event_id")[one.column("room").index("bath")] == "7"


async def test_a_part_of_the_topic_leaves_a_value_of_its_name_beside_it(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    async with caged(tmp_path, config(mosquitto.port, "t2/{room}/k")) as one:
        await subscribed(one, mosquitto, "t2/hall/k")
        await send(mosquitto, "t2/hall/k", '{"room": 2, "value": 1}')
        await one.until(lambda: 2 in one.column("room_"), "the payload's own")
        assert set(one.column("room")) == {"hall"}


async def subscribed(one: object, broker: Mosquitto, topic: str) -> None:
    """Wait until messages come through."""
    async with asyncio.timeout(PATIENCE_S):
        while not one.intake.taken:  # type: ignore[attr-defined]
            await send(broker, topic, "0")
            await one.until(lambda: True, "")  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("says_words", [True, False], ids=["pings", "control"])
async def test_a_broker_that_sends_without_end_and_is_never_answered_keeps_the_connection(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch, says_words: bool
) -> None:
    """Messages of QoS 0, which most plugs and sensors send, are not answered: for the broker such a
    client is dead after 1.5 keepalives.
    """
    keepalive_s, looks_s = 1, 5  # Mosquitto looks for dead clients every five seconds
    monkeypatch.setattr(mqtt_subscribe, "KEEPALIVE_S", keepalive_s)
    if not says_words:
        monkeypatch.setattr(Link, "_ping_when_due", lambda _: None)
    topic = f"t9/{says_words}"
    async with caged(tmp_path, config(mosquitto.port, topic)) as one:
        until = asyncio.get_running_loop().time() + 2 * (keepalive_s + looks_s)
        with connected(mosquitto) as client:
            while asyncio.get_running_loop().time() < until and not one.supervisor.failures:
                client.publish(topic, "1", qos=0)
                await asyncio.sleep(keepalive_s / 10)  # more often than anybody would ping
        assert one.intake.taken > 5
        assert (one.supervisor.failures == 0) == says_words


@contextmanager
def connected(
    broker: Mosquitto, protocol: paho.MQTTProtocolVersion = paho.MQTTv311
) -> Iterator[paho.Client]:
    """A client that publishes."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=protocol)
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("remembers", [True, False], ids=["remembers", "control"])
async def test_messages_whose_acknowledgement_was_lost_are_taken_once_and_those_sent_meanwhile_too(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    topic = f"t2/{remembers}"
    to = config(mosquitto.port, topic)
    acknowledged: list[object] = []
    unheard = threading.Event()

    def sending(self: Link, packet: object) -> None:
        if type(packet).__name__ == "PubAckPacket":
            acknowledged.append(packet)
            if unheard.is_set():
                return
        self._writer.write(packet.write())  # type: ignore[attr-defined]

    monkeypatch.setattr(Link, "send", sending)
    if not remembers:
        monkeypatch.setattr(RecentPackets, "is_repeat", lambda *_: False)
    async with caged(tmp_path, to, device=f"t2-{remembers}", answering=False) as one:
        await one.until(lambda: one.supervisor.state == "running", "it runs")
        await subscribed(one, mosquitto, topic)
        unheard.set()
        acknowledged.clear()
        await send(mosquitto, topic, *(f'{{"n": {n}}}' for n in range(10)))
        await one.until(
            lambda: 9 in one.column("n") and len(acknowledged) >= 10, "ten, acknowledged to nobody"
        )
    unheard.clear()
    await send(mosquitto, topic, '{"n": 10}', '{"n": 11}')
    async with caged(tmp_path, to, device=f"t2-{remembers}", answering=False) as one:
        await one.until(lambda: 11 in one.column("n"), "what was sent while it was away")
        got = [n for n in one.column("n") if n is not None]
    assert (got == list(range(12))) is remembers
    assert set(got) == set(range(12))


async def test_nothing_is_acknowledged_before_it_is_durable(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    armed, go, stood = threading.Event(), threading.Event(), threading.Event()
    acknowledged: list[object] = []
    plain = Link.send

    def sending(self: Link, packet: object) -> None:
        if type(packet).__name__ == "PubAckPacket":
            acknowledged.append(packet)
        plain(self, packet)  # type: ignore[arg-type]

    monkeypatch.setattr(Link, "send", sending)

    def failpoint(_name: str) -> None:
        if armed.is_set():
            stood.set()
            go.wait(PATIENCE_S)

    async with caged(
        tmp_path, config(mosquitto.port, "t3/{n}"), failpoint=failpoint, device="t3"
    ) as one:
        armed.set()
        try:
            await subscribed(one, mosquitto, "t3/a")
            await one.until(stood.is_set, "the writer stands")
            assert acknowledged == []
        finally:
            go.set()
        await one.until(lambda: acknowledged, "an acknowledgement")


@pytest.mark.parametrize(
    "what",
    [b"HTTP/1.1 400 Bad\r\n\r\n", b"", b"\x20\x03\x00\x87\x00"],
    ids=["no MQTT", "closes", "refuses"],
)
async def test_a_broker_that_is_none_or_refuses_is_left(tmp_path: Path, what: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(what)
        await writer.drain()
        writer.close()

    async with served(handler) as port, caged(tmp_path, config(port, "x")) as one:
        await one.until(lambda: one.supervisor.failures >= 2, "failures")
        assert one.intake.taken == 0


@pytest.mark.parametrize(
    ("text", "wanted", "topic", "fields"),
    [
        ("a/{b}/c", "a/+/c", "a/x/c", {"b": "x"}),
        ("{site}/+/{room}/#", "+/+/+/#", "s/1/r/t/u", {"site": "s", "room": "r"}),
        ("a", "a", "a", {}),
    ],
)
def test_templates(text: str, wanted: str, topic: str, fields: dict[str, str]) -> None:
    template = TopicTemplate.parse(text)
    assert (template.filter, template.fields(topic)) == (wanted, fields)


@pytest.mark.parametrize(
    "text", ["", "a/#/b", "a#", "a+", "{a b}", "x{a}", "{a}/{a}", "{}", "a\0", "x" * 600, "{1a}"]
)
def test_templates_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|level|end|field"):
        TopicTemplate.parse(text)


def test_what_a_payload_holds() -> None:
    assert bodies(b"21.5", "v") == [{"v": 21.5}]
    assert bodies(b'"on"', "v") == bodies(b"on", "v") == [{"v": "on"}]
    assert bodies(b'{"a": 1}\n{"a": 2}', "v") == [{"a": 1}, {"a": 2}]
    for payload in (b"\xff", b"x" * (2 << 20)):
        with pytest.raises(Rejected):
            bodies(payload, "v")


def test_the_last_messages_are_remembered_as_text() -> None:
    recent = RecentPackets()
    for n in range(1, PACKETS_MAX + 3):
        recent.add(n, "t", b"%d" % n)
    again = RecentPackets.decode(recent.encode())
    assert not again.is_repeat(2, "t", b"2")
    assert again.is_repeat(3, "t", b"3")
    assert not again.is_repeat(3, "t", b"4")
    assert RecentPackets.decode(None).encode() == ""


async def test_a_large_message_may_come_in_thousands_of_pieces() -> None:
    reader = asyncio.StreamReader()
    packet = mqtt5.PublishPacket("a", bytes(5000), qos=mqtt5.QoS.AT_MOST_ONCE).write()

    async def come() -> None:
        for byte in packet:
            reader.feed_data(bytes([byte]))
            await asyncio.sleep(0)

    coming = asyncio.create_task(come())
    found = await Link(reader, None).publishes()  # type: ignore[arg-type]
    await coming
    assert [message.payload for message in found] == [bytes(5000)]


async def test_two_sources_of_one_stream_take_what_each_subscribes_to(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    first, second = (
        config(mosquitto.port, "t9/a/{room}"),
        config(mosquitto.port, "t9/b/{kind}", client_id="t9-second"),
    )
    async with (
        caged(tmp_path / "1", first, device="t9") as one,
        caged(tmp_path / "2", second, device="t9") as other,
    ):
        await subscribed(one, mosquitto, "t9/a/x")
        await subscribed(other, mosquitto, "t9/b/y")
        await send(mosquitto, "t9/a/kitchen", "1")
        await send(mosquitto, "t9/b/heat", "2")
        await one.until(lambda: "kitchen" in one.column("room"), "its message")
        await other.until(lambda: "heat" in other.column("kind"), "its message")
        assert (one.supervisor.failures, other.supervisor.failures) == (0, 0)


@pytest.mark.parametrize(
    ("retained", "starts"), [("first", [1, 0]), ("skip", [0, 0]), ("all", [1, 1])]
)
async def test_what_the_broker_keeps_comes_as_often_as_is_asked_and_says_so(
    tmp_path: Path, mosquitto: Mosquitto, retained: str, starts: list[int]
) -> None:
    """At every start of the agent it was a new reading."""
    topic = f"t6/{retained}"
    await asyncio.to_thread(
        publish.single, topic, '{"n": 1}', 1, True, mosquitto.host, mosquitto.port
    )
    to = config(mosquitto.port, topic, retained=retained)
    for n, kept in enumerate(starts):
        async with caged(tmp_path / str(n), to, device=f"t6-{retained}") as one:
            await one.until(lambda: one.supervisor.state == "running", "it runs")
            await subscribed(one, mosquitto, topic)
            await send(mosquitto, topic, '{"n": 2}')
            await one.until(lambda: 2 in one.column("n"), "a live one")
            assert one.column("retained")[one.column("n").index(2)] is None
            assert one.column("n").count(1) == kept
            assert [
                flag
                for n, flag in zip(one.column("n"), one.column("retained"), strict=True)
                if n == 1
            ] == [True] * kept


async def test_all_topics_of_the_uplinks_broker_feed_nothing_back(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    to = config(mosquitto.port, "{where...}")
    async with caged(tmp_path, to, device="t7") as one:
        await subscribed(one, mosquitto, "t7/x")
        await send(mosquitto, "ew/v1/t7/up/s", '{"n": 77}')
        await send(mosquitto, "t7/a/b/c", '{"n": 2}')
        await one.until(lambda: 2 in one.column("n"), "the other one")
        assert 77 not in one.column("n")
        assert one.intake.remarks["messages of ew/v1/… passed over"] >= 1
        assert one.intake.refused == {}
        assert "t7/a/b/c" in one.column("where")
    asked = config(mosquitto.port, "ew/v1/t7/up/{stream_name}")
    async with caged(tmp_path / "asked", asked, device="t7-2") as one:
        await subscribed(one, mosquitto, "ew/v1/t7/up/s")


@pytest.mark.parametrize(
    ("text", "topic", "pattern", "fields"),
    [
        ("home/{rest...}", "home/a/b", "home/#", {"rest": "a/b"}),
        ("home/{room}/{rest…}", "home/hall/a/b/c", "home/+/#", {"room": "hall", "rest": "a/b/c"}),
        ("home/{rest...}", "home", "home/#", {}),
        ("{rest...}", "a", "#", {"rest": "a"}),
        ("home/#", "home/a", "home/#", {}),
    ],
)
def test_a_template_may_have_a_rest(
    text: str, topic: str, pattern: str, fields: dict[str, str]
) -> None:
    template = TopicTemplate.parse(text)
    assert (template.filter, template.fields(topic)) == (pattern, fields)


def test_the_rest_stands_at_the_end() -> None:
    with pytest.raises(ValueError, match="expected only as the last level"):
        TopicTemplate.parse("a/{rest...}/b")
