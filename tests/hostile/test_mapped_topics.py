"""Topics of devices that speak in their own words, where the broker knows who sends: maps open
nothing by themselves.
"""

from __future__ import annotations

import time

import pytest

from edgewake.protocol import topics
from tests.hostile.world import Victim, World, unharmed
from tests.services import wait_until

MAPS = ("[maps]", 'presets = ["zigbee2mqtt", "shelly-gen2"]', 'prefix = "zb-"')
NOT_AUTHORISED = 0x87


@pytest.mark.long
@pytest.mark.services
def test_nobody_writes_a_mapped_topic_before_a_rule_lets_him_and_the_others_are_heard(
    here: World, victim: Victim
) -> None:
    with here.bridges_with(*MAPS), here.device("attacker") as device:
        found = {
            device.publish(topic, b'{"temperature": 99}')
            for topic in ("zigbee2mqtt/victim", "zigbee2mqtt/attacker", "victim/online")
        }
        assert found == {NOT_AUTHORISED}
        unharmed(victim, lambda: time.sleep(0.01))
    assert here.records(topics.UP, "zb-victim") == []
    assert here.records(topics.UP, "zb-attacker") == []


@pytest.mark.long
@pytest.mark.services
def test_control_with_a_rule_for_all_of_them_one_speaks_for_another(here: World) -> None:
    """What a map reads is believed: the rule that lets a device write must name its own topics."""
    rule = "zigbee2mqtt/#"
    with (
        here.rules(devices=f"pattern write {rule}", bridges=f"pattern read {rule}"),
        here.bridges_with(*MAPS),
        here.device("attacker") as device,
    ):
        assert device.publish("zigbee2mqtt/other", b'{"temperature": 99}') == 0
        wait_until(lambda: here.records(topics.UP, "zb-other"), "it is taken as the other's")
