"""The services that all other tests stand on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from edgewake.cloud.kafka.clients import admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.topic_admin import ensure_topics
from tests.services import Kafka, Mosquitto, Process, port_is_open, run_mosquitto, thread_states


def test_kafka_makes_our_topics_and_none_by_itself(kafka: Kafka, kafka_config: KafkaConfig) -> None:
    ensure_topics(kafka_config, ["ew.s.deploy_services"])
    client = admin(kafka_config)
    assert "ew.s.deploy_services" in client.list_topics(timeout=10).topics
    assert (
        client.list_topics("ew.s.deploy_misspelt", timeout=10).topics["ew.s.deploy_misspelt"].error
        is not None
    )


def test_mosquitto_comes_back_on_the_same_port_after_kill_9(tmp_path: Path) -> None:
    with run_mosquitto(tmp_path) as service:
        service.process.kill()
        assert not port_is_open(service.port)
        service.start()
        assert port_is_open(service.port)
    assert not port_is_open(service.port)


def test_the_shared_mosquitto_takes_connections(mosquitto: Mosquitto) -> None:
    assert port_is_open(mosquitto.port, mosquitto.host)


# On one processor, also of a machine with many: there the signal is taken before anybody can look.
BUSY_THREADS = """
import hashlib, os, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for _ in range(16):
    work = lambda: [hashlib.sha256(bytes(1_000_000)) for _ in iter(int, 1)]
    threading.Thread(target=work).start()
print("busy", flush=True)
"""


@pytest.mark.services
def test_nothing_of_a_frozen_process_runs_and_the_signal_alone_does_not_say_that(
    tmp_path: Path,
) -> None:
    """A Kafka on a busy machine answered after SIGSTOP: the thread that was to take it waited for a
    processor, others did not.
    """
    runs_on = 0
    with Process([sys.executable, "-c", BUSY_THREADS], tmp_path / "log") as process:
        process.wait_for("busy")
        for _ in range(60):
            os.kill(process.pid, signal.SIGSTOP)
            runs_on += thread_states(process.pid) != {"T"}
            process.thaw()
            process.freeze()
            assert thread_states(process.pid) == {"T"}
            process.thaw()
    assert runs_on, "the control: right after the signal no thread ever ran on"
