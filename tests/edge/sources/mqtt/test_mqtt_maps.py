"""A local broker's devices by a map: the same file as at the bridge."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import mqtt5
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt import publish

from edgewake.edge.commands.maps import map_group
from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake import Intake, OneWaySink
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.intake.many_streams import ManyStreams
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.mqtt.mqtt_maps import SourceMaps
from edgewake.edge.sources.mqtt.mqtt_subscribe import MqttSubscribeConfig
from edgewake.edge.things.streams import STREAM
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import Rejected
from edgewake.protocol.maps import presets
from tests.edge.sources.cage import caged
from tests.edge.sources.mqtt.test_mqtt_subscribe import send
from tests.edge.sources.sink import MemorySink
from tests.payloads.corpus import broken, messages, payload_of
from tests.services import PATIENCE_S, Mosquitto, free_ports

MAPS = """
[[map]]
topic = "mm/{device}/sensor"
device = "{device}"
stream = "s"
each = "list"
time = { path = "at", format = "s" }
[[map]]
topic = "mm/{device}/other"
device = "{device}"
stream = "elsewhere"
"""


def config(port: int, **more: object) -> MqttSubscribeConfig:
    return MqttSubscribeConfig.checked(
        {"type": "mqtt_subscribe", "stream": "s", "broker": BrokerConfig(port=port), **more}
    )


async def test_a_map_makes_readings_of_messages_and_leaves_other_streams_to_their_sources(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    file = tmp_path / "maps.toml"
    file.write_text(MAPS.replace("mm/", "mm1/"))
    async with caged(tmp_path, config(mosquitto.port, maps=file)) as one:
        await subscribed_anew(one, mosquitto, "mm1/first/sensor", 0)
        await send(mosquitto, "mm1/d1/other", '{"v": 9}')
        await send(
            mosquitto,
            "mm1/d1/sensor",
            "{",
            '{"list": [{"at": 1790000000, "v": 1}, 7, {"at": 1790000001, "v": 2}]}',
        )
        await one.until(lambda: one.column("v")[-1:] == [2], "the last reading")
        assert one.column("v")[-3:] == [1, None, 2], one.intake.counts()
        assert one.column("thing")[-3:] == ["d1"] * 3
        assert [one.times()[-3], one.times()[-1]] == [1790000000000, 1790000001000]
        assert 9 not in one.column("v")
        assert one.intake.refused["json"] == 1


async def subscribed_anew(one: object, mosquitto: Mosquitto, topic: str, value: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while value not in one.column("v"):  # type: ignore[attr-defined]
            await send(mosquitto, topic, f'{{"list": [{{"v": {value}}}]}}')
            await one.until(lambda: True, "")  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)


ANNOUNCED = """
presets = ["home-assistant"]
[[map]]
topic = "mh/{device}/sensor"
device = "{device}"
stream = "s"
[map.fields]
"inner.v" = { name = "heat", as = "number" }
"""
HEAT = {
    "name": "Heat", "stat_cla": "measurement", "dev_cla": "temperature", "unit_of_meas": "°C",
    "stat_t": "mh/d1/sensor", "val_tpl": "{{ value_json.inner.v }}",
}  # fmt: skip
HEAT_TOPIC = "homeassistant/sensor/mh-heat/config"
HEAT_SAID = {"unit": "°C", "label": "Heat", "classes": "temperature, measurement"}


async def test_what_devices_announce_to_home_assistant_is_known_of_their_fields(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """Announcements are retained: they are there before the agent is, and its values come later."""
    sent = {"hostname": mosquitto.host, "port": mosquitto.port, "qos": 1, "retain": True}
    await asyncio.to_thread(publish.single, HEAT_TOPIC, json.dumps(HEAT), **sent)
    try:
        async with caged(tmp_path, config(mosquitto.port, maps_text=ANNOUNCED)) as one:
            await one.until(one.units, "the announcement")
            await send(mosquitto, "mh/d1/sensor", '{"inner": {"v": 21.5}}')
            await one.until(lambda: one.column("heat"), "the value")
            assert one.said() == {"heat": HEAT_SAID}
    finally:
        await asyncio.to_thread(publish.single, HEAT_TOPIC, None, **sent)


def test_what_is_announced_is_of_the_stream_that_has_the_field() -> None:
    books: dict[str, FieldBook] = {name: FieldBook() for name in ("own", "s", "ha_discovery")}
    intake = ManyStreams(
        "source", MemorySink(), Policy.BLOCK, FakeClock(),
        book=books["own"], book_of=books.__getitem__, book_prefix="",
    )  # fmt: skip
    maps = SourceMaps(None, (), stream="own", zone="UTC", text=ANNOUNCED, has_streams=True)
    packet = mqtt5.PublishPacket(HEAT_TOPIC, json.dumps(HEAT).encode())
    assert len(maps.bodies(intake, packet, 0)) == 1, "it is a reading, too"
    assert {name: book.said() for name, book in books.items() if book.said()} == {
        "s": {"heat": HEAT_SAID}
    }


async def test_a_file_that_changes_is_in_use_and_a_wrong_one_is_not(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch, caplog: object
) -> None:
    monkeypatch.setattr("edgewake.edge.sources.mqtt.mqtt_subscribe.LOOK_S", 0.05)
    file = tmp_path / "maps.toml"
    file.write_text(MAPS.replace("mm/", "mm2/"))
    async with caged(tmp_path, config(mosquitto.port, maps=file)) as one:
        await subscribed_anew(one, mosquitto, "mm2/d/sensor", 1)
        file.write_text("[[map]]\n")
        await one.until(lambda: "keeping the previous maps" in caplog.text, "it is said")  # type: ignore[attr-defined]
        await subscribed_anew(one, mosquitto, "mm2/d/sensor", 2)
        replaced = tmp_path / "next.toml"
        replaced.write_text(MAPS.replace("mm/", "mm3/"))
        replaced.replace(file)
        await subscribed_anew(one, mosquitto, "mm3/d/sensor", 3)
        await send(mosquitto, "mm2/d/sensor", '{"list": [{"v": 4}]}')
        await subscribed_anew(one, mosquitto, "mm3/d/sensor", 5)
        assert 4 not in one.column("v")


async def test_the_payloads_of_a_preset_become_readings_of_an_agent(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    source = MqttSubscribeConfig(
        type="mqtt_subscribe",
        stream="zigbee",
        presets=("zigbee2mqtt",),
        broker=BrokerConfig(port=mosquitto.port),
    )
    own = [one for preset, one in messages() if preset == "zigbee2mqtt"]
    wanted = [
        reading for one in own for reading in one["readings"] if reading["stream"] == "zigbee"
    ]
    async with caged(tmp_path, source) as one:
        await one.until(lambda: one.supervisor.state == "running", "it runs")
        async with asyncio.timeout(PATIENCE_S):
            while "first" not in one.column("thing"):
                await send(mosquitto, "zigbee2mqtt/first", '{"first": 1}')
                await one.until(lambda: True, "")
                await asyncio.sleep(0.05)
        for message in own:
            await send(mosquitto, message["topic"], payload_of(message).decode())
        await one.until(lambda: one.column("thing")[-1:] == [wanted[-1]["device"]], "the last")
        things = [thing for thing in one.column("thing") if thing != "first"]
        assert things == [reading["device"] for reading in wanted]
        for name in ("temperature", "battery", "contact", "color_x", "mode_"):
            column = one.column(name)[-len(wanted) :]
            assert column == [reading["fields"].get(name) for reading in wanted], name
        timed = [reading["t"] for reading in wanted if reading["t"] != "now"]
        assert [t for t in one.times() if t in timed] == timed


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"topic": "a", "maps": "b"},
        {"presets": ["nothing"]},
        {"topic": "a", "presets": ["tasmota"]},
        {"presets": ["tasmota"]},
    ],
)
def test_a_source_has_one_of_topic_maps_and_presets_that_there_are(more: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=r"expected one of `topic`|no preset is called|no map gives the stream"
    ):
        MqttSubscribeConfig.checked({"type": "mqtt_subscribe", "stream": "s", **more})


def test_map_try_shows_what_becomes_of_a_message(tmp_path: Path) -> None:
    file = tmp_path / "maps.toml"
    file.write_text(MAPS)
    run = CliRunner().invoke
    good = run(map_group, ["try", str(file), "--topic", "mm/d/sensor", '{"list":[{"v":1.5}]}'])
    assert (good.exit_code, "device d, stream s" in good.output) == (0, True)
    bad = run(map_group, ["try", str(file), "--topic", "mm/d/sensor"], input='{"list":[')
    assert (bad.exit_code, "REFUSED json: " in bad.output) == (1, True)
    unsaid = run(map_group, ["try", str(file), "{}"])
    assert (unsaid.exit_code, "--topic is missing" in unsaid.output) == (2, True)
    wrong = run(map_group, ["try", str(tmp_path / "none.toml"), "{}"])
    assert (wrong.exit_code, "cannot be read" in wrong.output) == (2, True)


async def test_map_watch_shows_messages_as_they_come(tmp_path: Path, mosquitto: Mosquitto) -> None:
    file = tmp_path / "maps.toml"
    file.write_text(MAPS.replace("mm/", "mm5/"))
    order = ["watch", str(file), "--mqtt", f"{mosquitto.host}:{mosquitto.port}", "--count", "2"]
    watching = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, map_group, order))
    async with asyncio.timeout(PATIENCE_S):
        while not watching.done():
            await send(mosquitto, "mm5/d/sensor", '{"list":[{"v":1}]}', "{")
            await asyncio.sleep(0.05)
    result = watching.result()
    assert result.exit_code == 0, result.output
    assert "mm5/d/sensor: map 1" in result.output


async def test_map_watch_ends_quietly_where_its_reader_has_enough(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    file = tmp_path / "maps.toml"
    file.write_text(MAPS.replace("mm/", "mm6/"))
    program = "from edgewake.edge.commands.maps import map_group; map_group()"
    order = f"watch {file} --mqtt {mosquitto.host}:{mosquitto.port}"
    watching = await asyncio.create_subprocess_shell(
        f"{sys.executable} -c '{program}' {order} | head -n 1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    ended = asyncio.create_task(watching.communicate())
    async with asyncio.timeout(PATIENCE_S):
        while not ended.done():
            await send(mosquitto, "mm6/d/sensor", '{"list":[{"v":1}]}')
            await asyncio.sleep(0.05)
    shown, wrong = await ended
    assert (shown.decode()[:8], wrong.decode()) == ("watching", "")


def test_a_broker_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    file = tmp_path / "maps.toml"
    file.write_text(MAPS)
    (port,) = free_ports(1)
    result = CliRunner().invoke(map_group, ["watch", str(file), "--mqtt", f"127.0.0.1:{port}"])
    assert result.exit_code == 1
    assert result.output == f"edgewake map: 127.0.0.1:{port}: nothing listens there\n"


async def test_settings_from_the_cloud_bring_their_map_along(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    text = MAPS.replace("mm/", "mm9/")
    async with caged(tmp_path, config(mosquitto.port, maps_text=text)) as one:
        await subscribed_anew(one, mosquitto, "mm9/first/sensor", 5)
        assert one.column("thing")[-1] == "first"


async def test_what_comes_on_a_topic_of_two_maps_is_taken_once(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    text = """
[[map]]
topic = "mm10/{device}"
stream = "s"
[[map]]
topic = "+/crossed"
stream = "s"
"""
    async with caged(tmp_path, config(mosquitto.port, maps_text=text)) as one:
        async with asyncio.timeout(PATIENCE_S):
            while 0 not in one.column("v"):
                await send(mosquitto, "mm10/first", '{"v": 0}')
                await asyncio.sleep(0.05)
        await send(mosquitto, "mm10/crossed", *(f'{{"v": {n}}}' for n in range(1, 31)))
        await send(mosquitto, "mm10/last", '{"v": 99}')
        await one.until(lambda: one.column("v")[-1:] == [99], "the last reading")
        assert [v for v in one.column("v") if v not in (0, 99)] == [*range(1, 31)]


@pytest.mark.parametrize(
    ("text", "says"),
    [("[[map]]", "topic"), ('[[map]]\ntopic = "a"\nstream = "x"', "no map gives the stream")],
)
def test_a_map_that_cannot_be_used_is_refused_with_the_settings(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        config(1883, maps_text=text)


def test_what_is_odd_in_a_message_is_said_by_the_source_of_its_stream(tmp_path: Path) -> None:
    """Every source of a file hears the messages of all its maps."""
    file = tmp_path / "maps.toml"
    file.write_text(MAPS + '[[map]]\ntopic = "mm/{device}/any"\nstream = "{$.kind}"\n')
    said: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for stream in ("s", "elsewhere"):
        others = frozenset({"s", "elsewhere"})
        source = SourceMaps(file, (), stream=stream, zone="UTC", others=others)
        sink = OneWaySink(lambda _: None, lambda *_: None)
        intake = Intake(stream, sink, Policy.BLOCK, FakeClock())
        for topic, payload in (
            ("sensor", b'{"list": [{"at": "soon", "v": 1}]}'),
            ("sensor", b"{"),
            ("any", b'{"kind": "nobodys"}'),
            ("any", b"{}"),
        ):
            packet = mqtt5.PublishPacket(f"mm/d/{topic}", payload)
            source.bodies(intake, packet, 1_790_000_000_000)
        said[stream] = intake.remarks, intake.refused
    assert said["s"] == ({"no time in at": 1}, {"json": 1, "shape": 1})
    assert said["elsewhere"] == ({}, {"shape": 1}), "its map alone does not say whose it is"


def test_an_event_in_binary_mode_is_read_by_its_preset() -> None:
    source = SourceMaps(None, ("cloudevents",), stream="warm", zone="UTC")
    intake = Intake("warm", OneWaySink(lambda _: None, lambda *_: None), Policy.BLOCK, FakeClock())
    attributes = [("specversion", "1.0"), ("id", "7"), ("source", "/shed"), ("type", "warm")]
    packet = mqtt5.PublishPacket("cloudevents/shed", b'{"temp":21.5}', user_properties=attributes)
    (found,) = source.bodies(intake, packet, 1_790_000_000_000)
    assert (found["temp"], found["event_id"], found["thing"]) == (21.5, "7", "shed")


@pytest.mark.parametrize(
    ("stream", "others", "refused"),
    [
        ('"elsewhere"', {"s"}, 1),
        ('"elsewhere"', {"s", "elsewhere"}, 0),
        ('"{@.kind}"', {"s", "elsewhere"}, 1),  # of which stream the item is, nobody knows
    ],
)
def test_a_refused_item_is_counted_where_no_other_source_speaks_of_it(
    stream: str, others: set[str], refused: int
) -> None:
    text = f'[[map]]\ntopic = "mm/d"\neach = "list"\nstream = {stream}\n'
    mine = '[[map]]\ntopic = "mm/mine"\nstream = "s"\n'
    known = frozenset(others)
    source = SourceMaps(None, (), stream="s", zone="UTC", text=text + mine, others=known)
    intake = Intake("s", OneWaySink(lambda _: None, lambda *_: None), Policy.BLOCK, FakeClock())
    payload = b'{"list": [{"kind": "elsewhere", "v": 1}, [2]]}'
    packet = mqtt5.PublishPacket("mm/d", payload)
    assert source.bodies(intake, packet, 1_790_000_000_000) == []
    assert sum(intake.refused.values()) == refused


@pytest.mark.parametrize("preset", presets.names())
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_no_bytes_of_a_device_stop_what_another_one_says(preset: str, data: st.DataObject) -> None:
    """The same as at a bridge (`tests/bridge/admission/test_admit.py`)."""
    names = ("zigbee2mqtt",) if preset == "zigbee2mqtt" else (preset, "zigbee2mqtt")
    maps = SourceMaps(None, names, stream="zigbee", zone="UTC", has_streams=True)
    intake = Intake("source", MemorySink(), Policy.BLOCK, FakeClock())

    def taken(topic: str, payload: bytes) -> list[Reading]:
        packet = mqtt5.PublishPacket(topic, payload)
        found = []
        for body in maps.bodies(intake, packet, 0):
            body.pop(STREAM, None)
            with suppress(Rejected):
                found.append(intake.reading(body))
        return found

    own = [one for name, one in messages() if name == preset]
    for _ in range(3):
        message = data.draw(st.sampled_from(own))
        taken(message["topic"], data.draw(broken(payload_of(message))))
    said = b'{"last_seen":"2026-03-01T08:15:30Z","its_own":21.5}'
    assert taken("zigbee2mqtt/a/room", said) == [
        (1_772_352_930_000, {"its_own": 21.5, "thing": "a.room"})
    ]
