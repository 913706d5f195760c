"""A device in the group in which the bridges share what all devices send.

Mosquitto looks at its rules when it delivers: who may not have a message that was dealt to him has
used it up.
"""

from __future__ import annotations

import time

import pytest

from edgewake.cloud.bridge.mqtt.subscriptions import group
from edgewake.protocol import topics
from tests.deploy.production import Client
from tests.hostile.world import INSTALLATION, Victim, World, unharmed
from tests.services import wait_until

GRANTED, NOT_AUTHORISED = {0, 1}, 0x87
OTHERS = (
    "ew/v1/victim/down/+",
    "$share/x/ew/v1/victim/down/+",
    "ew/v1/+/ack",
    "$share/x/ew/v1/victim/ack",
    "ew/bridges/+/+",
)
"""What is for others."""
SESSION_S = 1000


def _codes(client: Client, filters: tuple[str, ...]) -> list[int]:
    """What the broker says to each of these subscriptions."""
    return [code for one in filters for code in client.subscribe(one)]


@pytest.mark.parametrize("stays", [True, False], ids=["online", "offline"])
def test_a_thief_who_knows_the_real_name_of_the_group_may_not_join_it(
    here: World, victim: Victim, stays: bool
) -> None:
    """With a session that the broker keeps, whether he is there or not."""
    with here.device("thief", session_s=SESSION_S) as thief:
        assert here.filters
        assert set(_codes(thief, here.filters)) == {NOT_AUTHORISED}
        if not stays:
            thief.mqtt.disconnect()
        unharmed(victim, lambda: time.sleep(0.01))
        assert thief.topics == []


def test_a_device_that_the_broker_does_not_know_yet_joins_other_groups_only_and_takes_nothing(
    here: World, victim: Victim
) -> None:
    """Its certificate is newer than the broker's list.

    Only who has the bridges' key can name their group.
    """
    here.site.issue("late-thief")
    shared = (
        f"$share/{group(INSTALLATION, None)}/{topics.UP_FILTER}",
        f"$share/{group(INSTALLATION, bytes(32))}/{topics.UP_FILTER}",
    )
    for stays in (True, False):
        with here.device("late-thief", session_s=SESSION_S) as thief:
            assert set(_codes(thief, (*shared, topics.UP_FILTER, "#"))) <= GRANTED
            if not stays:
                thief.mqtt.disconnect()
            unharmed(victim, lambda: time.sleep(0.01))
            assert thief.topics == []


@pytest.mark.long
def test_control_in_a_group_whose_name_he_knows_the_same_thief_swallows_what_others_send(
    here: World,
) -> None:
    """As it was with the name that everybody could read in the source."""
    here.site.issue("old-thief")
    name = f"$share/{group('before', None)}/{topics.UP_FILTER}"
    with (
        here.device("old-thief") as thief,
        Client(here.site, "bridge-1", "bridges", client_id="before") as bridge,
    ):
        bridge.subscribe(name)
        assert set(_codes(thief, (name,))) <= GRANTED
        with here.device("attacker") as device:
            sent = [device.publish(topics.up("attacker", "stolen")) for _ in range(20)]
            assert set(sent) == {0}, "the broker confirms each"
            bridge.publish(topics.ack("attacker"))
        wait_until(lambda: len(bridge.topics) >= 8, "the bridge has its share")
        assert len(bridge.topics) < 20, "and the thief the rest"
        assert thief.topics == []


def test_nobody_takes_what_goes_down_to_another_nor_an_answer(here: World, victim: Victim) -> None:
    """Down topics, answers, the bridges' beats, a share of them, and the session of another under
    his client id.
    """
    with here.device("thief", client_id="victim") as thief:
        assert set(_codes(thief, (*OTHERS, "$SYS/#", "#"))) == {NOT_AUTHORISED}
        unharmed(victim, lambda: time.sleep(0.01))
        assert victim.client.mqtt.is_connected()
        assert thief.topics == []


@pytest.mark.long
def test_control_with_a_rule_for_all_the_same_thief_takes_what_goes_down_to_another(
    here: World, victim: Victim
) -> None:
    """He is not on the broker's list yet: its rules alone keep it from him."""
    here.site.issue("new-thief")
    with here.rules(devices="pattern read ew/#"), here.device("new-thief") as thief:
        assert set(_codes(thief, OTHERS)) <= GRANTED
        victim.send()
        wait_until(lambda: topics.ack("victim") in thief.topics, "he has another's answer")
