"""The agent as a process, without a cloud: a rule, an absence rule, and what is done about their
alerts.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from edgewake.protocol.clock import SystemClock
from tests.edge.actions.test_runner import Listener
from tests.edge.helpers import json_of
from tests.edge.test_agent import config, edgewake
from tests.services import Mosquitto, free_ports, part, wait_until

pytestmark = pytest.mark.services

TABLES = """
[[source]]
type = "file_tail"
stream = "engine"
path = "{path}"
poll_s = 0.01
send = false

[[chain]]
stream = "engine"
into = "engine_alerts"
lane = "urgent"
[[chain.processor]]
type = "rule"
name = "too hot"
when = "temperature > 110"

[[absence]]
name = "quiet"
stream = "engine"
into = "silences"
after_s = 1.0
send = false

[[action]]
name = "note"
type = "command"
stream = "engine_alerts"
when = "active = TRUE"
pause_s = 0
command = ["/bin/sh", "-c", "cat >> {directory}/noted; echo >> {directory}/noted"]
user = "root"

[[action]]
name = "tell"
type = "mqtt"
stream = "silences"
topic = "site/silence"
broker = {{ port = {port} }}
"""


async def test_without_a_cloud_alerts_are_raised_and_acted_on_once_also_over_a_kill(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    lines, noted = tmp_path / "engine.jsonl", tmp_path / "noted"
    (nowhere,) = free_ports(1)
    tables = TABLES.format(path=lines, directory=tmp_path, port=mosquitto.port)
    path = config(tmp_path, nowhere, "truck-12", tables)
    assert (
        "engine_alerts → command note, silences → mqtt tell"
        in edgewake("check", "--config", path).stdout
    )
    listener = Listener()
    link = await listener.listen(mosquitto.port, "site/silence")

    def drive(*temperatures: float) -> None:
        with lines.open("a") as file:
            for temperature in temperatures:
                file.write(
                    json.dumps({"t": SystemClock().now_ms(), "temperature": temperature}) + "\n"
                )

    def notes() -> list[Any]:
        return (
            [json.loads(line)["temperature"] for line in noted.read_text().splitlines()]
            if noted.exists()
            else []
        )

    agent = part("agent", path, tmp_path / "out").start()
    drive(90, 120, 121, 90)
    await asyncio.to_thread(wait_until, lambda: notes() == [120], "the first alert is noted")
    agent.kill()
    drive(90, 130)
    with agent:
        await asyncio.to_thread(
            wait_until, lambda: notes() == [120, 130], "and the one that came while it was away"
        )
        await asyncio.to_thread(
            wait_until,
            lambda: any(json.loads(one.payload)["active"] for one in listener.came),
            "it is quiet",
        )
        drive(90)
        await asyncio.to_thread(
            wait_until, lambda: not json.loads(listener.came[-1].payload)["active"], "and no more"
        )
        assert agent.stop() == 0
    link.cut("over")
    assert notes() == [120, 130]
    said: Any = json_of(edgewake("status", "--config", path, "--json").stdout)
    assert said["actions"]["note"]["done"] + said["actions"]["note"]["unknown"] == 2
    assert {said["log"]["streams"][name]["waiting"] for name in ("engine", "silences")} == {0}, (
        "they stay here"
    )
    assert said["log"]["streams"]["engine_alerts"]["waiting"] > 0, (
        "the cloud is told of these one day"
    )
    assert "action note" in edgewake("status", "--config", path).stdout
