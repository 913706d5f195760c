"""What devices announce to Home Assistant, joined with the fields that their values become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest

from edgewake.protocol.discovery.home_assistant import Described, described
from edgewake.protocol.maps.applying import Mapped, apply
from edgewake.protocol.maps.compiling import compile_maps, compile_presets
from edgewake.protocol.maps.rule import Maps

NOW_MS: Final = 1_790_000_000_000
MAPS: Final = compile_presets(
    ["home-assistant", "zigbee2mqtt", "tasmota", "esphome"], needs_names=True
)
ENERGY: Final = {
    "name": "Total", "dev_cla": "energy", "stat_cla": "total_increasing", "unit_of_meas": "kWh",
    "stat_t": "tele/plug-1/SENSOR", "val_tpl": "{{ value_json['ENERGY'].Total | round(2) }}",
}  # fmt: skip


def announced(topic: str, body: dict[str, Any], maps: Maps = MAPS) -> Iterator[Described | None]:
    for one in apply(maps, topic, orjson.dumps(body), NOW_MS).readings:
        yield described(maps, one, NOW_MS, prefix="p-")


@pytest.mark.parametrize(
    ("topic", "body", "device", "stream", "path", "words"),
    [
        ("homeassistant/sensor/0x1/temperature/config",
         {"dev_cla": "temperature", "stat_cla": "measurement", "unit_of_meas": "°C",
          "stat_t": "zigbee2mqtt/hall", "val_tpl": "{{ value_json.temperature }}"},
         "p-hall", "zigbee", "temperature",
         {"unit": "°C", "classes": "temperature, measurement"}),
        ("homeassistant/sensor/plug/total/config", ENERGY, "p-plug-1", "tasmota_sensor",
         "Total", {"unit": "kWh", "label": "Total", "classes": "energy, total_increasing"}),
        ("homeassistant/sensor/shed/t/config",
         {"name": "Shed", "unit_of_measurement": "°C", "~": "shed",
          "stat_t": "~/sensor/heat/state"},
         "p-shed", "esphome_sensor", "heat", {"unit": "°C", "label": "Shed"}),
        ("homeassistant/binary_sensor/0x1/contact/config",
         {"name": "Contact", "device_class": "door", "state_topic": "zigbee2mqtt/door",
          "value_template": "{{ value_json.contact }}"},
         "p-door", "zigbee", "contact", {"label": "Contact", "classes": "door"}),
    ],
)  # fmt: skip
def test_an_announcement_is_of_the_field_that_the_maps_make_of_its_value(
    topic: str, body: dict[str, Any], device: str, stream: str, path: str, words: dict[str, str]
) -> None:
    assert list(announced(topic, body)) == [Described(device, stream, path, words)]


def test_parts_of_a_device_that_are_announced_together_have_each_their_own() -> None:
    parts = {
        "c": {"p": "sensor", "unit_of_measurement": "°C", "value_template": "{{ value_json.c }}"},
        "h": {"p": "sensor", "unit_of_measurement": "%", "value_template": "{{value_json.h}}"},
    }
    body = {"dev": {"name": "X"}, "cmps": parts, "state_topic": "~/x", "~": "zigbee2mqtt"}
    assert list(announced("homeassistant/device/X/config", body)) == [
        Described("p-x", "zigbee", name, {"unit": unit}) for name, unit in (("c", "°C"), ("h", "%"))
    ]


@pytest.mark.parametrize(
    ("topic", "said", "expected"),
    [
        ("homie/car/engine/speed/$unit", "km/h", ["homie/car", "engine_speed", "km/h"]),
        (
            "homie/5/car/$description",
            '{"nodes": {"engine": {"properties": {"speed": {"unit": "km/h"}, "on": {}}}}}',
            ["homie/5/car", "engine_speed", "km/h"],
        ),
        ("homie/car/engine/speed/$datatype", "float", None),
        ("homie/5/car/$description", '{"nodes": {"engine": {"name": "Engine"}}}', None),
    ],
)
def test_homie_says_the_unit_of_a_property_in_its_attribute_or_its_device_s_description(
    topic: str, said: str, expected: list[str] | None
) -> None:
    maps = compile_presets(["homie"], needs_names=True)
    outcome = apply(maps, topic, said.encode(), NOW_MS)
    assert not outcome.refused
    found = [described(maps, one, NOW_MS, topic=topic) for one in outcome.readings]
    fields = [one for one in found if one is not None]
    if expected is None:
        assert fields == []
        return
    base, field, unit = expected
    assert fields == [Described("car", "homie", field, {"unit": unit})]
    (reading,) = apply(maps, f"{base}/engine/speed", b"90", NOW_MS).readings
    assert (reading.stream, reading.body) == ("homie", {field: 90})


@pytest.mark.parametrize(
    "change",
    [
        {"val_tpl": "{{ value_json.ENERGY.Total / 1000 }}"},
        {"val_tpl": "{{ value_json.ENERGY.Total | multiply(2) }}"},
        {"val_tpl": "{% if value_json.x %}{{ value_json.ENERGY.Total }}{% endif %}"},
        {"val_tpl": "{{ value_json" + ".a" * 17 + " }}"},
        {"val_tpl": "{{ value_json.a[99] }}"},
        {"val_tpl": "x" * 600},
        {"stat_t": "nobody/knows"},
        {"stat_t": 7},
        {"stat_t": "homeassistant/sensor/plug/total/config"},
        {"stat_t": "tele/#"},
    ],
)
def test_what_computes_or_becomes_no_field_is_not_joined(change: dict[str, Any]) -> None:
    assert list(announced("homeassistant/sensor/plug/total/config", ENERGY | change)) == [None]


def test_the_field_has_the_name_that_a_map_gives_it_and_other_readings_announce_nothing() -> None:
    maps = compile_maps(
        'presets = ["home-assistant"]\n[[map]]\ntopic = "m/{device}"\ndevice = "{device}"\n'
        'stream = "s"\n[map.fields]\n"list.v" = { name = "heat", as = "number", scale = 0.1 }\n',
        "here",
    )
    template = "{{ value_json['list'].v | float(0) }}"
    body = {"unit_of_meas": "K", "stat_t": "m/d1", "val_tpl": template}
    assert list(announced("homeassistant/sensor/x/config", body, maps)) == [
        Described("p-d1", "s", "heat", {"unit": "K"})
    ]
    assert described(maps, Mapped("d", "s", body), NOW_MS) is None
