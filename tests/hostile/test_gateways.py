"""A gateway that speaks for another's thing, where the broker knows who sends."""

from __future__ import annotations

from collections import Counter

import pytest

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.deploy.production import Client
from tests.hostile.world import Victim, World, unharmed
from tests.services import wait_until

RULE = ("[[gateway]]", 'name = "attacker"', 'things = ["meter-*"]')
NO_CHECK = ("[[gateway]]", 'name = "*"', 'things = ["*"]')


def forge(device: Client, victim: Victim) -> None:
    device.publish(f"ew/v1/attacker/up/{victim.stream}/of/victim", b'{"seq": 1, "n": 666}')


def forged(here: World, victim: Victim) -> list[record.Record]:
    """What somebody else said in the victim's name."""
    found = [
        record.decode(one.value() or b"")
        for one in here.records(topics.stream_topic(victim.stream), "victim")
    ]
    return [one for one in found if one.via]


@pytest.mark.services
def test_a_gateway_speaks_for_nobody_whom_its_rule_does_not_name(
    here: World, victim: Victim
) -> None:
    def reasons() -> Counter[str]:
        return Counter(letter.reason for letter, _ in here.letters("attacker"))

    before = reasons()
    with here.bridges_with(*RULE), here.device("attacker") as device:
        unharmed(victim, lambda: forge(device, victim))
        assert forged(here, victim) == []
        assert (reasons() - before).keys() == {"foreign_device"}
        assert here.letters("victim") == [], "the letters are the gateway's"
        device.publish(f"ew/v1/attacker/up/{victim.stream}/of/meter-1", b'{"n": 1}')
        wait_until(
            lambda: here.records(topics.stream_topic(victim.stream), "meter-1"), "what it names"
        )


@pytest.mark.services
def test_without_a_rule_nobody_speaks_for_another_where_the_broker_knows_devices(
    here: World, victim: Victim
) -> None:
    victim.send()
    before = len(here.letters("attacker"))
    with here.device("attacker") as device:
        forge(device, victim)
        wait_until(lambda: len(here.letters("attacker")) > before, "it is refused")
    assert forged(here, victim) == []
    assert victim.is_whole()


@pytest.mark.long
@pytest.mark.services
def test_control_without_the_check_it_does(here: World, victim: Victim) -> None:
    victim.send()
    with here.bridges_with(*NO_CHECK), here.device("attacker") as device:
        forge(device, victim)
        wait_until(lambda: forged(here, victim), "a reading in the victim's name")
