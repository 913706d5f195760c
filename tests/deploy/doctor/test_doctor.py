"""`edgewake doctor`: real services that answer, ports where nothing does."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy.doctor import doctor, open_transactions
from edgewake.deploy.doctor.doctor import Finding, Verdict
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.installation import Installation
from tests.services import PATIENCE_S, Kafka, Mosquitto, free_ports


def raising(error: Exception) -> doctor.Check:
    def check() -> str:
        raise error

    return check


def test_a_check_is_good_bad_or_a_warning_and_none_stops_the_others() -> None:
    found = doctor.examine(
        {
            "a": lambda: "fine",
            "b": raising(LocalError("no disk")),
            "c": raising(doctor.Advice("no clock")),
        }
    )
    assert found == [
        Finding("a", Verdict.GOOD, "fine"),
        Finding("b", Verdict.BAD, "no disk"),
        Finding("c", Verdict.WARNING, "no clock"),
    ]


def test_a_broker_and_kafka_that_answer_are_good(mosquitto: Mosquitto, kafka: Kafka) -> None:
    found = doctor.examine(
        doctor.of_services(Installation(mqtt=f"127.0.0.1:{mosquitto.port}", kafka=kafka.bootstrap))
    )
    assert [(finding.check, finding.verdict) for finding in found] == [
        ("MQTT broker", Verdict.GOOD),
        ("Kafka", Verdict.GOOD),
    ]
    assert "success" in found[0].detail
    assert "1 broker," in found[1].detail


def test_a_transaction_that_does_not_end_is_named_with_its_place(kafka: Kafka) -> None:
    """Open, it hides what others commit behind it; other transactions that come and go do not
    count.
    """
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    topic = topics.stream_topic("doctor_hanging")
    topic_admin.ensure_topics(config, [topic])
    hanging, passing = (
        clients.transactional_producer(config, f"doctor-{name}", timeout_ms=600_000)
        for name in ("hanging", "passing")
    )
    for producer in (hanging, passing):
        clients.fence(producer, PATIENCE_S)
    commit(passing, topic)
    hanging.begin_transaction()
    hanging.produce(topic, b"x", partition=0)
    hanging.flush()
    commit(passing, topic)
    try:
        with pytest.raises(
            doctor.Advice,
            match=f"nothing of {topic} partition 0 from offset [12]: a transaction there is open",
        ):
            doctor.kafka_answers(kafka.bootstrap, patience_s=1)
    finally:
        hanging.abort_transaction(PATIENCE_S)
    assert "1 broker" in doctor.kafka_answers(kafka.bootstrap)


def test_a_topic_that_is_deleted_meanwhile_is_left_out(kafka: Kafka) -> None:
    client = clients.admin(KafkaConfig(bootstrap=kafka.bootstrap))
    assert (
        open_transactions.hidden(
            client, {topics.stream_topic("doctor_deleted"): 2}, answer_s=PATIENCE_S
        )
        == {}
    )


def commit(producer: Producer, topic: str) -> None:
    """A transaction of one record."""
    producer.begin_transaction()
    producer.produce(topic, b"y", partition=0)
    producer.commit_transaction(PATIENCE_S)


def test_what_does_not_answer_is_bad_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ANSWER_S", 1.0)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    services = Installation(
        mqtt=address,
        kafka=address,
        access=(f"http://{address}",),
        ops=f"http://{address}",
        ops_key_file="missing",
    )
    found = doctor.examine(doctor.of_services(services))
    assert [finding.verdict for finding in found] == [Verdict.BAD] * 4
    assert all(f"{address} does not answer" in finding.detail for finding in found)


def test_who_is_no_broker_is_told_from_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.settimeout(5)
        import threading

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(Unavailable, match="expected an MQTT 5 broker"):
            doctor.broker_answers(f"127.0.0.1:{port}")
        thread.join()


def test_the_command_names_a_port_in_use_and_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as listener:
        port = listener.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "edgewake.deploy.cli",
            "doctor",
            "--data",
            str(tmp_path),
            "--port-base",
            str(port),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert (done.returncode, found["ports"]["verdict"]) == (1, "bad"), done.stderr
    assert f"port {port} (for access-1) is in use by" in found["ports"]["detail"]
    assert {"libraries", "Java", "Mosquitto", "jars", "disk", "clock", "ports"} == set(found)
