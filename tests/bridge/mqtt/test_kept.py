"""What a broker keeps of presence and announcements is heard by bridges that start later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, cast

import orjson
import pytest
from paho.mqtt import publish

from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.config import MqttConfig
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.bridge.mqtt.kept import KeptWords
from edgewake.cloud.bridge.mqtt.mqtt_source import MqttSource
from edgewake.protocol import topics
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames import record
from edgewake.protocol.maps.compiling import compile_presets
from tests.bridge.admission.test_mapped import bridge, fields_of, send
from tests.bridge.running import World, read, read_some
from tests.services import Mosquitto, wait_until

MAPS = """
presets = ["tasmota", "home-assistant"]
[[map]]
topic = "kh/{device}/state"
device = "{device}"
stream = "kept_home"
"""
LATER = """
[[map]]
topic = "kp/{device}/lwt"
device = "{device}"
stream = "kept_presence"
value = "state"
presence = { field = "state", online = ["up"], offline = ["down"] }
"""
ANNOUNCED = {
    "name": "Heat",
    "stat_cla": "measurement",
    "dev_cla": "temperature",
    "unit_of_meas": "°C",
    "stat_t": "kh/kept-home/state",
    "val_tpl": "{{ value_json.heat }}",
}


async def retain(broker: Mosquitto, *messages: tuple[str, str | bytes]) -> None:
    batch: list[Any] = [(topic, payload, 1, True) for topic, payload in messages]
    await asyncio.to_thread(publish.multiple, batch, broker.host, broker.port)


def states(here: World, *devices: str) -> list[str]:
    """What was said last of these devices."""
    rows = {(one.key() or b"").decode(): one.value() for one in read(here.config, topics.DEVICES)}
    keys = [f"{device}|status" for device in devices]
    return [orjson.loads(rows[key] or b"{}").get("state", "") for key in keys if key in rows]


def kept(here: World, name: str) -> float:
    return here.metric(name, 'edgewake_bridge_mapped_total{outcome="kept"}')


async def test_words_of_before_are_heard_by_each_bridge_and_are_no_readings(here: World) -> None:
    """Mosquitto 2.0.11 sent what is retained to each bridge, with each connection, as readings."""
    await retain(
        here.broker,
        ("tele/kept-on/LWT", "Online"),
        ("tele/kept-off/LWT", "Offline"),
        ("tele/kept-on/SENSOR", '{"Time":"2026-11-28T10:00:00","AM2301":{"Temperature":21}}'),
        ("homeassistant/sensor/kh-heat/config", orjson.dumps(ANNOUNCED)),
        ("ew/v1/kept-on/up/kept_own", '{"v": 1}'),
    )
    names = ("b-kept-1", "b-kept-2")
    for name in names:
        bridge(here, name, MAPS)
    wait_until(lambda: [kept(here, name) for name in names] == [3, 3], "each hears what is kept")
    wait_until(
        lambda: states(here, "kept-on", "kept-off") == ["online", "offline"], "their words count"
    )
    await send(here, "tele/kept-on/LWT", "Offline")
    await send(here, "kh/kept-home/state", '{"heat": 21.5}')
    (one,) = await read_some(here.config, topics.UP, "kept-on")
    assert record.decode(one.value() or b"").stream == "tasmota_presence"
    wait_until(lambda: states(here, "kept-on") == ["offline"], "a later word counts, too")
    wait_until(lambda: "heat" in fields_of(here, "kept_home"), "it measures")
    wait_until(
        lambda: fields_of(here, "kept_home")["heat"].label == "Heat", "what it announced is known"
    )
    assert fields_of(here, "kept_home")["heat"].unit == "°C"
    up = [(one.key() or b"").decode() for one in read(here.config, topics.UP)]
    assert [one for one in up if one.startswith("kept-o")] == ["kept-on"]
    assert [kept(here, name) for name in names] == [3, 3]


@pytest.mark.long
async def test_words_of_before_are_heard_when_other_maps_are_in_use(here: World) -> None:
    await retain(here.broker, ("kp/kept-later/lwt", "up"))
    file = bridge(here, "b-kept-later", MAPS)
    assert states(here, "kept-later") == []
    file.write_text(MAPS + LATER)
    wait_until(lambda: states(here, "kept-later") == ["online"], "the new map's word counts")


def words(broker: Mosquitto, taken: list[str], messages_max: int) -> KeptWords:
    """Notes the topics of what is taken; with the first one, another device speaks."""

    def take(parts: Sequence[Part]) -> None:
        if not taken:
            publish.single("tele/live/LWT", "Online", 1, False, broker.host, broker.port)
        taken.extend(part.packet.topic for part in parts)

    return KeptWords(
        MqttConfig(host=broker.host, port=broker.port),
        client_id="bridge:test:kept",
        source=cast(MqttSource, None),
        mapper=Mapper(compile_presets(["tasmota"], needs_names=True), ""),
        take=take,
        is_full=lambda: False,
        metrics=BridgeMetrics(),
        receive_max=4,
        backoff=Backoff(random.Random(1)),
        clock=SystemClock(),
        messages_max=messages_max,
    )


@pytest.mark.parametrize(("messages_max", "is_cut"), [(40, False), (10, True)])
async def test_what_is_kept_is_taken_up_to_a_bound_and_nothing_else(
    own_broker: Mosquitto,
    caplog: pytest.LogCaptureFixture,
    messages_max: int,
    is_cut: bool,
) -> None:
    said = [(f"tele/plug-{n}/LWT", "Online") for n in range(30)]
    await retain(own_broker, *said)
    taken: list[str] = []
    one = words(own_broker, taken, messages_max)
    await one.take_all(("tele/+/LWT",))
    plugs = {topics.status(f"plug-{n}") for n in range(30)}
    assert set(taken) <= plugs
    assert len(taken) == (10 if is_cut else 30)
    assert any(getattr(one, "event", "") == "mqtt.kept_cut" for one in caplog.records) == is_cut
