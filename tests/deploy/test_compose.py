"""The compose file and its configurations, checked as far as they can be without its images."""

from __future__ import annotations

import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy import cli, kafka_node
from edgewake.protocol.config import load

DEPLOY = Path(cli.__file__).parent
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PARTS = {name: service for name, service in SERVICES.items() if service["image"] == "edgewake"}
MODELS = {
    "bridge": "edgewake.cloud.bridge.config:BridgeConfig",
    "sequencer": "edgewake.cloud.sequencer.config:SequencerConfig",
    "analysis": "edgewake.cloud.analysis.config:AnalysisConfig",
    "access": "edgewake.cloud.access.config:AccessConfig",
    "push": "edgewake.cloud.push.run:PushConfig",
    "ops": "edgewake.cloud.ops.run:OpsConfig",
}


def model(part: str) -> Any:
    """The configuration model of a part."""
    module, _, name = MODELS[part].partition(":")
    return getattr(import_module(module), name)


def settings(service: str) -> Any:
    """A service's configuration, read as the part itself reads it."""
    command, option, file = PARTS[service]["command"]
    assert option == "--config"
    return load(model(command), DEPLOY / "compose" / Path(file).name)


def test_there_are_the_parts_that_a_production_has() -> None:
    count = {command: sum(1 for part in PARTS.values() if part["command"][0] == command) for command in MODELS}
    assert count == {"bridge": 2, "sequencer": 1, "analysis": 1, "access": 2, "push": 1, "ops": 1}
    assert {"mosquitto", "kafka-1", "kafka-2", "kafka-3", "proxy"} <= set(SERVICES)


@pytest.mark.parametrize("service", PARTS)
def test_each_part_is_a_command_with_a_configuration_it_accepts(service: str) -> None:
    assert PARTS[service]["command"][0] in cli.HELP
    kafka: KafkaConfig = settings(service).kafka
    assert kafka.replication == 3
    assert kafka.bootstrap.split(",") == ["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"]


@pytest.mark.parametrize("service", PARTS)
def test_every_file_a_part_reads_is_mounted_into_it(service: str) -> None:
    mounts = [volume.split(":")[1] for volume in PARTS[service]["volumes"]]
    mounts += [f"/run/secrets/{secret}" for secret in PARTS[service].get("secrets", [])]
    text = (DEPLOY / "compose" / Path(PARTS[service]["command"][2]).name).read_text()
    files = [path for path in re.findall(r'= "(/[^"]+)"', text) if not path.startswith("/var/lib/edgewake/spark-jars")]
    assert all(any(path.startswith(mount) for mount in mounts) for path in files)


def test_names_differ_where_two_run_side_by_side() -> None:
    assert settings("bridge-1").name != settings("bridge-2").name
    assert settings("access-1").name != settings("access-2").name


def test_every_volume_network_and_secret_is_declared() -> None:
    for service in SERVICES.values():
        assert set(service.get("networks", [])) <= set(COMPOSE["networks"])
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", [])) <= set(SERVICES)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"]
            assert not source.startswith("./") or source == "./compose/certs" or (DEPLOY / source).exists()


def test_kafka_survives_the_loss_of_one_broker() -> None:
    for i in (1, 2, 3):
        environment = SERVICES[f"kafka-{i}"]["environment"]
        assert (environment["KAFKA_DEFAULT_REPLICATION_FACTOR"], environment["KAFKA_MIN_INSYNC_REPLICAS"]) == (3, 2)
        assert environment["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"] == "false"
        assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
        assert environment["KAFKA_NODE_ID"] == i


def test_the_images_of_kafka_are_the_version_of_the_jars() -> None:
    assert SERVICES["kafka-1"]["image"].endswith(f":{kafka_node.VERSION}")


def test_docker_compose_accepts_the_file_where_it_is_installed() -> None:
    """Not skipped where it is missing: the tests above have read all of the file."""
    try:
        installed = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        installed = False
    if installed:
        done = subprocess.run(
            ["docker", "compose", "-f", DEPLOY / "compose.yaml", "config", "--quiet"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_proxy_passes_events_on_as_they_come() -> None:
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    assert "proxy_buffering off;" in text
    ports = {f"access-{i}:{settings(f'access-{i}').port}" for i in (1, 2)} | {f"push:{settings('push').port}"}
    assert set(re.findall(r"server (\S+:\d+)", text)) == ports
