"""Devices that speak in their own words, on a real broker and through real bridges into a real
Kafka: by a map, without code.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from paho.mqtt import publish

from edgewake.cloud.bridge.config import BridgeConfig
from edgewake.protocol import topics
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError, RejectReason
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.stream import FieldInfo, StreamTable
from tests.bridge.running import Device, World, read, read_some, start
from tests.services import wait_until

MAPS = """
[[map]]
name = "meter"
topic = "m1/{device}/readings"
device = "{device}"
stream = "mapped_meter"
each = "list"
time = { path = "at", format = "s", unreadable = "refuse" }
[map.fields]
"p" = { name = "power", as = "number", scale = 0.1, unit = "W" }
"""
SECONDS = 1_790_000_000


async def send(here: World, topic: str, *payloads: str, qos: int = 1) -> None:
    await publish_all(here, [(topic, payload.encode()) for payload in payloads], qos=qos)


async def publish_all(here: World, sent: Sequence[tuple[str, bytes]], qos: int = 1) -> None:
    batch: list[tuple[str, bytes, int, bool]] = [(*one, qos, False) for one in sent]
    await asyncio.to_thread(publish.multiple, batch, here.broker.host, here.broker.port)


def bridge(here: World, name: str, maps: str, more: str = "", **keys: object) -> Path:
    file = here.folder / f"{name}-maps.toml"
    file.write_text(maps)
    here.bridge(name, mqtt=f'[maps]\nfile = "{file}"\n{more}', **keys)
    return file


def items(*numbers: int, first_s: int = SECONDS) -> str:
    found = ", ".join(f'{{"at": {first_s + n}, "p": "{n}0 W", "n": {n}}}' for n in numbers)
    return f'{{"list": [{found}]}}'


async def test_a_message_of_several_readings_becomes_records_of_its_device(here: World) -> None:
    bridge(here, "b-mapped", MAPS, 'prefix = "meter-"')
    await send(here, "m1/cellar/readings", items(1, 2, 3))
    found = [
        record.decode(one.value() or b"")
        for one in await read_some(here.config, topics.UP, "meter-cellar", 3)
    ]
    assert [(one.stream, list(one.frame.t)) for one in found] == [
        ("mapped_meter", [(SECONDS + n) * 1000]) for n in (1, 2, 3)
    ]
    assert [{name: column[0] for name, column in one.frame.fields.items()} for one in found] == [
        {"n": n, "power": float(n)} for n in (1, 2, 3)
    ]
    wait_until(
        lambda: units_of(here, "mapped_meter") == {"n": "", "power": "W"}, "its unit is known"
    )
    wait_until(
        lambda: here.metric("b-mapped", 'edgewake_bridge_mapped_total{outcome="mapped"}') == 1,
        "it is counted",
    )


def units_of(here: World, stream: str) -> dict[str, str]:
    """The units of a stream's fields, as the catalogue has them."""
    return {name: info.unit for name, info in fields_of(here, stream).items()}


def fields_of(here: World, stream: str) -> dict[str, FieldInfo]:
    """A stream's fields, as the catalogue has them."""
    table = StreamTable()
    for one in read(here.config, topics.STREAMS):
        table.apply((one.key() or b"").decode(), one.value())
    row = table.get(stream)
    return {} if row is None else row.fields


async def test_what_devices_announce_to_home_assistant_is_shown_of_their_fields(
    here: World,
) -> None:
    """The stream is there only after the announcement."""
    maps = """
    presets = ["home-assistant"]
    [[map]]
    topic = "mh/{device}/state"
    device = "{device}"
    stream = "mapped_announced"
    """
    bridge(here, "b-announced", maps)
    told = (
        '{"name": "Heat", "stat_cla": "measurement", "dev_cla": "temperature", "unit_of_meas": '
        '"°C", "stat_t": "mh/d1/state", "val_tpl": "{{ value_json.inner.v }}"}'
    )
    await send(here, "homeassistant/sensor/mh-heat/config", told)
    await send(here, "mh/d1/state", '{"inner": {"v": 21.5}, "w": 1}')

    def words() -> tuple[str, str, str]:
        info = fields_of(here, "mapped_announced")["inner_v"]
        return info.unit, info.label, info.classes

    wait_until(lambda: fields_of(here, "mapped_announced"), "the stream is there")
    wait_until(lambda: words() == ("°C", "Heat", "temperature, measurement"), "it is known")
    assert units_of(here, "mapped_announced") == {"inner_v": "°C", "w": ""}


@pytest.mark.long
async def test_an_event_in_binary_mode_has_its_attributes_as_user_properties(here: World) -> None:
    """Only structured ones were read by MQTT."""
    bridge(here, "b-events", 'presets = ["cloudevents"]\n', 'prefix = "ce-"')
    sender = Device(here, "events-sender", "s")
    await sender.connected()
    attributes = [("specversion", "1.0"), ("id", "7"), ("source", "/shed"), ("type", "ce_warm"),
        ("time", "2026-03-01T08:15:30Z")]  # fmt: skip
    sender.publish(
        b'{"temp":21.5}',
        content_type="application/json; charset=utf-8",
        topic="cloudevents/shed",
        response_topic=None,
        user_properties=attributes,
    )
    (one,) = await read_some(here.config, topics.UP, "ce-shed")
    found = record.decode(one.value() or b"")
    assert (found.stream, list(found.frame.t)) == ("ce_warm", [1_772_352_930_000])
    assert found.frame.fields == {
        "temp": [21.5],
        "event_id": ["7"],
        "event_source": ["/shed"],
    }


async def test_what_cannot_be_mapped_is_a_dead_letter_of_its_device_and_costs_itself_alone(
    here: World,
) -> None:
    bridge(here, "b-odd", MAPS.replace("m1/", "m2/").replace("mapped_meter", "mapped_odd"))
    wrong = '{"list": [{"at": "when?", "p": 1}, {"at": 1790000009, "p": 90, "n": 9}]}'
    await send(here, "m2/odd-1/readings", "{", wrong)
    await send(here, "m2/odd-2/readings", items(1))
    (good,) = await read_some(here.config, topics.UP, "odd-2")
    (rest,) = await read_some(here.config, topics.UP, "odd-1")
    assert record.decode(good.value() or b"").frame.fields["power"] == [1.0]
    assert record.decode(rest.value() or b"").frame.fields["n"] == [9]
    letters = await read_some(here.config, topics.DEAD, "odd-1", 2)
    said = [DeadLetter.from_headers(one.headers()) for one in letters]
    assert [one.reason for one in said] == [RejectReason.JSON, RejectReason.TIME]
    assert [one.topic for one in said] == ["m2/odd-1/readings"] * 2
    assert [one.value() for one in letters] == [b"{", b'{"at":"when?","p":1}']


@pytest.mark.long
async def test_a_device_that_floods_with_broken_messages_has_its_share_of_letters_only(
    here: World,
) -> None:
    maps = MAPS.replace("m1/", "m3/").replace("mapped_meter", "mapped_flood")
    bridge(here, "b-flood", maps, "[device]\nletters_burst = 5\nletters_per_s = 0.001\n")
    await send(here, "m3/loud/readings", *["{"] * 40)
    await send(here, "m3/quiet/readings", items(1))
    await read_some(here.config, topics.UP, "quiet")
    counted = 'edgewake_bridge_messages_total{outcome="counted"}'
    wait_until(lambda: here.metric("b-flood", counted) >= 33, "the others are counted")
    assert len(read(here.config, topics.DEAD, device="loud")) < 8, "5, and what time gave since"


async def test_names_that_somebody_invents_have_no_more_letters_together_than_ten_devices(
    here: World,
) -> None:
    """Control: each of them is below the bound of one device."""
    maps = MAPS.replace("m1/", "m7/").replace("mapped_meter", "mapped_names")
    bridge(here, "b-names", maps, "[device]\nletters_burst = 5\nletters_per_s = 0.001\n")
    await publish_all(here, [("m7/first/readings", items(1).encode())])
    await read_some(here.config, topics.UP, "first")
    odd = b'{"list": [{"at": "when?", "n": 1}]}'
    sent = [(f"m7/invented-{n}/readings", one) for n in range(20) for one in (b"{", odd) * 2]
    await publish_all(here, sent)
    counted = 'edgewake_bridge_messages_total{outcome="counted"}'
    dead = 'edgewake_bridge_messages_total{outcome="dead"}'
    await asyncio.to_thread(
        wait_until,
        lambda: here.metric("b-names", counted) + here.metric("b-names", dead) == 80,
        "all are refused",
    )
    assert 50 <= here.metric("b-names", dead) <= 52


async def test_maps_are_in_use_as_soon_as_their_file_is_right(here: World) -> None:
    """A file that became wrong changes nothing."""
    maps = MAPS.replace("m1/", "m4/").replace("mapped_meter", "mapped_hot")
    file = bridge(here, "b-hot", maps)
    process = here.parts[-1]
    await send(here, "m4/a/readings", items(1))
    await read_some(here.config, topics.UP, "a", 1)
    file.write_text(maps.replace('stream = "mapped_hot"', 'stream = "Hot!"'))
    wait_until(lambda: "maps.refused" in process.output(), "the wrong file is said")
    await send(here, "m4/a/readings", items(2))
    await read_some(here.config, topics.UP, "a", 2)
    file.write_text(maps.replace("m4/", "m5/"))
    wait_until(lambda: process.output().count("mqtt.connected") >= 2, "it subscribes anew")
    await send(here, "m4/a/readings", items(3))
    await send(here, "m5/a/readings", items(4))
    found = await read_some(here.config, topics.UP, "a", 3)
    fields = [record.decode(one.value() or b"").frame.fields["n"][0] for one in found]
    assert fields == [1, 2, 4]


async def test_a_killed_bridge_loses_nothing_of_a_message_that_was_taken_apart(
    here: World,
) -> None:
    """Each reading has a number, so the sequencer passes each once, repeats or not."""
    maps = MAPS.replace("m1/", "m6/").replace("mapped_meter", "mapped_kill")
    numbered = maps.replace("each =", 'seq = "n"\neach =')
    bridge(here, "b-mkill", numbered, "[device]\nmessages_per_s = 5000\n", inflight_messages_max=4)
    here.sequencer()
    killed = here.parts[-2]  # before the sequencer
    sent = [items(*range(n * 5 + 1, n * 5 + 6)) for n in range(1000)]
    sending = asyncio.create_task(send(here, "m6/k/readings", *sent))
    acked = 'edgewake_bridge_messages_total{outcome="acked"}'
    await asyncio.to_thread(
        wait_until, lambda: here.metric("b-mkill", acked) > 50, "some are there"
    )
    killed.kill()
    in_kafka = len(read(here.config, topics.UP, device="k"))
    assert in_kafka < 5000, "it was killed when all was done: the test shows nothing"
    await sending
    start(killed)
    stream = topics.stream_topic("mapped_kill")
    found = await read_some(here.config, stream, "k", 5000)
    seqs = [record.decode(one.value() or b"").frame.seq for one in found]
    assert seqs == list(range(1, 5001))


@pytest.mark.parametrize("with_prefix", [True, False])
def test_where_the_broker_knows_devices_mapped_ones_need_a_prefix(
    tmp_path: Path, with_prefix: bool
) -> None:
    mqtt = {"username": "bridge", "share_key_file": str(tmp_path / "key")}
    values = {
        "mqtt": mqtt,
        "maps": {"file": "maps.toml"} | ({"prefix": "zb-"} if with_prefix else {}),
    }
    if with_prefix:
        parse(BridgeConfig, values, "bridge.toml")
        return
    with pytest.raises(ConfigError, match=r"maps.prefix is missing"):
        parse(BridgeConfig, values, "bridge.toml")


@pytest.mark.long
async def test_what_comes_on_a_topic_of_two_maps_is_taken_once_also_across_a_dead_bridge(
    here: World,
) -> None:
    maps = """
[[map]]
topic = "x1/{device}"
device = "{device}"
stream = "mapped_crossing"
value = "x"
[[map]]
topic = "+/crossed"
device = "other"
stream = "mapped_crossing"
value = "x"
"""
    bridge(here, "b-cross-1", maps, inflight_messages_max=8)
    bridge(here, "b-cross-2", maps, inflight_messages_max=8)
    await send(here, "x1/crossed", *(str(n) for n in range(40)))
    await send(here, "x1/plain", "1")
    await send(here, "x2/crossed", "2")
    await read_some(here.config, topics.UP, "crossed", 40)
    await read_some(here.config, topics.UP, "plain")
    await read_some(here.config, topics.UP, "other")
    for name in ("b-cross-1", "b-cross-2"):  # what was not acknowledged comes again, rightly
        wait_until(
            lambda name=name: here.metric(name, "edgewake_bridge_inflight_messages") == 0,
            "all is acknowledged",
        )
    first, second = here.parts[-2:]
    for part in (first, second):  # what comes now waits for them in their sessions
        part.signal(signal.SIGKILL)
        wait_until(lambda part=part: not part.is_running(), "it is dead")
    await send(here, "x1/crossed", *(str(n) for n in range(40, 80)))
    start(first)
    start(second)
    await send(here, "x1/crossed", "80")
    found = await read_some(here.config, topics.UP, "crossed", 81)
    assert sorted(record.decode(one.value() or b"").frame.fields["x"][0] for one in found) == [
        *range(81)
    ]


@pytest.mark.long
async def test_a_topic_that_names_no_device_pays_for_each_reading_that_it_brings(
    here: World,
) -> None:
    """Names in its payloads are new each time. Control: another topic has a share of its own."""
    maps = MAPS.replace("m1/{device}/readings", "m8/{room}").replace("{device}", "{@.id}")
    maps = maps.replace("mapped_meter", "mapped_nameless")
    bridge(here, "b-nameless", maps, "[device]\nmessages_per_s = 0.01\nburst_s = 1000\n")

    def rows(name: str) -> bytes:
        found = (f'{{"at": {SECONDS + n}, "id": "{name}-{n}", "n": {n}}}' for n in range(12))
        return f'{{"list": [{", ".join(found)}]}}'.encode()

    await publish_all(here, [("m8/loud", rows(f"loud-{n}")) for n in range(5)])
    await publish_all(here, [("m8/quiet", rows("quiet"))])
    await read_some(here.config, topics.UP, "quiet-11")
    devices = {(one.key() or b"").decode() for one in read(here.config, topics.UP)}
    assert {one for one in devices if one.startswith("loud")} == {f"loud-0-{n}" for n in range(12)}
    letters = [DeadLetter.from_headers(one.headers()) for one in read(here.config, topics.DEAD)]
    assert [one.reason for one in letters if one.topic == "m8/loud"] == ["quota"] * 4
