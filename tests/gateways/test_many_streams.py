"""One source gives all streams of its preset: a real agent and broker, HTTP, and a kill."""

from __future__ import annotations

import urllib.request

import pytest
from paho.mqtt import client as mqtt

from tests.gateways.floor import Floor
from tests.services import free_ports, wait_until

pytestmark = pytest.mark.services


def test_a_preset_and_nothing_else_fills_all_its_streams_over_a_kill(here: Floor) -> None:
    """One connection and one table; it was one for each of seven streams."""
    (port,) = free_ports(1)
    lines = (
        '[[source]]\ntype = "mqtt_subscribe"\nstream = "plugs"\nstreams = "all"\n'
        f'things = "devices"\npresets = ["tasmota"]\n[source.broker]\nport = {here.broker.port}',
        f'[[source]]\ntype = "http_intake"\nstream = "telegraf"\nstreams = "all"\nport = {port}\n'
        'presets = ["influx"]',
    )
    process = here.start_gateway("gw-many", *lines)
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", here.broker.port)
    client.loop_start()
    try:
        for number in range(4):
            if number == 2:
                process.kill()
            said = [
                ("STATE", f'{{"Uptime":{number},"POWER":"ON"}}'),
                ("SENSOR", f'{{"AM2301":{{"Temperature":{number}}}}}'),
            ]
            for kind, text in said:
                topic = f"tele/meter-many-1/{kind}"
                # The first one is kept for the source, whose subscription may be on its way.
                client.publish(topic, text, qos=1, retain=number == 0).wait_for_publish(10)
            if number == 2:
                process = here.start_gateway("gw-many", *lines)
            wait_until(lambda: here.device("gw-many").get("state") == "online", "it is there")
        for line in (b"cpu_many,host=h x=1i", b'mem_many,host=h x="text"'):
            url = f"http://127.0.0.1:{port}/write?db=d"
            with urllib.request.urlopen(url, line, timeout=10) as answer:
                assert answer.status == 204
        # Whoever writes JSON may write the key by which a map says a stream: it says nothing then.
        own = urllib.request.Request(
            f"http://127.0.0.1:{port}/", rb'{"\u0000stream": "cpu_many", "y": 2}',
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(own, timeout=10) as answer:
            assert answer.status == 200
    finally:
        for kind in ("STATE", "SENSOR"):
            topic = f"tele/meter-many-1/{kind}"
            client.publish(topic, b"", qos=1, retain=True).wait_for_publish(10)
        client.loop_stop()
        client.disconnect()

    def column(stream: str, device: str, name: str) -> list[object]:
        return [
            value
            for one in here.records(stream, device)
            for value in one.frame.fields.get(name, ())
        ]

    for stream, name in (("tasmota_state", "Uptime"), ("tasmota_sensor", "Temperature")):

        def values(stream: str = stream, name: str = name) -> list[object]:
            found = [
                value
                for one in here.records(stream, "meter-many-1")
                for field, column in one.frame.fields.items()
                if field.endswith(name)
                for value in column
            ]
            return sorted(found, key=str)

        wait_until(lambda v=values: len(v()) >= 4, f"all of {stream}")
        assert values() == [0, 1, 2, 3], "each once"
    wait_until(lambda: column("mem_many", "gw-many", "x") == ["text"], "another type of the name")
    wait_until(lambda: column("telegraf", "gw-many", "y") == [2], "what no map gave a stream")
    assert column("cpu_many", "gw-many", "x") == [1]
    assert column("cpu_many", "gw-many", "y") == []
    process.stop()  # it would bring the things of other tests, too
