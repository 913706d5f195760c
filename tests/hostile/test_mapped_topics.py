"""Topics of devices that speak in their own words, where the broker knows who sends: maps open
nothing by themselves.
"""

from __future__ import annotations

import time

import pytest

from edgewake.protocol import topics
from tests.hostile.world import Victim, World, unharmed

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
