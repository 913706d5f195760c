"""The configuration of an access server."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from edgewake.cloud.access.slow.policy import Policy
from edgewake.cloud.client_share import SHARE_DEFAULT, NetworkText
from edgewake.cloud.held_bytes import HELD_BYTES_OF_ALL
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.hub_bounds import MIB, HubBounds, least_bytes
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.traces.config import TracesConfig
from edgewake.protocol.config import Config

ANSWER_BYTES_MAX: Final = 256 * MIB
"""Bytes of answers that are being sent: four of the largest there are."""
LATEST_MIB: Final = 384
"""MiB of rows of the latest: four streams of 125,000 rows of 200 bytes."""
LATEST_RECORDS: Final = 70_000
"""Records of a partition that are read back for them: some seconds of reading."""
CLIENT_BYTES: Final = 144 * 1024
"""What waits for a client that does not read: less than WRITE_HIGH_BYTES and one piece of 64 KB;
and its connection, 16 KB."""


class AccessConfig(Config):
    """The configuration of one access server."""

    name: str = "access-1"
    """In logs and metrics, and in the client id that Kafka sees."""
    host: str = "127.0.0.1"
    """Listens on this machine only by default. Where others can reach it, `rights` must say who may
    read."""
    also_hosts: tuple[str, ...] = Field(default=(), max_length=8)
    """More addresses to listen on, e.g. of the local network: ["192.168.1.5"]."""
    also_cert_file: Path | None = None
    """PEM of the certificate that is shown at `also_hosts`, which are encrypted then."""
    also_key_file: Path | None = None
    """PEM of its key."""
    port: int = Field(default=8700, ge=0, le=65535)
    """TCP port; 0 takes any that is free."""
    public_names: tuple[str, ...] = ()
    """Host names under which others reach this part, e.g. "readings.example.org"; addresses and
    localhost are always right."""
    trusted_proxies: tuple[NetworkText, ...] = ()
    """Proxies in front of this server, e.g. ["10.0.0.0/8"]: only they may name the client that they
    ask for, in X-Forwarded-For."""
    address_share: float = Field(default=SHARE_DEFAULT, gt=0, le=1)
    """The part of each bound that one may hold: of streams and connections an address (an IPv6
    network of 64 bits is one), of subscriptions, readers of the past and copies that wait who
    proves who it is, and else its address. 1 where all clients come from one address."""
    cursor_key_file: Path | None = None
    """Lines `kid hexkey [sign | verify]`, the same for all access servers and push proxies, read
    again when it changes. Without it one is made and kept in the user's state folder
    (cloud/log/cursor_keys.py)."""
    kafka: KafkaConfig = KafkaConfig()
    traces: TracesConfig = TracesConfig()
    """[traces]"""
    rights: RightsConfig | None = None
    """Who may read what; without it anybody on this machine may read everything."""
    login: LoginConfig | None = None
    """Where people log in; their groups have roles of `rights`. Without it they have keys alone."""
    ops_url: str | None = None
    """Where the operations API is, for the page's links."""
    allow_origins: tuple[str, ...] = ()
    """Other sites whose pages may read here, e.g. "https://dash.example.org"; none by default. "*"
    allows all."""
    memory_mib: int = Field(default=288, ge=1)
    """Memory in MiB for the streams and what is made of them, beside the process itself
    and its clients (144 KB for each that does not read). It bounds the different subscriptions at
    the same time (`views_max`) and the records that are kept for the next reader."""
    views_max: int | None = Field(default=None, ge=20)
    """Different subscriptions at the same time, 24 KB of memory_mib each: one for each filter, and
    for each reader with a right of its own (docs/rights.md). A fifth is kept for whole streams,
    which everybody shares; one more is refused with 503. By default as many as fit into a fourth of
    memory_mib, some 2,500."""
    clients_max: int = Field(default=5000, ge=1)
    """Streams open at the same time. One more is refused with 503 (a browser: 200, `retry`,
    end)."""
    replays_max: int = Field(default=500, ge=1)
    """Clients that read older records at the same time. One more is refused with 503 (a browser:
    200, `retry`, end)."""
    followed_max: int = Field(default=200, ge=1)
    """Streams followed at the same time. One more is refused with 503."""
    latest_mib: int = Field(default=LATEST_MIB, ge=16)
    """Memory in MiB for the rows of `/v1/latest` and `/v1/sync`, used as they are asked for: of
    one stream or query a fourth at most, 600 bytes a row and its JSON (125,000 rows of 200 bytes;
    a million: 3200, with as many records and `answer_bytes_max`). What is too much is left out, and
    said."""
    latest_records: int = Field(default=LATEST_RECORDS, ge=1000)
    """Records of each partition that are read back for these rows, the last 20,000 of them before
    the first answer. Who was silent for longer is left out, and that is said."""
    answer_bytes_max: int = Field(default=ANSWER_BYTES_MAX, ge=1 << 20)
    """Bytes of answers (the latest, data sync, pages) that are made or sent at the same time. One
    more, or of one client more than its `address_share`, is refused with 503."""
    heartbeat_s: float = Field(default=15, gt=0)
    """Seconds of silence after which a comment is sent: less than the idle time-outs of proxies and
    mobile networks."""
    stall_s: float = Field(default=30, gt=0)
    """A client that takes not one byte for so long while bytes wait is cut off."""
    slow_policies: tuple[Policy, ...] = Field(default=tuple(Policy), min_length=1)
    """What may be done about a client that takes less than there is, as it asks with `slow=`; the
    first is done where it does not ask: "wait", "conflate", "skip", "end" (docs/access.md)."""
    slow_after_s: float = Field(default=30, ge=5)
    """Seconds that such a client is behind, and comes no nearer, before that is done; it may ask
    for other ones, and for longer ones only where "wait" is allowed."""
    retry_ms: int = Field(default=1500, ge=100)
    """`retry` that clients get, with a jitter of half of it up and down."""

    @model_validator(mode="after")
    def _has_memory(self) -> Self:
        least = -(-least_bytes(self.replays_max, self.views_max) // MIB)
        if self.memory_mib < least:
            views = "" if self.views_max is None else f" and views_max = {self.views_max}"
            lower = "replays_max" if self.views_max is None else "one of them"
            raise ValueError(
                f"memory_mib = {self.memory_mib}: expected at least {least} with replays_max = "
                f"{self.replays_max}{views}; give it more, or lower {lower}"
            )
        return self

    @property
    def hub(self) -> HubBounds:
        """The bounds that follow from `memory_mib`."""
        return HubBounds.within(
            self.memory_mib * MIB,
            places=self.replays_max,
            followed_max=self.followed_max,
            views_max=self.views_max,
        )

    def memory_bytes_max(self, *, clients: int | None = None, views: int | None = None) -> int:
        """Largest memory beside the process itself.

        It is the hub's, `clients` × CLIENT_BYTES, and what waits by their pace, all together.

        `clients` None: as many as are allowed. A client that reads as fast as is written to it
        takes a tenth of that: its share is the buffer of one that does not read.
        """
        open_clients = self.clients_max if clients is None else clients
        held = HELD_BYTES_OF_ALL if open_clients else 0
        return (
            self.hub.memory_bytes_max(views=views, places=self.replays_max)
            + open_clients * CLIENT_BYTES
            + held
        )
