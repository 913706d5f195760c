"""`discover` at a real broker, and the way from what it found to readings: its map file, an agent's
first configuration of it, and that agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.edge.peer import Peer
from tests.payloads.corpus import messages, payload_of
from tests.services import PATIENCE_S, Mosquitto, Process, run_mosquitto, wait_until

pytestmark = pytest.mark.services
EDGEWAKE = (sys.executable, "-m", "edgewake.deploy.cli")
SENT = ("tasmota", "zigbee2mqtt", "shelly-gen2")
OWN = {
    "garden/bed-1/soil": b"30.5",
    "garden/bed-2/soil": b"31.5",
    "factory/press-1/report": b'{"ts": 1790000000, "force": 3}',
    "factory/press-2/report": b'{"ts": 1790000001, "force": 4}',
}
OTHERS = {
    "ew/v1/car-7/up/speed": b'{"kmh": 50}',
    "spBv1.0/plant/NBIRTH/press": b"\x08\x01",
    "camera/yard": b"\xff\xd8\x00",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with run_mosquitto(tmp_path / "broker") as service:
        yield service


@contextmanager
def sending(broker: Mosquitto, sent: dict[str, bytes]) -> Iterator[None]:
    """Devices that say the same again and again."""
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect(broker.host, broker.port)
    client.loop_start()
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.2):
            for topic, payload in sent.items():
                client.publish(topic, payload, qos=1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        client.disconnect()
        client.loop_stop()


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [*EDGEWAKE, *words], cwd=cwd, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S, env=os.environ | {"EDGEWAKE_DATA": str(cwd / "none")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_speaks_on_a_broker_is_listed_and_an_agent_reads_it_by_what_was_proposed(
    broker: Mosquitto, tmp_path: Path
) -> None:
    presets = {one["topic"]: payload_of(one) for name, one in messages() if name in SENT}
    address = f"{broker.host}:{broker.port}"
    with sending(broker, presets | OWN | OTHERS):
        listens = ("discover", "--mqtt", address, "--seconds", "3")
        words = ("--json", "--write", "home.toml")
        found = json.loads(await asyncio.to_thread(run, *listens, *words, cwd=tmp_path))
        proposals = {one["name"]: one["topics"] for one in found["proposals"]}
        assert {*SENT} <= {*proposals}
        assert proposals["garden/{device}/{value}"] == ["garden/bed-1/soil", "garden/bed-2/soil"]
        assert (found["own"], found["nodes"], found["left"]) == (
            ["car-7"], ["plant/press"], ["camera/yard"]
        )  # fmt: skip
        text = await asyncio.to_thread(run, *listens, cwd=tmp_path)
        assert "preset tasmota" in text
        assert "Sparkplug B: 1 nodes: plant/press" in text

        words = ("--maps", "home.toml", "--devices-broker", address, "--data-dir", "log")
        said = ("agent", "init", "--device", "house", "--broker", address, *words, "agent.toml")
        await asyncio.to_thread(run, *said, cwd=tmp_path)
        command = [*EDGEWAKE, "agent", "--config", "agent.toml"]
        async with Peer(broker.port) as cloud:
            with Process(command, tmp_path / "agent.log", cwd=tmp_path) as agent:
                await asyncio.to_thread(
                    wait_until,
                    lambda: is_all_there(cloud) or not agent.is_running(),
                    "a reading of each device",
                )
                assert agent.is_running(), agent.output()[-2000:]


def is_all_there(cloud: Peer) -> bool:
    seen = defaultdict(set)
    for one in list(cloud.taken):
        if one.device != "house":
            continue
        for name, column in one.frame.fields.items():
            seen[one.stream, name].update(column)
    wanted = {("garden", "soil"): {30.5, 31.5}, ("factory", "force"): {3, 4}}
    return all(values <= seen[key] for key, values in wanted.items()) and all(
        seen[stream, "thing"] for stream in ("tasmota_sensor", "zigbee", "shelly2")
    )


def test_a_broker_where_nobody_speaks_or_none_at_all_is_said(
    broker: Mosquitto, tmp_path: Path
) -> None:
    text = run("discover", "--mqtt", f"{broker.host}:{broker.port}", "--seconds", "0.3",
               cwd=tmp_path)  # fmt: skip
    assert "Nothing came" in text
    broker.process.stop()
    done = subprocess.run(
        [*EDGEWAKE, "discover", "--mqtt", f"{broker.host}:{broker.port}", "--seconds", "1"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert str(broker.port) in done.stderr
