"""What the presets make of the messages in tests/payloads: written after the formats'
documentation, and each with the readings that must come.
"""

from __future__ import annotations

import json
import re
from typing import Final

import pytest

from edgewake.protocol.maps import presets
from edgewake.protocol.maps.compiling import compile_maps, compile_presets
from edgewake.protocol.maps.preview import preview
from tests.payloads.corpus import FOLDER, messages, payload_of

NOW_MS: Final = 1_790_000_000_000
PAYLOADS_MIN: Final = 380
WHERE: Final = re.compile(
    r"RFC \d+, section|https://\S+|\w[\w.-]*/\w[\w.-]* \S+\.(md|rst|json|markdown) at [0-9a-f]{8}\b"
    r"|[\w ]+, manual of [^;]+; version \d"
)
"""An RFC's section, an address, a repository's file at a commit, or a manual's chapter."""


@pytest.mark.parametrize("preset", presets.names())
def test_a_preset_makes_the_readings_that_must_come(preset: str) -> None:
    maps = compile_presets([preset], needs_names=True)
    own = [one for name, one in messages() if name == preset]
    assert len(own) >= 6, "too few payloads of this preset"
    for message in own:
        seen = preview(maps, message["topic"], payload_of(message), now_ms=NOW_MS)
        found = [
            {
                "device": one.device,
                "stream": one.stream,
                "t": "now" if one.t == NOW_MS else one.t,
                "fields": one.fields,
            }
            for one in seen.stored
        ]
        assert found == message["readings"], message["topic"]
        assert [str(why.reason) for why in seen.refused] == message.get("refused", [])


def test_there_are_enough_and_each_file_says_where_its_format_is_from() -> None:
    assert len(list(messages())) >= PAYLOADS_MIN
    for file in FOLDER.glob("*/*.json"):
        said = json.loads(file.read_text())
        assert said["origin"], file
        assert WHERE.match(said["where"]), f"{file}: {said['where']}"
        assert file.parent.name.replace("_", "-") in presets.names(), file


@pytest.mark.parametrize("preset", presets.names())
def test_a_preset_says_what_it_is_for_and_each_of_its_maps_takes_a_message(preset: str) -> None:
    maps = compile_presets([preset], needs_names=True)
    assert presets.about(preset)
    used = {
        preview(maps, one["topic"], payload_of(one), now_ms=NOW_MS).map
        for name, one in messages()
        if name == preset
    }
    assert {one.name for one in maps.maps} - used == set()


@pytest.mark.parametrize(
    ("preset", "topic", "said", "units"),
    [
        (
            "tasmota",
            "tele/plug/SENSOR",
            '{"ENERGY": {"Total": 2.5, "Power": [74, 75], "Factor": 0.9}}',
            {"Total": "kWh", "Power_0": "W", "Power_1": "W"},
        ),
        (
            "zigbee2mqtt",
            "zigbee2mqtt/bath/window",
            '{"temperature": 21.5, "battery": 91, "voltage": 3000, "linkquality": 9}',
            {"temperature": "°C", "battery": "%"},
        ),
        (
            "shelly-gen2",
            "plus1pm/events/rpc",
            '{"method": "NotifyStatus", "params": {"switch:0": {"apower": 12.5, "output": true}}}',
            {"switch_0_apower": "W"},
        ),
        (
            "shelly-gen2",
            "plus1pm/status/switch:0",
            '{"id": 0, "apower": 12.5, "voltage": 231.4}',
            {"apower": "W", "voltage": "V"},
        ),
        ("shelly-gen1", "shellies/pm/relay/0/power", "68.42", {"relay_0_power": "W"}),
        ("shelly-gen1", "shellies/pm/relay/0/energy", "10493", {"relay_0_energy": "W·min"}),
        ("shelly-gen1", "shellies/em/emeter/1/total", "12.5", {"emeter_1_total": "Wh"}),
        ("shelly-gen1", "shellies/pm/temperature", "41.27", {"temperature": "°C"}),
        ("shelly-gen1", "shellies/pm/overtemperature", "0", {}),
        ("shelly-gen1", "shellies/ht/sensor/humidity", "52.5", {"sensor_humidity": "%"}),
        ("shelly-gen1", "shellies/ht/sensor/temperature", "21.88", {}),
        ("shelly-gen1", "shellies/s/ext_temperature/0", "21.5", {"ext_temperature_0": "°C"}),
        (
            "rtl-433",
            "rtl_433/attic/events",
            '{"model": "X", "temperature_C": 1.5, "rain_rate_mm_h": 2, "uv": 3}',
            {"temperature": "°C", "rain_rate_mm_h": "mm/h"},
        ),
        (
            "esphome",
            "ac/climate/bedroom/target_temperature/state",
            "21",
            {"bedroom_target_temperature": "°C"},
        ),
        ("esphome", "greenhouse/sensor/air/state", "21.3", {}),
    ],
)
def test_a_value_has_the_unit_that_its_maker_s_documentation_says(
    preset: str, topic: str, said: str, units: dict[str, str]
) -> None:
    """Some have more than one, and so none here: `voltage` of Zigbee2MQTT is mV of a battery and V
    of a plug, a Shelly H&T sends °C or °F, as it is set, and ESPHome sends the number alone.
    """
    (one,) = preview(compile_presets([preset]), topic, said.encode(), now_ms=NOW_MS).stored
    assert one.units == units
    assert units.keys() <= one.fields.keys()


def test_a_unit_alone_moves_no_field_and_of_a_map_that_drops_the_others_it_keeps_it() -> None:
    for others, fields in (("", {"a": 1, "b": 2}), ('others = "drop"\n', {"a": 1})):
        row = f'[[map]]\ntopic = "t/{{device}}"\ndevice = "{{device}}"\nstream = "s"\n{others}'
        maps = compile_maps(row + '[map.fields]\na = { unit = "W" }\n', "x")
        (one,) = preview(maps, "t/d", b'{"a": 1, "b": 2}', now_ms=NOW_MS).stored
        assert (one.fields, one.units) == (fields, {"a": "W"})
