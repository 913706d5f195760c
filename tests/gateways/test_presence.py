"""A gateway that goes takes its things along, and says so."""

from __future__ import annotations

import pytest
from paho.mqtt import client as mqtt

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


@pytest.mark.long
def test_a_thing_whose_broker_says_that_it_is_gone_is_offline(here: Floor) -> None:
    """The last will of a plug at the gateway's broker, read by a preset."""
    here.start_gateway(
        "gw-plug",
        '[[source]]\ntype = "mqtt_subscribe"\nstream = "tasmota_presence"\nthings = "devices"',
        f'presets = ["tasmota"]\n[source.broker]\nport = {here.broker.port}',
    )
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", here.broker.port)
    client.loop_start()
    try:
        for word, state in (("Online", "online"), ("Offline", "offline"), ("Online", "online")):
            client.publish("tele/meter-plug-1/LWT", word, 1, retain=True).wait_for_publish(10)
            wait_until(
                lambda s=state: here.device("meter-plug-1").get("state") == s, f"it is {state}"
            )
            why = "it said so by its gateway gw-plug" if state == "offline" else ""
            assert here.device("meter-plug-1")["reason"] == why
    finally:
        client.publish("tele/meter-plug-1/LWT", b"", 1, retain=True).wait_for_publish(10)
        client.loop_stop()
        client.disconnect()
