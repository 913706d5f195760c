"""`edgewake send` to a real broker; the cloud is played by a client that answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.protocol import installation
from edgewake.protocol.installation import Installation
from tests.services import PATIENCE_S, Mosquitto, free_ports

ROOT = Path(__file__).parents[3]


def send(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("EDGEWAKE_")}
    command = [sys.executable, "-m", "edgewake.deploy.cli", "send", *arguments]
    environment |= {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=folder,
        env=mine | environment,
    )


@contextmanager
def cloud(broker: Mosquitto, answer: dict[str, object] | None) -> Iterator[list[bytes]]:
    """Takes readings, and answers where it is asked to and has an answer."""
    taken: list[bytes] = []
    subscribed = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)

    def on_message(_client: object, _data: object, message: paho.MQTTMessage) -> None:
        taken.append(message.payload)
        asked = message.properties
        if answer is not None and getattr(asked, "ResponseTopic", None):
            for correlation in (b"somebody else's", asked.CorrelationData):
                properties = Properties(PacketTypes.PUBLISH)
                properties.CorrelationData = correlation
                body = answer if correlation == asked.CorrelationData else {"token": "9.9"}
                client.publish(asked.ResponseTopic, json.dumps(body), qos=1, properties=properties)

    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", broker.port)
    client.subscribe("ew/v1/+/up/+", 1)
    client.loop_start()
    try:
        assert subscribed.wait(PATIENCE_S)
        yield taken
    finally:
        client.loop_stop()
        client.disconnect()


READING = '{"temperature": 21.5}'


@pytest.mark.parametrize(
    ("answer", "code", "out", "said"),
    [
        ({"token": "2.88123"}, 0, "2.88123\n", ""),
        (
            {"token": "d0.17", "rejected": "field_type", "detail": "why"},
            1,
            "d0.17\n",
            "refused (field_type), kept as a dead letter: why",
        ),
        (
            {"later": "busy", "retry_after_ms": 3000, "detail": "full"},
            1,
            "",
            "not now (busy), again in 3 s: full",
        ),
    ],
)
def test_ack_waits_for_the_cloud_s_own_answer(
    mosquitto: Mosquitto, tmp_path: Path, answer: dict[str, object], code: int, out: str, said: str
) -> None:
    with cloud(mosquitto, answer) as taken:
        done = send(
            tmp_path, "shed", "weather", READING, "--ack", "--mqtt", f"127.0.0.1:{mosquitto.port}"
        )
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert said in done.stderr
    assert taken == [READING.encode()]


def test_without_ack_the_broker_s_receipt_suffices(mosquitto: Mosquitto, tmp_path: Path) -> None:
    done = send(tmp_path, "shed", "weather", READING, EDGEWAKE_MQTT=f"127.0.0.1:{mosquitto.port}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nobody_answers(mosquitto: Mosquitto, tmp_path: Path) -> None:
    done = send(
        tmp_path,
        "shed",
        "weather",
        READING,
        "--ack",
        "--timeout",
        "0.5",
        "--mqtt",
        f"127.0.0.1:{mosquitto.port}",
    )
    assert done.returncode == 1
    assert "is a bridge running?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("shed", "weather", "{nope"), "JSON"),
        (("shed", "weather", "[1]"), "object"),
        (("shed", "Bad-Stream", READING), "stream 'Bad-Stream': expected 1-64 of a-z 0-9 _"),
        (("a/b", "weather", READING), "expected ew/v1/<device>/up/<stream>"),
        (("shed", "weather", READING), "no MQTT address"),
        (("shed", "weather", READING, "--mqtt", "nowhere"), "expected host:port"),
    ],
)
def test_what_cannot_be_sent_ends_with_a_sentence_and_code_2(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = send(tmp_path, *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert said in done.stderr


def test_a_broker_that_is_away_is_named(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    done = send(tmp_path, "shed", "weather", READING, "--mqtt", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr


def test_a_running_system_is_found_by_its_data_folder_only_while_it_runs(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    import fcntl

    data = tmp_path / "data"
    data.mkdir()
    installation.write(data, Installation(mqtt=f"127.0.0.1:{mosquitto.port}", access=("http://a",)))
    with (data / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert send(tmp_path, "shed", "weather", READING).returncode == 0
        assert send(ROOT, "shed", "weather", READING, EDGEWAKE_DATA=str(data)).returncode == 0
        assert installation.find({"EDGEWAKE_DATA": str(data)}).access == ("http://a",)
    assert send(tmp_path, "shed", "weather", READING).returncode == 2
