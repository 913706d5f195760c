"""One Kafka process, broker and controller in one (KRaft): properties, format, command line.

Nothing is started here: `prepare` writes files and `command` gives the arguments; the supervisor
and the tests run it. The cluster id is made once and kept in the data folder, so that a next start
goes on from the same data.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import LocalError

VERSION: Final = "4.2.2"
"""The version of the jars, and of the image in compose.yaml."""
HEAP_MIB: Final = 320
"""Kafka's heap for a demo on one machine: the live set after 50 topics is about 120 MiB
(measured)."""
_FORMAT_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """Where one Kafka runs and keeps its data."""

    java: Path
    jars: Path
    """Folder of `jars.ensure("kafka")`."""
    directory: Path
    """Its data, properties and logs; made when it is not there."""
    port: int
    controller_port: int
    host: str = "127.0.0.1"
    heap_mib: int = HEAP_MIB

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"{self.host}:{self.port}"


def properties(node: KafkaNode) -> Mapping[str, str]:
    """server.properties.

    Topics are made by us alone, never by a typing error; a single node has one copy of everything.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{node.host}:{node.controller_port}",
        "listeners": f"PLAINTEXT://{node.host}:{node.port},CONTROLLER://"
        f"{node.host}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.host}:{node.port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(node.directory / "data"),
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        "num.partitions": "2",
        # Internal topics: Kafka's 50 partitions each would be 100 open logs that a demo never
        # fills.
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A part that starts should have its partitions at once, and one that died should lose them
        # soon.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "transaction.max.timeout.ms": "900000",
        "transactional.id.expiration.ms": str(7 * 24 * 3_600_000),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # A broker that died is let in again only when its old session has run out: 9 s by default,
        # for a single node lost time.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        # An idle controller writes a record twice a second by default, with an fsync, for nodes
        # that lag: there are none.
        "metadata.max.idle.interval.ms": "10000",
        # Index files are made at their full size: 10 MiB each by default, for every partition of
        # ew.up, and all are checked after a crash.
        "log.index.size.max.bytes": str(1 << 20),
        # A fetch that was answered stays listed at each partition it waited for until this many
        # are: 1000 by default, and each of the sequencer's names 64. They grew old meanwhile, half
        # a megabyte a second: some 84 s from one full collection to the next, now 260.
        "fetch.purgatory.purge.interval.requests": "100",
        "message.max.bytes": str(2 * 1024 * 1024),
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
        "log.message.timestamp.type": "CreateTime",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
    }


def prepare(node: KafkaNode) -> None:
    """Write the properties, and format the storage where it is new. Raises LocalError."""
    try:
        # Its compression libraries are unpacked there at each start, and never removed.
        shutil.rmtree(_temporary(node), ignore_errors=True)
        _temporary(node).mkdir(parents=True)
        _properties_file(node).write_text(
            "".join(f"{key}={value}\n" for key, value in properties(node).items()), "utf-8"
        )
        _logging_file(node).write_text(_LOGGING, "utf-8")
    except OSError as error:
        raise LocalError(f"{node.directory}: {error.strerror}") from error
    if not (node.directory / "data" / "meta.properties").exists():
        _format(node)


def command(node: KafkaNode) -> list[str]:
    """The arguments that run it in the foreground; it ends cleanly on SIGTERM."""
    return [*_java(node, node.heap_mib), "kafka.Kafka", str(_properties_file(node))]


def new_cluster_id() -> str:
    """A cluster id for Kafka: 22 characters of base64url.

    None begins with `-`, which Kafka's command line would take for an option.
    """
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith(
        "-"
    ):
        pass
    return text


def _format(node: KafkaNode) -> None:
    arguments = [
        *_java(node, 128),
        "kafka.tools.StorageTool",
        "format",
        "-t",
        new_cluster_id(),
        "-c",
        str(_properties_file(node)),
    ]
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=_FORMAT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(
            f"Kafka's storage in {node.directory} could not be formatted: {error}"
        ) from error
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no reason given"]
        raise LocalError(f"Kafka's storage in {node.directory} could not be formatted: {last[0]}")


def _java(node: KafkaNode, heap_mib: int) -> list[str]:
    return [
        str(node.java),
        f"-Xmx{heap_mib}m",
        "-Xms64m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:MaxMetaspaceSize=128m",
        "-XX:ReservedCodeCacheSize=64m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={_temporary(node)}",
        f"-Dlog4j2.configurationFile={_logging_file(node)}",
        "-cp",
        f"{node.jars}/*",
    ]


def _temporary(node: KafkaNode) -> Path:
    return node.directory / "tmp"


def _properties_file(node: KafkaNode) -> Path:
    return node.directory / "server.properties"


def _logging_file(node: KafkaNode) -> Path:
    return node.directory / "log4j2.properties"


_LOGGING: Final = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.target=SYSTEM_ERR
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=info
"""
