"""What a gateway loses of a thing is a gap of that thing, for clients and operators; the ledger is
the thing's own.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from edgewake.edge import status
from tests.gateways.floor import Floor, Thing
from tests.services import wait_until

pytestmark = pytest.mark.services

OLD_S = 10.0
"""What has waited for so long is of no use here. While there is a connection a reading has its
frame after at most `linger_ms` (0.2 s) and a commit, and the first one when the gateway is
connected, some tenths of a second after its start: the control loses none on a machine that is far
slower."""


def lost(here: Floor, gateway: str) -> int:
    """Readings that the gateway's log has given up, as it says itself."""
    found = status.read_log(here.folder / gateway, now_ms=time.time_ns() // 1_000_000)
    return sum(found["lost"].values())


def gaps(here: Floor, device: str) -> list[dict[str, Any]]:
    """As a client is told of them."""
    found = here.events("power", f"device = '{device}'")
    return [one for one in found if one.get("$event") == "gap" and one.get("device") == device]


def test_what_is_lost_of_a_thing_at_its_gateway_is_a_gap_of_that_thing(here: Floor) -> None:
    here.start_gateway("gw-gap", f"[log.normal]\nage_s = {OLD_S}")
    hall, bath = Thing(here, "meter-gap-hall"), Thing(here, "meter-gap-bath")
    for one in (hall, bath):
        one.send_until_kept("gw-gap", 3)
    for one in (hall, bath):
        wait_until(lambda t=one: here.values("power", t.name).total() == 3, "before")  # type: ignore[misc]

    here.broker.process.kill()
    hall.send_until_kept("gw-gap", 1)

    def is_given_up() -> bool:
        """The gateway gives up what is too old when something comes."""
        hall.send("gw-gap")
        return lost(here, "gw-gap") > 0

    wait_until(is_given_up, "the fault happened")
    here.broker.start()

    def is_whole(thing: Thing) -> bool:
        thing.send("gw-gap")
        counted = sum(int(one["lost"]) for one in gaps(here, thing.name))
        return here.values("power", thing.name).total() == thing.made - counted

    wait_until(lambda: is_whole(hall), "what came and what is said to be lost is all of it")
    assert gaps(here, hall.name), "something was lost"
    assert {one["reason"] for one in gaps(here, hall.name)} == {"age"}
    wait_until(lambda: is_whole(bath), "and of the other one")
    assert gaps(here, bath.name) == [], "the other one lost nothing"
    assert gaps(here, "gw-gap") == [], "and the gateway lost none of its own"
    shown = here.ops("GET", f"/v1/streams/power/gaps?device={hall.name}")[1]["items"]
    assert {one["reason"] for one in shown} == {"age"}
    assert sum(one["count"] for one in shown) == sum(one["lost"] for one in gaps(here, hall.name))
