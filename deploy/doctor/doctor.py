"""The checks of `edgewake doctor`: does this machine have what Edgewake needs?

It also asks the parts that run.

Each check is a function without arguments that returns a sentence, or raises an EdgewakeError with
what to do.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from edgewake.deploy import data_folder
from edgewake.deploy.doctor import checks, open_transactions
from edgewake.deploy.programs import jars, java, mosquitto
from edgewake.protocol.errors import ConfigError, EdgewakeError, LocalError, Unavailable
from edgewake.protocol.installation import Installation, key_of

ANSWER_S: Final = 5.0
"""Seconds that a service may take to answer."""
_CLOCK_UNSYNCHRONIZED: Final = 5
"""TIME_ERROR of adjtimex(2)."""


class Verdict(StrEnum):
    """The outcome of a check."""

    GOOD = "good"
    WARNING = "warning"
    """It will start, and something is missing that may matter or is fetched first."""
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and what it found."""

    check: str
    verdict: Verdict
    detail: str


class Advice(LocalError):
    """Not wrong, but worth a warning."""


Check = Callable[[], str]


def examine(checks_: Mapping[str, Check]) -> list[Finding]:
    """Make the checks, one after another."""
    return [_examined(name, check) for name, check in checks_.items()]


def _examined(name: str, check: Check) -> Finding:
    try:
        return Finding(name, Verdict.GOOD, check())
    except Advice as advice:
        return Finding(name, Verdict.WARNING, str(advice))
    except EdgewakeError as error:
        return Finding(name, Verdict.BAD, str(error))


def of_machine(data: Path, ports: Mapping[int, str], *, is_running: bool) -> dict[str, Check]:
    """Check what `edgewake up` needs of this machine.

    The ports of a running system are its own, so they are not asked for.
    """
    found: dict[str, Check] = {
        "libraries": _libraries,
        "Java": _java,
        "Mosquitto": _mosquitto,
        "jars": _jars,
        "disk": lambda: _disk(data),
        "clock": _clock,
    }
    if not is_running:
        found["ports"] = lambda: _ports(ports)
    return found


def of_services(running: Installation) -> dict[str, Check]:
    """What runs, as far as its addresses are known."""
    found: dict[str, Check] = {}
    if running.mqtt:
        found["MQTT broker"] = lambda: broker_answers(running.mqtt)
    if running.kafka:
        found["Kafka"] = lambda: kafka_answers(running.kafka)
    for address in running.access:
        found[f"access server {address}"] = partial(http_answers, address)
    if running.ops:
        found["operations API"] = lambda: ops_answers(running.ops, running.ops_key_file)
    return found


def _libraries() -> str:
    checks.libraries()
    return "all are installed"


def _java() -> str:
    found = java.find()
    if found is None:
        raise Advice(
            f"Java {java.VERSION_MIN} to {java.VERSION_MAX} is not found; `edgewake up` installs "
            "it where it may, else set JAVA_HOME"
        )
    return f"{found}, version {java.version(found)}"


def _mosquitto() -> str:
    found = mosquitto.find()
    if found is None:
        raise Advice(
            "Mosquitto 2 or newer is not found; `edgewake up` installs it where it may, else: apt "
            "install mosquitto"
        )
    return f"{found}, version {'.'.join(map(str, mosquitto.version(found)))}"


def _jars() -> str:
    missing = [name for name in jars.read_lock() if not jars.is_there(name)]
    if missing:
        raise Advice(
            f"the jars of {', '.join(missing)} are not in {jars.cache_root()}; `edgewake up` or "
            "`edgewake jars fetch` fetches them"
        )
    return f"in {jars.cache_root()}"


def _disk(data: Path) -> str:
    existing = next(folder for folder in (data, *data.parents) if folder.exists())
    free = data_folder.free_bytes(existing)
    if free < data_folder.DISK_BYTES_MIN:
        raise LocalError(
            f"{existing}: {free >> 20} MiB free, {data_folder.DISK_BYTES_MIN >> 20} MiB are "
            "needed; make room or use --data"
        )
    return f"{free >> 30} GiB free for {data}"


def _ports(ports: Mapping[int, str]) -> str:
    checks.ports(ports)
    return f"{min(ports)} to {max(ports)}: free as far as they are needed"


def _clock() -> str:
    """The kernel's word on whether somebody keeps its clock right."""
    # Struct timex is 208 bytes; with modes 0 it is only read.
    structure = ctypes.create_string_buffer(512)
    state = ctypes.CDLL(None, use_errno=True).adjtimex(structure)
    if state == _CLOCK_UNSYNCHRONIZED:
        raise Advice(
            "nothing keeps this machine's clock right; event times may be wrong. Install chrony or "
            "systemd-timesyncd"
        )
    if state < 0:
        raise Advice(
            f"the kernel does not tell whether the clock is kept right (error {ctypes.get_errno()})"
        )
    return "is kept right"


def broker_answers(address: str) -> str:
    """Does an MQTT 5 broker answer? One that wants a name and a password has answered, too."""
    import mqtt5

    from edgewake.protocol.mqtt import PacketReader

    reader = PacketReader()
    try:
        with socket.create_connection(_host_and_port(address), ANSWER_S) as connection:
            connection.sendall(
                mqtt5.ConnectPacket(f"doctor-{os.getpid()}", clean_start=True).write()
            )
            while data := connection.recv(4096):
                for packet in reader.feed(data):
                    if isinstance(packet, mqtt5.ConnAckPacket):
                        return f"{address} answers: {packet.reason_code.name.lower()}"
    except OSError as error:
        raise Unavailable(f"{address} does not answer: {error}") from error
    raise Unavailable(f"{address} hung up: expected an MQTT 5 broker")


def kafka_answers(address: str, *, patience_s: float = open_transactions.PATIENCE_S) -> str:
    """Does Kafka name its brokers, and end its transactions?"""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address, "log_level": 0, "error_cb": lambda _: None})
    try:
        found = client.list_topics(timeout=ANSWER_S)
        counts = {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if name.startswith("ew.")
        }
        hanging = open_transactions.hanging(
            client, counts, answer_s=ANSWER_S, patience_s=patience_s
        )
    except KafkaException as error:
        raise Unavailable(f"{address} does not answer: {error.args[0].str()}") from error
    if hanging:
        raise Advice(open_transactions.describe(hanging))
    return (
        f"{address}, {len(found.brokers)} broker{'s' if len(found.brokers) != 1 else ''}, "
        f"{len(found.topics)} topics"
    )


def http_answers(address: str) -> str:
    """Does a part say that it is ready?"""
    import httpx

    try:
        response = httpx.get(f"{address}/readyz", timeout=ANSWER_S)
    except httpx.HTTPError as error:
        raise Unavailable(f"{address} does not answer: {error}") from error
    if response.status_code != 200:
        raise Unavailable(f"{address} is not ready: it answers {response.status_code} to /readyz")
    return f"{address} is ready"


def ops_answers(address: str, key_file: str) -> str:
    """Is the operations API ready, and does it accept our key?"""
    import httpx

    ready = http_answers(address)
    key = key_of(Path(key_file))
    try:
        response = httpx.get(
            f"{address}/v1/parts", headers={"X-API-Key": key}, params={"limit": 1}, timeout=ANSWER_S
        )
    except httpx.HTTPError as error:
        raise Unavailable(f"{address} does not answer: {error}") from error
    if response.status_code != 200:
        raise ConfigError(
            f"{address} does not accept the key in {key_file}: it answers {response.status_code}"
        )
    return f"{ready} and accepts the key in {key_file}"


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"{address[:100]!r}: expected host:port")
    return host, int(port)
