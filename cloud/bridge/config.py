"""The bridge's configuration: bridge.toml."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.config import Config
from edgewake.protocol.frame import FRAME_BYTES_MAX


class MqttConfig(Config):
    """Where the MQTT broker is."""

    host: str = "127.0.0.1"
    """Name or address."""
    port: int = Field(default=1883, ge=1, le=65_535)
    """TCP port."""
    username: str | None = None
    """User name; none: anonymous, or known by its certificate."""
    password_file: Path | None = None
    """File with the password, one line, mode 0600."""
    ca_file: Path | None = None
    """PEM of the authority that signed the broker's certificate; with it the connection is TLS."""
    cert_file: Path | None = None
    """PEM of our own certificate, for mutual TLS."""
    key_file: Path | None = None
    """PEM of its key."""
    keepalive_s: int = Field(default=20, ge=5, le=3600)
    """Seconds between pings; a connection that is silent for one and a half of them is given up (MQTT 5, section 3.1.2.10)."""
    session_expiry_s: int = Field(default=300, ge=1)
    """Seconds that the broker keeps this bridge's share of the messages while it is away. Longer than a restart; but Mosquitto goes on
    dealing to a bridge that is away, and until this has passed its share reaches the others only when the devices send it again."""


class BridgeConfig(Config):
    """One bridge; any number run side by side under different names."""

    name: str = Field(default="bridge-1", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """MQTT client id and Kafka client id; stable, so that a restart gets back what was not acknowledged."""
    mqtt: MqttConfig = MqttConfig()
    """[mqtt]"""
    kafka: KafkaConfig = KafkaConfig()
    """[kafka]"""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of Prometheus metrics and of /healthz; none: neither."""
    metrics_host: str = "127.0.0.1"
    """Address of /metrics and /healthz; 0.0.0.0 where Prometheus asks from another container or machine. Nothing there is secret."""
    inflight_messages_max: int = Field(default=4000, ge=1, le=65_535)
    """Messages taken from the broker and not yet in Kafka (MQTT's Receive Maximum); at the bound the broker waits."""
    inflight_bytes_max: int = Field(default=64 << 20, ge=2 * FRAME_BYTES_MAX)
    """Bytes taken and not yet in Kafka; at the bound the bridge stops reading its connection."""
