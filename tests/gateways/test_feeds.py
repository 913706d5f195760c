"""A gateway follows streams of the cloud for the things behind it, and hands each its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateways.floor import Floor
from tests.services import free_ports, wait_until

pytestmark = pytest.mark.services

PLANS = """
[[source]]
type = "http_intake"
stream = "feed_orders"
port = {port}
"""
"""At the gateway that plans: orders for things of others, its own readings."""
FOLLOWS = """
[[source]]
type = "subscription"
stream = "limits_here"
follow = ["feed_limits"]
where = "device IN ('meter-feed-1', 'meter-feed-2')"
begin = "earliest"
things = "devices"
rename = {{ of_device = "thing" }}
send = false

[[source]]
type = "subscription"
stream = "orders_here"
follow = ["feed_orders"]
begin = "earliest"
things = "devices"
send = false

[[action]]
name = "limit"
stream = "limits_here"
type = "command"
command = ["{script}"]
user = "root"
pause_s = 0

[[action]]
name = "order"
stream = "orders_here"
type = "command"
command = ["{script}"]
user = "root"
pause_s = 0
"""
"""What is of a thing in the cloud (a result for it, what another gateway measured), and what names
it."""
THINGS = ("meter-feed-1", "meter-feed-2")


def test_things_are_handed_what_is_of_them_and_what_is_for_them(
    here: Floor, tmp_path: Path
) -> None:
    out, script = tmp_path / "handed", tmp_path / "hand-over.sh"
    # One write for each: two actions run beside one another.
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$(cat)" >> {out}\n')
    script.chmod(0o755)
    (port,) = free_ports(1)
    here.start_gateway("gw-plan", PLANS.format(port=port), stream="feed_limits")
    gateway = here.start_gateway("gw-floor", FOLLOWS.format(script=script), stream="floor_power")

    def handed() -> list[tuple[str, str, int]]:
        lines = out.read_text().splitlines() if out.exists() else []
        found = [json.loads(line) for line in lines if line]
        return sorted((one["device"], one["stream"], one["n"]) for one in found)

    limits = [{"thing": one, "n": n} for n, one in enumerate((*THINGS, "meter-other"))]
    wait_until(lambda: here.post("gw-plan", limits), "limits are there")
    orders = [{"thing": one, "n": n + 10} for n, one in enumerate(THINGS)]
    wait_until(lambda: here.post("gw-plan", orders, port), "orders are there")
    first = [
        ("meter-feed-1", "limits_here", 0),
        ("meter-feed-1", "orders_here", 10),
        ("meter-feed-2", "limits_here", 1),
        ("meter-feed-2", "orders_here", 11),
    ]
    wait_until(lambda: handed() == first, "each has its own")
    gateway.kill()
    wait_until(lambda: here.post("gw-plan", [{"thing": THINGS[0], "n": 20}]), "one more limit")
    gateway.start()
    more = sorted([*first, ("meter-feed-1", "limits_here", 20)])
    wait_until(lambda: handed() == more, "what came while it was away, and nothing again")
    assert here.records("limits_here", THINGS[0]) == [], "it stays at the gateway"
