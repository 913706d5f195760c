"""Fleet and replay against the real broker, bridge and Kafka: what is acknowledged is on `ew.up`,
each reading with its number.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka import TopicPartition
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.record import Record
from edgewake.simulators import faults
from tests.services import STAYS, Mosquitto, Process, part, run_kafka, run_mosquitto, wait_until

READY = '"event":"part.ready"'


class UpReader:
    """What comes on `ew.up` from now on, of one stream."""

    def __init__(self, config: KafkaConfig, stream: str) -> None:
        topic_admin.ensure_topics(config, [topics.UP])
        self._consumer = clients.consumer(
            config, f"test-{stream}", **{"fetch.wait.max.ms": clients.HANDED_OVER_WAIT_MS}
        )
        places = [TopicPartition(topics.UP, partition) for partition in range(topics.UP_PARTITIONS)]
        for place in places:
            place.offset = watermarks(self._consumer, place.topic, place.partition)[1]
        self._consumer.assign(places)
        self._stream = stream
        self.records: list[Record] = []

    def poll(self) -> list[Record]:
        """Everything so far."""
        for message in self._consumer.consume(1000, 0.05):
            assert message.error() is None, message.error()
            found = record.decode(message.value())
            if found.stream == self._stream:
                self.records.append(found)
        return self.records

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(scope="module")
def kafka_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaConfig]:
    """A Kafka of its own: elsewhere tests say how far a sequencer is, and a bridge accepts nothing
    that one which is behind could lose.
    """
    with run_kafka(tmp_path_factory.mktemp("own-kafka"), *STAYS) as service:
        yield KafkaConfig(bootstrap=service.bootstrap)


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of its own: it would share out messages to the bridges of other tests, stopped ones
    included.
    """
    with run_mosquitto(tmp_path / "mosquitto") as service:
        yield service


@pytest.fixture
def bridge(mosquitto: Mosquitto, kafka_config: KafkaConfig, tmp_path: Path) -> Iterator[Process]:
    """A bridge to the shared Kafka."""
    config = tmp_path / "bridge.toml"
    config.write_text(
        f'[mqtt]\nport = {mosquitto.port}\n[kafka]\nbootstrap = "{kafka_config.bootstrap}"\n'
    )
    with part("bridge", config, tmp_path / "bridge.log") as process:
        process.wait_for(READY)
        yield process


def edgewake(log: Path, *arguments: str) -> Process:
    return Process([sys.executable, "-m", "edgewake.deploy.cli", *arguments], log)


def replay(tmp_path: Path, mosquitto: Mosquitto, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `edgewake replay`."""
    process = edgewake(
        tmp_path / "replay.log", "replay", *arguments, "--port", str(mosquitto.port)
    ).start()
    wait_until(lambda: not process.is_running(), "the replay ends")
    return process.stop(), process.output()


def seqs(records: list[Record]) -> dict[tuple[str, int | None], list[int | None]]:
    found: dict[tuple[str, int | None], list[int | None]] = {}
    for one in records:
        found.setdefault((one.device, one.frame.epoch), []).append(one.frame.seq)
    return found


def test_every_row_of_a_file_is_acknowledged_and_in_kafka(
    tmp_path, mosquitto, bridge, kafka_config
):
    up = UpReader(kafka_config, "g_replayed")
    lines = [f"{1_790_000_000 + i // 3},bus {i % 3},{i}.5" for i in range(300)]
    (tmp_path / "drive.csv").write_text("time,bus,speed\n" + "\n".join([*lines, "broken"]) + "\n")
    code, said = replay(
        tmp_path,
        mosquitto,
        str(tmp_path / "drive.csv"),
        "--stream",
        "g_replayed",
        "--device-field",
        "bus",
        "--speed",
        "max",
        "--times",
        "recorded",
    )
    assert code == 3, said  # all is there but the row that cannot be read
    assert "sent 300, acked 300, rejected 0, unacked 0, bad rows 1" in said
    wait_until(lambda: sum(len(one.frame.t) for one in up.poll()) >= 300, "300 readings")
    assert list(seqs(up.records).values()) == [[1]] * 3, (
        "a frame of a hundred readings for each device"
    )
    assert {one.device for one in up.records} == {"bus-0", "bus-1", "bus-2"}
    assert up.records[0].frame.t[0] == 1_790_000_000_000
    up.close()


@pytest.mark.long
def test_a_refused_reading_is_said_and_fails_the_command(tmp_path, mosquitto, bridge):
    """The other readings of its frame are kept, each by itself."""
    rows = (
        {"t": 1790000000 + i, "g_v": 1.5} | ({"g_text": "x" * 100_000} if i == 1 else {})
        for i in range(3)
    )
    (tmp_path / "x.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    code, said = replay(
        tmp_path, mosquitto, str(tmp_path / "x.jsonl"), "--stream", "g_refused", "--speed", "max"
    )
    assert code == 1
    assert "sent 3, acked 2, rejected 1" in said
    assert "oversize" in said


@pytest.mark.long
def test_without_a_bridge_the_replay_gives_up_and_says_so(tmp_path, mosquitto):
    (tmp_path / "x.csv").write_text("t,a\n1790000000,1\n")
    code, said = replay(
        tmp_path,
        mosquitto,
        str(tmp_path / "x.csv"),
        "--stream",
        "g_nobody",
        "--patience",
        "1",
        "--speed",
        "max",
    )
    assert code == 1
    assert "sent 1, acked 0, rejected 0, unacked 1" in said
    assert "does the broker at" in said


def test_a_strangers_client_is_answered_when_its_reading_is_safe(mosquitto, bridge, kafka_config):
    """paho, because our simulators share their codec with the bridge: a fault in it would be on
    both sides.
    """
    up, answers, subscribed = UpReader(kafka_config, "g_stranger"), [], threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="g-stranger", protocol=paho.MQTTv5)
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _c, _u, message: answers.append(
        (message.properties.CorrelationData, orjson.loads(message.payload))
    )
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()
    try:
        client.subscribe("ew/v1/g-stranger/ack", qos=1)
        assert subscribed.wait(60)
        properties = Properties(PacketTypes.PUBLISH)
        properties.ResponseTopic = "ew/v1/g-stranger/ack"
        for number in range(1, 21):
            properties.CorrelationData = b"%d" % number
            client.publish(
                "ew/v1/g-stranger/up/g_stranger",
                orjson.dumps({"seq": number, "g_speed": 1.5}),
                qos=1,
                properties=properties,
            )
        wait_until(lambda: len(answers) >= 20, "an answer to each")
    finally:
        client.disconnect()
        client.loop_stop()
    assert {int(correlation) for correlation, answer in answers if set(answer) == {"token"}} == set(
        range(1, 21)
    )
    wait_until(lambda: len(up.poll()) >= 20, "20 records")
    assert sorted(one.frame.seq for one in up.records) == list(range(1, 21))
    up.close()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["{}", "--speed", "0"], "more than 0"),
        (["{}", "--zone", "Mars/Olympus"], "--zone 'Mars/Olympus'"),
        (["{}", "--time-field", "when"], "no column 'when'; there are t, a"),
        (["{}x"], "does not exist"),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(tmp_path: Path, arguments: list[str], why: str):
    (tmp_path / "x.csv").write_text("t,a\n1,1\n")
    process = edgewake(
        tmp_path / "log", "replay", *(a.format(tmp_path / "x.csv") for a in arguments)
    ).start()
    wait_until(lambda: not process.is_running(), "the command ends")
    assert process.stop() != 0
    assert why in process.output()
    assert "Traceback" not in process.output()


def test_a_fleet_loses_nothing_when_its_bridge_is_killed(tmp_path, mosquitto, bridge, kafka_config):
    """Numbers of each vehicle are complete on `ew.up`; repeats are the sequencer's to remove."""
    up = UpReader(kafka_config, "vehicle_position")
    options = [
        "--vehicles",
        "3",
        "--interval",
        "0.1",
        "--prefix",
        "g-fleet-",
        "--port",
        str(mosquitto.port),
    ]
    with edgewake(tmp_path / "fleet.log", "simulate", "fleet", *options) as fleet:
        fleet.wait_for(READY)
        wait_until(lambda: len(mine(up)) > 30, "the fleet sends")
        faults.kill_9("bridge", bridge.pid, lambda: None if bridge.is_running() else bridge.stop())
        before = len(mine(up))
        bridge.start()
        wait_until(lambda: len(mine(up)) > before + 60, "the fleet goes on")
        fleet.signal(signal.SIGTERM)
        wait_until(lambda: not fleet.is_running(), "the fleet stops")
        assert fleet.stop() == 0
    for (device, _), numbers in seqs(mine(up)).items():
        assert sorted(set(numbers)) == list(range(1, max(numbers) + 1)), device
    up.close()


def mine(up: UpReader) -> list[Record]:
    return [one for one in up.poll() if one.device.startswith("g-fleet-")]


def test_the_town_is_written_as_the_page_has_it(tmp_path: Path):
    process = edgewake(
        tmp_path / "log", "simulate", "town", "--out", str(tmp_path / "town.geojson")
    ).start()
    wait_until(lambda: not process.is_running(), "the command ends")
    assert process.stop() == 0
    assert (tmp_path / "town.geojson").read_bytes() == (
        Path(__file__).parents[2] / "cloud/page/town.geojson"
    ).read_bytes()


def test_a_fleet_says_clearly_that_a_prefix_is_wrong(tmp_path: Path):
    process = edgewake(tmp_path / "log", "simulate", "fleet", "--prefix", "a/b").start()
    wait_until(lambda: not process.is_running(), "the command ends")
    assert process.stop() == 2
    assert re.search(r"--prefix.*expected A-Z", process.output(), re.S)
