"""A gateway that goes takes its things along, and says so."""

from __future__ import annotations

import pytest

from tests.gateways.floor import Floor, Thing
from tests.services import wait_until

pytestmark = pytest.mark.services


def test_the_last_will_of_a_gateway_makes_its_things_silent_with_a_reason(here: Floor) -> None:
    process = here.start_gateway("gw-will")
    thing = Thing(here, "meter-will-1")
    thing.send_until_kept("gw-will", 2)
    wait_until(lambda: here.device(thing.name).get("state") == "online", "it is there")
    assert here.device(thing.name)["reason"] == ""
    process.kill()
    wait_until(lambda: here.device(thing.name)["state"] == "silent", "it went with its gateway")
    assert here.device(thing.name)["reason"] == "its gateway gw-will is offline"
