"""Kafka as the compose file has it: TLS, and a password for each part. A real broker with its
settings, at other addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import SecurityConfig, SecurityProtocol
from edgewake.deploy.programs import jars, java, kafka_node
from edgewake.protocol.errors import Unavailable
from tests.deploy.production import certificates
from tests.deploy.test_compose import PARTS, SERVICES, settings
from tests.services import Process, free_ports, port_is_open, wait_until

OF_THE_IMAGE = {"CLUSTER_ID", "KAFKA_OPTS", "KAFKA_HEAP_OPTS"}
"""Read by the image's scripts; every other variable is a property: without KAFKA_, in small
letters, `_` for `.`."""


@dataclass(frozen=True)
class Broker:
    """The first of the three, alone."""

    certificates: Path
    port: int

    def config(self, part: str) -> KafkaConfig:
        """A part's own configuration, with the files where certificates.sh made them."""
        kafka: KafkaConfig = settings(part).kafka
        folder = self.certificates / "kafka"
        given = kafka.security
        assert given.ca_file is not None
        assert given.password_file is not None
        files = {
            "ca_file": folder / given.ca_file.name,
            "password_file": folder / given.password_file.name,
        }
        return self.here(given.model_copy(update=files))

    def here(self, security: SecurityConfig) -> KafkaConfig:
        """With this security."""
        return KafkaConfig(bootstrap=f"localhost:{self.port}", security=security)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("compose-kafka")
    done = certificates(folder / "certs", "--bridge", "bridge-1", "--bridge", "bridge-2")
    assert done.returncode == 0, done.stderr
    port, controller = free_ports(2)
    node = kafka_node.KafkaNode(
        java=java.ensure(),
        jars=jars.ensure("kafka"),
        directory=folder / "kafka",
        port=port,
        controller_port=controller,
        host="localhost",
    )
    secrets = {
        "/run/secrets/kafka.pem": "kafka-1.pem",
        "/run/secrets/kafka-ca.crt": "kafka-ca.crt",
        "/run/secrets/users.jaas": "users.jaas",
    }
    environment = {name: str(value) for name, value in SERVICES["kafka-1"]["environment"].items()}
    for name in environment:
        for inside, file in secrets.items():
            environment[name] = environment[name].replace(
                inside, str(folder / "certs" / "kafka" / file)
            )
    shipped = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): environment[name]
        for name in environment.keys() - OF_THE_IMAGE
    }
    alone = {
        "controller.quorum.voters": f"1@localhost:{controller}",
        "listeners": shipped["listeners"]
        .replace(":9092", f"localhost:{port}")
        .replace(":9093", f"localhost:{controller}"),
        "advertised.listeners": f"PARTS://localhost:{port}",
        "log.dirs": str(node.directory / "data"),
    }
    single = {
        name: value
        for name, value in kafka_node.properties(node).items()
        if name.endswith(("factor", "isr", "num.partitions"))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_node, "properties", lambda _: shipped | alone | single)
        kafka_node.prepare(node)
    words = kafka_node.command(node)
    process = Process([words[0], environment["KAFKA_OPTS"], *words[1:]], folder / "kafka.log")
    try:
        process.start()
        wait_until(lambda: port_is_open(port) or not process.is_running(), "Kafka serves")
        assert process.is_running(), process.output()[-3000:]
        yield Broker(folder / "certs", port)
    finally:
        process.stop()


def reach(config: KafkaConfig) -> None:
    """Make a topic, which needs broker and controller. Raises Unavailable."""
    topic_admin.ensure_topics(
        config, [f"ew.s.{(config.security.username or 'nobody').replace('-', '_')}"]
    )


def test_every_part_is_known_by_its_own_name_and_password(broker: Broker) -> None:
    users = {part: broker.config(part).security.username for part in PARTS}
    assert users == {part: part for part in PARTS}
    passwords = {part: broker.config(part).security.password_file.read_text() for part in PARTS}  # type: ignore[union-attr]
    assert len(set(passwords.values())) == len(PARTS)
    for part in PARTS:
        reach(broker.config(part))


@pytest.mark.long
def test_another_part_s_password_no_password_and_no_tls_are_refused(broker: Broker) -> None:
    access, ops = broker.config("access-1").security, broker.config("ops").security
    for security, named in (
        (access.model_copy(update={"password_file": ops.password_file}), "kafka.security.username"),
        (SecurityConfig(protocol=SecurityProtocol.SSL, ca_file=access.ca_file), "Kafka"),
        (SecurityConfig(), "Kafka"),
        (
            access.model_copy(
                update={"ca_file": broker.certificates / "broker" / "devices-ca.crt"}
            ),
            "kafka.security.ca_file",
        ),
    ):
        with pytest.raises(Unavailable, match=named):
            reach(broker.here(security))
