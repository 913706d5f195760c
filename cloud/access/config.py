"""The configuration of an access server."""

from __future__ import annotations

import secrets
from pathlib import Path

from pydantic import Field

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.config import Config
from edgewake.protocol.cursor import CursorCodec
from edgewake.protocol.errors import ConfigError

MIB = 1024 * 1024


class HubConfig(Config):
    """How much of the streams is kept in memory and how fast it is passed on."""

    tick_ms: float = Field(default=20, ge=1, le=1000)
    """What arrives within so many ms is written to the clients at once: the price is half of it in latency, the gain is 1000 clients."""
    tail_bytes: int = Field(default=4 * MIB, ge=MIB)
    """Bytes of the latest records kept per stream; readers that are further back read from Kafka."""
    tails_bytes: int = Field(default=32 * MIB, ge=4 * MIB)
    """Bytes of all tails together; the largest gives way."""
    tail_back_records: int = Field(default=1000, ge=0)
    """Records per partition read back when a stream is first followed, so that clients that come back after a restart find them."""
    decoded_bytes: int = Field(default=8 * MIB, ge=MIB)
    """Bytes of events kept decoded for the next reader; the oldest go first."""
    replay_bytes: int = Field(default=8 * MIB, ge=MIB)
    """Bytes of older blocks kept for the next reader; the least used go first."""
    replay_readers: int = Field(default=2, ge=1, le=32)
    """Kafka readers for older records, for all clients together; each takes some 3 MB."""
    followed_max: int = Field(default=200, ge=1)
    """Streams followed at the same time. One more is refused with 503."""
    idle_s: float = Field(default=30, ge=0)
    """Seconds after which a stream that nobody reads is followed no longer."""
    views_max: int = Field(default=500, ge=1)
    """Different subscriptions at the same time. One more is refused with 503."""
    view_bytes: int = Field(default=512 * 1024, ge=64 * 1024)
    """Bytes of the latest chunks kept per subscription; a client that is further back goes on from the tail."""


class AccessConfig(Config):
    """One access server."""

    name: str = "access-1"
    """In logs and metrics, and in the client id that Kafka sees."""
    host: str = "127.0.0.1"
    """Reading needs no key yet, so by default only this machine may read."""
    port: int = Field(default=8700, ge=0, le=65535)
    """TCP port; 0 takes any that is free."""
    cursor_key_file: Path | None = None
    """Lines `kid hexkey`, the same for all access servers. Without it a key is made up and cursors end with the process."""
    kafka: KafkaConfig = KafkaConfig()
    hub: HubConfig = HubConfig()
    ops_url: str | None = None
    """Where the operations API is, for the page's links."""
    allow_origins: tuple[str, ...] = ()
    """Other sites whose pages may read here, e.g. "https://dash.example.org"; none by default. "*" allows all."""
    clients_max: int = Field(default=5000, ge=1)
    """Streams open at the same time. One more is refused with 503 (a browser: 200, `retry`, end)."""
    replays_max: int = Field(default=500, ge=1)
    """Clients that read older records at the same time. One more is refused with 503 (a browser: 200, `retry`, end)."""
    heartbeat_s: float = Field(default=15, gt=0)
    """A comment is sent after so many silent seconds: less than the idle time-outs of proxies and mobile networks."""
    stall_s: float = Field(default=30, gt=0)
    """A client that takes not one byte for so long while bytes wait is cut off."""
    send_buffer_bytes: int = Field(default=128 * 1024, ge=4096)
    """SO_SNDBUF of each connection (the kernel doubles it): what a reader that never reads may hold in the kernel."""
    retry_ms: int = Field(default=1500, ge=100)
    """`retry` told to clients, with a jitter of half of it up and down."""


def load_keys(path: Path) -> dict[int, bytes]:
    """Signing keys from lines `kid hexkey`; empty lines and `#` comments are passed over. Raises ConfigError."""
    keys: dict[int, bytes] = {}
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        kid, _, key = line.partition("#")[0].strip().partition(" ")
        if not kid:
            continue
        try:
            keys[int(kid)] = bytes.fromhex(key)
        except ValueError:
            raise ConfigError(f"{path}, line {number}: expected `kid hexkey`, e.g. `1 00ff…`") from None
    return keys


def cursor_codec(path: Path | None) -> CursorCodec:
    """The codec for a key file, or one with a key made up for this process. Raises ConfigError."""
    keys = {0: secrets.token_bytes(32)} if path is None else load_keys(path)
    try:
        return CursorCodec(keys)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
