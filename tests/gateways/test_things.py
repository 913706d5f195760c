"""Things behind a gateway are devices: from a reading at the gateway to the client and the page."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from paho.mqtt import client as mqtt

from tests.gateways.floor import Floor, Thing
from tests.services import wait_until

pytestmark = pytest.mark.services


def test_a_thing_behind_a_gateway_is_a_device_of_its_own(here: Floor) -> None:
    here.start_gateway("gw-thin")
    one, other = Thing(here, "meter-thin-1"), Thing(here, "meter-thin-2")
    for _ in range(5):
        assert one.send("gw-thin")
    assert other.send("gw-thin", 3)
    assert here.post("gw-thin", [{"n": 99}]), "a reading of the gateway itself"
    wait_until(lambda: here.values("power", "meter-thin-2").total() == 3, "all of the second")
    wait_until(lambda: here.values("power", "meter-thin-1").total() == 5, "all of the first")
    wait_until(lambda: here.values("power", "gw-thin").total() == 1, "the gateway's own")

    records = here.records("power", "meter-thin-1")
    numbered = [
        seq for r in records for seq in range(r.frame.seq or 0, (r.frame.seq or 0) + len(r.frame.t))
    ]
    assert numbered == [1, 2, 3, 4, 5], "its own numbers, without holes"
    assert {one.via for one in records} == {"gw-thin"}
    assert {one.via for one in here.records("power", "gw-thin")} == {""}

    wait_until(lambda: here.events("power", "device = 'meter-thin-1'"), "a client reads it")
    (first, *_) = here.events("power", "via = 'gw-thin' AND device = 'meter-thin-1'")
    assert (first["device"], first["via"], first["n"], first["seq"]) == (
        "meter-thin-1",
        "gw-thin",
        1,
        1,
    )
    assert "thing" not in first

    wait_until(lambda: here.device("meter-thin-1"), "the operations API lists it")
    shown = here.device("meter-thin-1")
    assert (shown["via"], shown["state"], shown["agent"]) == ("gw-thin", "online", False)
    assert shown["streams"] == ["power"]
    assert here.device("gw-thin")["agent"]


def test_a_map_that_names_a_device_makes_it_one(here: Floor, tmp_path: Path) -> None:
    """Numbered by the map, so that a message that comes again counts once."""
    maps = tmp_path / "floor.toml"
    maps.write_text(
        '[[map]]\ntopic = "floor/{device}/climate"\ndevice = "{device}"\n'
        'stream = "climate"\nseq = "no"\ntime = "at"\n'
    )
    here.start_gateway(
        "gw-map",
        '[[source]]\ntype = "mqtt_subscribe"\nstream = "climate"\nthings = "devices"',
        f'maps = "{maps}"\n[source.broker]\nport = {here.broker.port}',
    )
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", here.broker.port)
    client.loop_start()
    try:

        def send(number: int) -> None:
            """A number has the same time each time: that makes it the same reading."""
            body = {"no": number, "at": 1_790_000_000_000 + number, "n": number}
            client.publish("floor/meter-map-1/climate", json.dumps(body), 1).wait_for_publish(10)

        def is_heard() -> bool:
            """The broker has our subscription: what it was sent before is nobody's."""
            send(0)
            return bool(here.values("climate", "meter-map-1"))

        wait_until(is_heard, "the gateway listens")
        for number in (1, 2, 2, 3):
            send(number)
        wait_until(lambda: 3 in here.values("climate", "meter-map-1"), "all of it")
    finally:
        client.loop_stop()
        client.disconnect()
    assert here.values("climate", "meter-map-1") == Counter([0, 1, 2, 3])
    assert here.device("meter-map-1")["via"] == "gw-map"


def test_a_gateway_speaks_only_for_what_its_rule_names(here: Floor) -> None:
    here.start_gateway("gw-rule")
    foreign = Thing(here, "pump-1")
    good = Thing(here, "meter-rule-1")
    assert foreign.send("gw-rule", 2)
    assert good.send("gw-rule", 2)
    wait_until(lambda: here.values("power", "meter-rule-1").total() == 2, "what its rule names")
    wait_until(lambda: here.letters("gw-rule"), "what it does not name is refused")
    (letter, *_) = here.letters("gw-rule")
    assert letter.reason == "foreign_device"
    assert '[[gateway]] name = "gw-rule", things = ["pump-1"]' in letter.detail
    assert here.values("power", "pump-1") == {}
    assert here.letters("pump-1") == [], "it is the gateway's letter"
    assert here.device("pump-1") == {}
