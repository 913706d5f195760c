"""A thing moves from one gateway to another while both are cut off and one is killed. What the
thing sent is in its own ledger; each of it comes once.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter

import pytest

from tests.gateways.floor import READY, Floor, Thing
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.services


def has_come(here: Floor, thing: Thing, count: int) -> None:
    wait_until(lambda: here.values("power", thing.name).total() == count, f"{count} readings")


def is_at(here: Floor, thing: Thing, gateway: str) -> None:
    wait_until(lambda: here.device(thing.name).get("via") == gateway, f"it is at {gateway}")


@pytest.mark.long
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


@pytest.mark.long
def test_it_goes_on_by_the_first_gateway_when_it_comes_back(here: Floor) -> None:
    here.start_gateway("gw-there")
    here.start_gateway("gw-back")
    thing = Thing(here, "meter-back-1")
    for gateway in ("gw-there", "gw-back", "gw-there"):
        thing.send_until_kept(gateway, 5)
        is_at(here, thing, gateway)
    assert here.values("power", thing.name) == Counter(range(1, 16))


def latest(here: Floor, thing: Thing) -> dict[str, object]:
    address = f"http://127.0.0.1:{here.access_port}/v1/latest/power"
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            rows = json.loads(answer.read())["rows"]
    except OSError:  # not now, as an answer 503 or none at all says
        return {}
    return next((row for row in rows if row["device"] == thing.name), {})


def is_latest(here: Floor, thing: Thing, gateway: str) -> bool:
    found = latest(here, thing)
    return (found.get("n"), found.get("via")) == (thing.made, gateway)


@pytest.mark.long
def test_its_latest_value_is_the_newest_whichever_gateway_brought_it(here: Floor) -> None:
    """The log of the second gateway is younger, so its epoch is higher: numbers of two gateways
    say nothing of each other.
    """
    here.start_gateway("gw-older")
    thing = Thing(here, "meter-latest")
    thing.send_until_kept("gw-older", 1)
    is_at(here, thing, "gw-older")
    here.start_gateway("gw-younger")
    for gateway in ("gw-younger", "gw-older", "gw-younger", "gw-older"):
        thing.send_until_kept(gateway, 2)
        has_come(here, thing, thing.made)
        wait_until(lambda by=gateway: is_latest(here, thing, by), f"the newest, by {gateway}")  # type: ignore[misc]


@pytest.mark.long
def test_a_week_of_what_the_first_gateway_had_kept_moves_nothing_back(here: Floor) -> None:
    here.start_gateway("gw-week-1")
    here.start_gateway("gw-week-2")
    thing = Thing(here, "meter-week")
    thing.send_until_kept("gw-week-1", 1)
    has_come(here, thing, 1)
    here.broker.process.kill()
    week_ms = 7 * 86_400_000
    kept = [thing.reading() for _ in range(50)]
    for n, one in enumerate(kept):
        one["t"] -= week_ms - n * 3_600_000
    assert here.post("gw-week-1", kept)
    here.parts["gw-week-1"].kill()
    here.broker.start()
    thing.send_until_kept("gw-week-2", 5)
    has_come(here, thing, 6)
    is_at(here, thing, "gw-week-2")
    here.parts["gw-week-1"].start().wait_for(READY)
    has_come(here, thing, thing.made)
    assert here.values("power", thing.name) == Counter(range(1, thing.made + 1))
    wait_until(lambda: latest(here, thing).get("n") == thing.made, "the newest stays the latest")
    shown = here.device(thing.name)
    assert (shown["via"], shown["former"], shown["state"]) == (
        "gw-week-2",
        ["gw-week-1"],
        "online",
    )


def test_two_gateways_that_claim_one_thing_are_a_problem_and_harm_nobody_else(here: Floor) -> None:
    for name in ("gw-claim-1", "gw-claim-2"):
        here.start_gateway(name)
    good, claimed = Thing(here, "meter-claim-good"), Thing(here, "meter-claimed")
    other = Thing(here, claimed.name)

    def told() -> list[str]:
        status, found = here.ops("GET", "/v1/problems")
        assert status == 200, found
        return [one["text"] for one in found["items"] if one["text"].startswith(claimed.name)]

    def both_speak() -> bool:
        claimed.send("gw-claim-1")
        other.send("gw-claim-2")
        good.send("gw-claim-1")
        return bool(told())

    wait_until(both_speak, "operators are told")
    assert "the gateways gw-claim-1 and gw-claim-2 send for it at once" in told()[0]
    good.send_until_kept("gw-claim-1", 1)
    has_come(here, good, good.made)
    assert here.values("power", good.name) == Counter(range(1, good.made + 1))
    (passed,) = {one.via for one in here.records("power", good.name)}
    assert passed == "gw-claim-1"
