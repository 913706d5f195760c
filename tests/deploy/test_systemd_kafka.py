"""The unit of Kafka, with what deploy/kafka/install.sh writes: its own lines are run, on other
ports, and a part talks to it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import SaslMechanism, SecurityConfig, SecurityProtocol
from edgewake.deploy import cli
from edgewake.deploy.programs import jars, java
from edgewake.protocol.errors import Unavailable
from tests.deploy.production import certificates
from tests.deploy.test_compose import SERVICES
from tests.services import Process, free_ports, port_is_open, wait_until

DEPLOY = Path(cli.__file__).parent
UNIT = DEPLOY / "systemd" / "edgewake-kafka.service"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
OF_A_MACHINE = {
    "node.id", "advertised.listeners", "controller.quorum.voters", "log.dirs",
    "ssl.keystore.location", "ssl.truststore.location",
}  # fmt: skip


def install(root: Path, name: str, *, brokers: str) -> subprocess.CompletedProcess[str]:
    """The script, below `root`."""
    made = certificates(root / "certs", KAFKA_BROKERS=brokers)
    assert made.returncode == 0, made.stderr
    environment = os.environ | {
        "ROOT": str(root),
        "KAFKA_BROKERS": brokers,
        "KAFKA_USER": "root",
        "CLUSTER_ID": CLUSTER_ID,
    }
    command = ["sh", str(DEPLOY / "kafka" / "install.sh"), name, str(root / "certs")]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def properties(root: Path) -> dict[str, str]:
    """What the script wrote."""
    lines = (root / "etc/edgewake-kafka/server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_a_broker_is_set_up_as_in_the_compose_file(tmp_path: Path) -> None:
    done = install(tmp_path, "kafka-2", brokers="kafka-1 kafka-2 kafka-3")
    assert done.returncode == 0, done.stderr
    found = properties(tmp_path)
    shipped = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in SERVICES["kafka-2"]["environment"].items()
        if name not in ("CLUSTER_ID", "KAFKA_OPTS", "KAFKA_HEAP_OPTS")
    }
    assert set(found) == set(shipped)
    assert {name: value for name, value in found.items() if name not in OF_A_MACHINE} == {
        name: value for name, value in shipped.items() if name not in OF_A_MACHINE
    }
    assert (found["node.id"], found["advertised.listeners"]) == ("2", "PARTS://kafka-2:9092")
    assert found["controller.quorum.voters"] == shipped["controller.quorum.voters"]
    assert (tmp_path / "etc/edgewake-kafka/users.jaas").stat().st_mode & 0o007 == 0


def test_a_name_that_is_no_broker_and_a_missing_certificate_are_said(tmp_path: Path) -> None:
    done = install(tmp_path, "kafka-9", brokers="kafka-1")
    assert (done.returncode, done.stderr) == (
        2,
        "kafka-9: expected one of KAFKA_BROKERS, which are: kafka-1\n",
    )
    (tmp_path / "certs" / "kafka" / "kafka-1.pem").unlink()
    command = ["sh", str(DEPLOY / "kafka" / "install.sh"), "kafka-1", str(tmp_path / "certs")]
    environment = os.environ | {"ROOT": str(tmp_path), "KAFKA_BROKERS": "kafka-1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "kafka-1.pem is missing: run certificates.sh" in done.stderr


@dataclass(frozen=True)
class Installed:
    """A broker of the unit, on a port of its own."""

    root: Path
    port: int

    def line(self, key: str) -> list[list[str]]:
        """The unit's commands of a key, as words."""
        text = UNIT.read_text()
        return [
            shlex.split(line.partition("=")[2])
            for line in text.splitlines()
            if line.startswith(f"{key}=")
        ]

    def environment(self) -> dict[str, str]:
        """The unit's, with this test's places."""
        etc = self.root / "etc/edgewake-kafka"
        return {
            "JAVA": str(java.ensure()),
            "HEAP": "-Xmx320m",
            "ETC": str(etc),
            "JARS": str(jars.ensure("kafka")),
            "TMPDIR": str(self.root / "var/lib/edgewake-kafka/tmp"),
        }

    def prepare(self) -> None:
        """What runs before the broker."""
        for words in self.line("ExecStartPre"):
            subprocess.run(
                words, check=True, capture_output=True, env=os.environ | self.environment()
            )

    def config(self, user: str, of: str) -> KafkaConfig:
        """How a part reaches it, with the password of another one."""
        folder = self.root / "certs" / "kafka"
        security = SecurityConfig(
            protocol=SecurityProtocol.SASL_SSL,
            ca_file=folder / "kafka-ca.crt",
            mechanism=SaslMechanism.PLAIN,
            username=user,
            password_file=folder / f"{of}.password",
        )
        return KafkaConfig(bootstrap=f"localhost:{self.port}", security=security)


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    done = install(tmp_path, "localhost", brokers="localhost")
    assert done.returncode == 0, done.stderr
    port, controller = free_ports(2)
    file = tmp_path / "etc/edgewake-kafka/server.properties"
    text = file.read_text().replace(":9092", f":{port}").replace(":9093", f":{controller}")
    file.write_text(text)
    yield Installed(tmp_path, port)
    shutil.rmtree(tmp_path / "var", ignore_errors=True)


@pytest.mark.long
def test_the_unit_s_own_lines_run_a_broker_that_knows_the_parts(installed: Installed) -> None:
    (start,) = installed.line("ExecStart")
    for turn in range(2):  # the second start finds a storage that is there already
        installed.prepare()
        with Process(
            start, installed.root / f"kafka-{turn}.log", env=installed.environment()
        ) as process:
            wait_until(
                lambda: port_is_open(installed.port) or not process.is_running(), "Kafka serves"
            )
            assert process.is_running(), process.output()[-3000:]
            topic_admin.ensure_topics(
                installed.config("sequencer", of="sequencer"), [f"ew.s.turn_{turn}"]
            )
            with pytest.raises(Unavailable, match=r"kafka\.security\.username"):
                topic_admin.ensure_topics(
                    installed.config("sequencer", of="ops"), ["ew.s.stranger"]
                )
            process.signal(signal.SIGTERM)
            wait_until(lambda: not process.is_running(), "it ended")
