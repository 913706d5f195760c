"""How the times of readings were found is seen in the cloud: at an agent, and at the bridge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.gateways.floor import OPS_KEY, Floor
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.services
AT = 1_790_000_000


def test_how_times_were_found_is_shown_of_a_stream(here: Floor) -> None:
    auto = '[source.time]\nfield = "auto"'
    here.start_gateway("gw-times", auto, stream="tides")
    bodies: list[dict[str, Any]] = [{"ts": AT + n, "level": n} for n in range(3)]
    assert here.post("gw-times", [*bodies, {"level": 4}, {"t": AT * 1000, "level": 5}])
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", here.broker.port)
    client.loop_start()
    try:
        wait_until(lambda: here.records("tides", "gw-times"), "the stream is there")
        for t in (AT, AT * 1000 + 1):
            body = json.dumps({"t": t, "level": 6})
            client.publish("ew/v1/buoy-1/up/tides", body, 1).wait_for_publish(10)
    finally:
        client.disconnect()
        client.loop_stop()

    def look() -> list[tuple[Any, ...]]:
        found = here.ops("GET", "/v1/streams/tides/look")[1]
        return [(one["how"], one["by"], one["readings"]) for one in found["times"]]

    wait_until(
        lambda: (
            look() == [("ts (s)", "agent", 3), ("arrival", "agent", 1), ("t (s)", "bridge", None)]
        ),
        "the cloud was told",
    )
    command = [sys.executable, "-m", "edgewake.deploy.cli", "streams", "show", "tides", "--table"]
    where = {
        "EDGEWAKE_OPS_URL": f"http://127.0.0.1:{here.ops_port}",
        "EDGEWAKE_OPS_KEY": OPS_KEY,
        "COLUMNS": "200",
    }
    shown = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ | where
    ).stdout
    said = (
        "2 said by devices (converted: t (s) first from buoy-1), 5 of agents (since they began 3 "
        "found in ts (s), 1 of their arrival there, the others in t, or by a map)"
    )
    assert said in " ".join(shown.split()), shown
