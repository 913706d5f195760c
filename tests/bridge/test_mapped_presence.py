"""A device that speaks in its own words says by them whether it is there: the bridge passes that on
as a plain device's status, beside the reading.
"""

from __future__ import annotations

import mqtt5
import pytest

from edgewake.cloud.bridge.admission.admit import admit_status
from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.ops.device import DeviceState

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("preset", "topic", "payload", "device", "state"),
    [
        ("tasmota", "tele/plug/LWT", b"Offline", "plug", DeviceState.OFFLINE),
        ("zigbee2mqtt", "zigbee2mqtt/hall/availability", b'{"state":"online"}', "hall", "online"),
        ("zigbee2mqtt", "zigbee2mqtt/a/b/availability", b"offline", "a.b", "offline"),
        ("shelly-gen1", "shellies/s1/online", b"false", "s1", "offline"),
        ("shelly-gen2", "s2/online", b"true", "s2", "online"),
        ("homie", "homie/h/$state", b"lost", "h", "offline"),
        ("homie", "homie/h/$state", b"ready", "h", "online"),
        ("thingsboard", "v1/gateway/disconnect", b'{"device":"t"}', "t", "offline"),
    ],
)
def test_its_word_becomes_its_state(
    preset: str, topic: str, payload: bytes, device: str, state: str
) -> None:
    mapper = Mapper(compile_presets([preset], needs_names=True), "home-")
    reading, status = mapper.parts(mqtt5.PublishPacket(topic, payload), NOW)
    assert reading.packet.topic.startswith(f"ew/v1/home-{device}/up/")
    assert isinstance(status.packet, mqtt5.PublishPacket)
    found = admit_status(status.packet, received_at=NOW)
    assert (found.device, found.state, found.plain) == (f"home-{device}", state, True)


def test_other_messages_say_nothing_of_it() -> None:
    mapper = Mapper(compile_presets(["homie", "tasmota"], needs_names=True), "")
    for topic, payload in (("homie/h/$state", b"init"), ("tele/plug/STATE", b'{"POWER":"ON"}')):
        (part,) = mapper.parts(mqtt5.PublishPacket(topic, payload), NOW)
        assert "/up/" in part.packet.topic


def test_a_map_gives_no_device_that_the_configuration_does_not_name() -> None:
    """Neither its readings nor its presence; without names the control gives both."""
    maps = compile_presets(["zigbee2mqtt"], needs_names=True)
    message = mqtt5.PublishPacket("zigbee2mqtt/pump/availability", b"online")
    (part,) = Mapper(maps, "zb-", ["zb-lamp-*"]).parts(message, NOW)
    assert part.refusal is not None
    assert part.refusal.reason == "foreign_device"
    assert "'zb-pump'" in part.refusal.detail
    assert "zb-lamp-*" in part.refusal.detail
    for mapper in (Mapper(maps, "zb-", ["zb-pum?"]), Mapper(maps, "zb-")):
        assert [one.refusal for one in mapper.parts(message, NOW)] == [None, None]
