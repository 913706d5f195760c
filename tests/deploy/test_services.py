"""The services that all other tests stand on."""

from __future__ import annotations

from pathlib import Path

from edgewake.cloud.kafka.clients import admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.topic_admin import ensure_topics
from tests.services import Kafka, Mosquitto, port_is_open, run_mosquitto


def test_kafka_makes_our_topics_and_none_by_itself(kafka: Kafka, kafka_config: KafkaConfig) -> None:
    ensure_topics(kafka_config, ["ew.s.deploy_services"])
    client = admin(kafka_config)
    assert "ew.s.deploy_services" in client.list_topics(timeout=10).topics
    assert client.list_topics("ew.s.deploy_misspelt", timeout=10).topics["ew.s.deploy_misspelt"].error is not None


def test_mosquitto_comes_back_on_the_same_port_after_kill_9(tmp_path: Path) -> None:
    with run_mosquitto(tmp_path) as service:
        service.process.kill()
        assert not port_is_open(service.port)
        service.start()
        assert port_is_open(service.port)
    assert not port_is_open(service.port)


def test_the_shared_mosquitto_takes_connections(mosquitto: Mosquitto) -> None:
    assert port_is_open(mosquitto.port, mosquitto.host)
