"""All parts on a Kafka that speaks TLS only, with a password or a certificate; and what they say
when something is wrong.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import SaslMechanism
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.protocol.errors import Unavailable
from tests.bridge.running import Device, World
from tests.secure_kafka import PASSWORD, Authority, SecureKafka, run_secure_kafka, toml
from tests.services import Mosquitto, Process, free_ports, part, wait_until

Way = Callable[[SecureKafka], KafkaConfig]
WAYS: dict[str, Way] = {
    "scram": lambda kafka: kafka.with_password(SaslMechanism.SCRAM_SHA_512),
    "plain": lambda kafka: kafka.with_password(SaslMechanism.PLAIN),
    "certificate": lambda kafka: kafka.with_certificate(),
}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with run_secure_kafka(tmp_path_factory.mktemp("secure-kafka")) as service:
        yield service


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_producers_transactions_consumers_and_admin_work(secure: SecureKafka, way: str) -> None:
    config = WAYS[way](secure)
    topic = f"ew.s.secure_{uuid.uuid4().hex}"
    topic_admin.ensure_topics(config.model_copy(update={"partitions": 1}), [topic])
    rows: dict[str, bytes | None] = {}
    writer = clients.transactional_producer(config, f"tx-{topic}")
    clients.fence(writer, 20)
    writer.begin_transaction()
    writer.produce(topic, b"1", "key")
    writer.commit_transaction(20)
    reader = TableReader(config, "test", {topic: rows.__setitem__})
    reader.read_all()
    reader.close()
    assert rows == {"key": b"1"}


def wrong(secure: SecureKafka, what: str, folder: Path) -> KafkaConfig:
    stranger = Authority(folder, "stranger")
    match what:
        case "password":
            return secure.with_password(SaslMechanism.SCRAM_SHA_512, "not it")
        case "ca":
            return secure.with_password(SaslMechanism.PLAIN, ca_file=stranger.ca_file)
        case "certificate":
            return secure.with_certificate(stranger.issue("intruder"))
    raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("password", "kafka.security.username, .password_file"),
        pytest.param("ca", "kafka.security.ca_file", marks=pytest.mark.long),
        pytest.param("certificate", "kafka.security.cert_file", marks=pytest.mark.long),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_that_names_the_key_and_no_secret(
    secure: SecureKafka, what: str, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = wrong(secure, what, tmp_path)
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable) as refused:
        topic_admin.ensure_topics(config, ["ew.streams"])
    assert named in str(refused.value)
    for secret in ("not it", PASSWORD):
        assert secret not in caplog.text + str(refused.value) + repr(config)


async def test_a_reading_passes_from_a_device_through_every_part_to_a_client(
    secure: SecureKafka, own_broker: Mosquitto, tmp_path: Path
) -> None:
    """Bridge and push come in as a user, the others by their certificate."""
    as_user, by_certificate = toml(WAYS["scram"](secure)), toml(WAYS["certificate"](secure))
    access, ops, push = free_ports(3)
    (tmp_path / "cursor.key").write_text("1 " + "0f" * 32 + "\n")
    (tmp_path / "ops.key").write_text("k" * 32 + "\n")
    (tmp_path / "lease.key").write_text("cd" * 32 + "\n")
    for key in ("cursor", "ops", "lease"):
        (tmp_path / f"{key}.key").chmod(0o600)
    files = {
        "bridge": f'name = "b-secure"\n[mqtt]\nport = {own_broker.port}\n{as_user}',
        "sequencer": by_certificate,
        "access": (
            f'port = {access}\ncursor_key_file = "{tmp_path / "cursor.key"}"\n{by_certificate}'
        ),
        "ops": f'port = {ops}\ndata_dir = "{tmp_path / "ops"}"\nkey_file = '
        f'"{tmp_path / "ops.key"}"\n{by_certificate}',
        "push": f'port = {push}\ncursor_key_file = "{tmp_path / "cursor.key"}"\nlease_key_file = '
        f'"{tmp_path / "lease.key"}"\n{as_user}',
    }
    parts: list[Process] = []
    device = Device(World(own_broker, None, tmp_path), "secure-1", "secured")  # type: ignore[arg-type]
    try:
        for name, text in files.items():
            (tmp_path / f"{name}.toml").write_text(text)
            parts.append(part(name, tmp_path / f"{name}.toml", tmp_path / f"{name}.log"))
            parts[-1].start()
        for one in parts:
            one.wait_for('"event":"part.ready"')
        await device.send(3)
        events = f"http://127.0.0.1:{access}/v1/streams/secured/events?from=earliest"
        wait_until(lambda: has_event(events, b'"device":"secure-1"'), "a client gets the reading")
        fields = httpx.get(
            f"http://127.0.0.1:{ops}/v1/streams/secured", headers={"X-API-Key": "k" * 32}
        ).json()["fields"]
        assert fields["speed"]["type"] == "number"
        wait_until(
            lambda: httpx.get(f"http://127.0.0.1:{push}/readyz").status_code == 200,
            "push has its shards and its leases",
        )
    finally:
        await device.close()
        for one in parts:
            one.stop()
    assert PASSWORD not in "".join(one.output() for one in parts)


def has_event(url: str, wanted: bytes) -> bool:
    """Does the stream bring this? False where it is not there yet."""
    text = b""
    with contextlib.suppress(httpx.ReadTimeout), httpx.stream("GET", url, timeout=10) as answer:
        if answer.status_code == 200:
            for chunk in answer.iter_bytes():
                text += chunk
                if wanted in text:
                    return True
    return False
