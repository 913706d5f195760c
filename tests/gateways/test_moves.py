"""A thing moves from one gateway to another while both are cut off and one is killed. What the
thing sent is in its own ledger; each of it comes once.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.gateways.floor import READY, Floor, Thing
from tests.services import wait_until

pytestmark = pytest.mark.services


def has_come(here: Floor, thing: Thing, count: int) -> None:
    wait_until(lambda: here.values("power", thing.name).total() == count, f"{count} readings")


def is_at(here: Floor, thing: Thing, gateway: str) -> None:
    wait_until(lambda: here.device(thing.name).get("via") == gateway, f"it is at {gateway}")


def test_a_move_while_both_gateways_are_cut_off_and_one_is_killed(here: Floor) -> None:
    here.start_gateway("gw-from")
    here.start_gateway("gw-to")
    numbered = Thing(here, "meter-move-1")
    control = Thing(here, "meter-move-2", is_numbered=False)
    things = (numbered, control)
    for thing in things:
        thing.send_until_kept("gw-from", 10)
    for thing in things:
        has_come(here, thing, 10)
        is_at(here, thing, "gw-from")

    here.broker.process.kill()
    for thing in things:
        thing.send_until_kept("gw-from", 10)
        # The gateway has them; the thing never hears it, for the gateway dies.
        unheard = [thing.reading() for _ in range(5)]
        assert here.post("gw-from", unheard)
        thing.unsure = unheard
    here.parts["gw-from"].kill()
    for thing in things:
        assert not thing.send("gw-from", 0), "nobody is there: the fault happened"
        thing.send_until_kept("gw-to", 10)
    made = {thing.name: thing.made for thing in things}
    assert made == {"meter-move-1": 35, "meter-move-2": 35}

    here.broker.start()
    for thing in things:
        has_come(here, thing, 25)
        is_at(here, thing, "gw-to")
    # What is known of the numbers survives a sequencer that is killed.
    here.parts["sequencer-1"].kill()
    here.parts["sequencer-1"].start().wait_for(READY)
    here.parts["gw-from"].start().wait_for(READY)

    twice = Counter(dict.fromkeys(range(1, 36), 1)) + Counter(dict.fromkeys(range(21, 26), 1))
    wait_until(lambda: here.values("power", control.name) == twice, "control: unsure ones, twice")
    once = Counter(range(1, numbered.made + 1))
    wait_until(lambda: here.values("power", numbered.name).keys() == once.keys(), "all of it")
    assert here.values("power", numbered.name) == once
    read = Counter(one["n"] for one in here.events("power", f"device = '{numbered.name}'"))
    assert read == once, "as a client has it"
    for thing in things:
        shown = here.device(thing.name)
        assert (shown["via"], shown["former"]) == ("gw-to", ["gw-from"]), "late ones move it not"


def test_it_goes_on_by_the_first_gateway_when_it_comes_back(here: Floor) -> None:
    here.start_gateway("gw-there")
    here.start_gateway("gw-back")
    thing = Thing(here, "meter-back-1")
    for gateway in ("gw-there", "gw-back", "gw-there"):
        thing.send_until_kept(gateway, 5)
        is_at(here, thing, gateway)
    assert here.values("power", thing.name) == Counter(range(1, 16))
