"""A real Kafka that speaks TLS only: one listener wants a user and a password, the other a
certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import SaslMechanism, SecurityConfig, SecurityProtocol
from edgewake.deploy.programs import jars, java, kafka_node
from tests.services import Process, free_ports, port_is_open, wait_until

USER, PASSWORD = "edgewake", "secret-of-the-test"
LIFE = datetime.timedelta(days=1)


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca_file = folder / f"{name}.ca.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(constraints, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """(certificate, key) files."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(subject, key)
            .add_extension(address, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        cert_file, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cert_file, key_file

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFE)
            .not_valid_after(now + LIFE)
        )


@dataclass(frozen=True)
class SecureKafka:
    """Where it is, and how to reach it in each way."""

    folder: Path
    users_port: int
    certificates_port: int
    authority: Authority

    def with_password(
        self, mechanism: SaslMechanism, password: str = PASSWORD, *, ca_file: Path | None = None
    ) -> KafkaConfig:
        """As a user."""
        file = self.folder / f"password-{abs(hash(password))}"
        file.write_text(password + "\n")
        security = SecurityConfig(
            protocol=SecurityProtocol.SASL_SSL,
            ca_file=ca_file or self.authority.ca_file,
            mechanism=mechanism,
            username=USER,
            password_file=file,
        )
        return KafkaConfig(bootstrap=f"127.0.0.1:{self.users_port}", security=security)

    def with_certificate(self, pair: tuple[Path, Path] | None = None) -> KafkaConfig:
        """By a certificate, of the trusted authority unless given."""
        cert_file, key_file = pair or self.authority.issue("client")
        security = SecurityConfig(
            protocol=SecurityProtocol.SSL,
            ca_file=self.authority.ca_file,
            cert_file=cert_file,
            key_file=key_file,
        )
        return KafkaConfig(bootstrap=f"127.0.0.1:{self.certificates_port}", security=security)


def toml(config: KafkaConfig) -> str:
    """The tables `kafka` and `kafka.security` of a configuration."""
    keys = config.security.model_dump(mode="json", exclude_none=True)
    return f'[kafka]\nbootstrap = "{config.bootstrap}"\n[kafka.security]\n' + "".join(
        f'{name} = "{value}"\n' for name, value in keys.items()
    )


@contextmanager
def run_secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Start it with certificates and a user of its own."""
    users, certificates, controller = free_ports(3)
    authority = Authority(folder, "test-authority")
    node = kafka_node.KafkaNode(
        java=java.ensure(),
        jars=jars.ensure("kafka"),
        directory=folder / "kafka",
        port=users,
        controller_port=controller,
    )
    properties = folder / "kafka" / "server.properties"
    (folder / "kafka" / "data").mkdir(parents=True)
    marker = folder / "kafka" / "data" / "meta.properties"
    # So that `prepare` writes its files and leaves the formatting to us: with the user in it.
    marker.write_text("")
    kafka_node.prepare(node)
    marker.unlink()
    settings = dict(kafka_node.properties(node)) | _secured(
        folder, authority, users, certificates, controller
    )
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = kafka_node.command(node)
    scram = ["--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"]
    storage = [
        "kafka.tools.StorageTool",
        "format",
        "-t",
        kafka_node.new_cluster_id(),
        "-c",
        str(properties),
        *scram,
    ]
    subprocess.run([*command[:-2], *storage], check=True, capture_output=True)
    process = Process(command, folder / "kafka.log")
    try:
        process.start()
        wait_until(lambda: port_is_open(users) or not process.is_running(), "Kafka serves")
        assert process.is_running(), process.output()[-3000:]
        yield SecureKafka(folder, users, certificates, authority)
    finally:
        process.stop()


def _secured(
    folder: Path, authority: Authority, users: int, certificates: int, controller: int
) -> dict[str, str]:
    cert_file, key_file = authority.issue("broker")
    keystore = folder / "broker.pem"
    keystore.write_bytes(key_file.read_bytes() + cert_file.read_bytes())
    module = "org.apache.kafka.common.security"
    return {
        "listeners": f"SASL_SSL://127.0.0.1:{users},SSL://127.0.0.1:{certificates},CONTROLLER://"
        f"127.0.0.1:{controller}",
        "advertised.listeners": f"SASL_SSL://127.0.0.1:{users},SSL://127.0.0.1:{certificates}",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{module}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            f"{module}.scram.ScramLoginModule required;"
        ),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca_file),
    }
