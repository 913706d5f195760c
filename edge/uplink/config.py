"""The table `[uplink]` of an agent's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Protocol

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.uplink.schedule import Hours
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.frames.frame import FRAME_BYTES_MAX, FRAME_READINGS_MAX
from edgewake.protocol.plain import Check, ConfigTable, key


def _hours(hours: dict[Lane, tuple[str, ...]]) -> dict[Lane, tuple[str, ...]]:
    for of in hours.values():
        for text in of:
            Hours.parse(text)
    return hours


class UplinkConfig(ConfigTable):
    """The way of readings to the broker."""

    inflight_frames_max: int = key(default=64, ge=1, le=10_000)
    """Frames sent and not yet acknowledged by the cloud. 64 frames and a way of 50 ms are 1280
    frames a second."""
    inflight_bytes_max: int = key(default=1 << 20, ge=1 << 10)
    """Bytes of them, in memory too."""
    frame_readings_max: int = key(default=1_000, ge=1, le=FRAME_READINGS_MAX)
    """Readings in one frame. Beyond a thousand nothing is saved and more is sent twice after a
    loss."""
    frame_bytes_max: int = key(default=256 << 10, ge=1 << 10, le=FRAME_BYTES_MAX - (64 << 10))
    """Bytes of a frame before compression; a single larger reading still goes alone."""
    qos: Literal[0, 1] = 1
    """MQTT's quality of service for logged frames. 0: the broker confirms nothing and has a third
    of the work; the acknowledgements of the cloud, several in one message, are all that counts. 1:
    the broker confirms each frame and queues it while no bridge lives."""
    ack_timeout_s: float = key(default=10.0, gt=0)
    """A frame that the cloud did not acknowledge for so long is sent again; doubled at each
    attempt. One that three later frames have overtaken is sent again sooner."""
    ack_timeout_max_s: float = key(default=120.0, gt=0)
    """Bound of that doubling: the longest time until an old frame is sent again after an outage."""
    backoff_min_s: float = key(default=0.2, gt=0)
    """First wait before connecting again; doubled and jittered."""
    backoff_max_s: float = key(default=30.0, gt=0)
    """Bound of it: the longest time until this device connects again after an outage."""
    keepalive_s: int = key(default=10, ge=1, le=3600)
    """Silence after which the broker is asked for a sign of life; a dead line is noticed within
    twice that."""
    status_interval_s: float = key(default=10.0, gt=0)
    """Seconds between two statuses of the device."""
    drain_s: float = key(default=2.0, ge=0, le=60)
    """Seconds that a stopping agent waits for acknowledgements. What is not acknowledged then is
    sent after the next start."""
    bytes_per_s_max: int | None = key(default=None, ge=128)
    """Bytes a second that the readings of all lanes take of the link on average, MQTT included;
    beyond, they wait. None: all there is."""
    hours: Annotated[dict[Lane, tuple[str, ...]], Check(_hours)] = key(default_factory=dict)
    """Hours of the day, UTC, in which a lane sends, e.g. `bulk = ["22:00-06:00"]`; it waits in the
    log meanwhile. None: always."""
    home_after_s: float = key(default=300.0, gt=0)
    """Connected to a broker of `[[fallback]]`: how often is looked whether `[mqtt]` answers again,
    to go back to it."""
    one_way_queue_max: int = key(default=1_000, ge=1)
    """Readings of one_way streams that wait for the connection; the oldest go first, counted."""
    one_way_queue_bytes_max: int = key(default=1 << 20, ge=1)
    """Bytes of them, as JSON; one that is larger waits alone."""

    def __post_init__(self) -> None:
        if self.backoff_min_s > self.backoff_max_s or self.ack_timeout_s > self.ack_timeout_max_s:
            raise ValueError("a first wait is longer than its bound")


class Sending(Protocol):
    """What the uplink needs of an agent's configuration."""

    @property
    def device(self) -> str:
        """The identity of the device."""

    @property
    def data_dir(self) -> Path:
        """The directory of its log."""

    @property
    def mqtt(self) -> BrokerConfig:
        """The home broker."""

    @property
    def fallback(self) -> tuple[BrokerConfig, ...]:
        """Brokers that stand in for it."""

    @property
    def uplink(self) -> UplinkConfig:
        """The way of readings to the broker."""
