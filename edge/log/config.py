"""The tables `[log]` and `[log.LANE]` of an agent's configuration."""

from __future__ import annotations

from typing import Protocol

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import AtQuota, LaneQuota
from edgewake.edge.log.mode import LogMode
from edgewake.protocol.plain import ConfigTable, key


class FrameBounds(Protocol):
    """Bounds of frames and of what is in flight; `[uplink]` has them."""

    @property
    def inflight_frames_max(self) -> int:
        """Frames sent and not yet acknowledged."""

    @property
    def inflight_bytes_max(self) -> int:
        """Bytes of them."""

    @property
    def frame_readings_max(self) -> int:
        """Readings in one frame."""

    @property
    def frame_bytes_max(self) -> int:
        """Bytes of a frame before compression."""


class LaneConfig(ConfigTable):
    """What may wait in one lane for its frame."""

    quota_bytes: int | None = key(default=None, ge=1 << 16)
    """Bytes of rows that wait, at most; none: only the quota of the whole log."""
    age_s: float | None = key(default=None, gt=0)
    """Seconds after which a reading that still waits is of no use: it goes, and a gap with the
    reason `age` says so. None: never."""
    at_quota: AtQuota = AtQuota.DROP_OLDEST
    """What happens when the lane is full. drop_oldest: the oldest readings make room; drop_newest:
    what comes is lost until there is room; thin_out: every second commit's readings go, from the
    oldest on, so that the whole outage stays covered, the older the thinner; stop_source: nothing
    is taken until there is room, and the source's own policy holds. The first three tell the cloud
    by gaps."""


class LogConfig(ConfigTable):
    """The event log: what is accepted is here until the cloud has it."""

    mode: LogMode = LogMode.HML
    """When a reading is logged. hml: soon after it came, many in one write, while processing goes
    on; rbml: before its source goes on; sbml: when it is sent; rbml+sbml: both; none: never."""
    linger_ms: float = key(default=200.0, ge=0, le=1000)
    """Milliseconds that a commit waits for more readings while they come quickly, in the lane
    `normal`. Each commit costs an fsync, 20 KB of flash and a frame, however many readings are in
    it. A reading that is alone does not wait."""
    linger_urgent_ms: float = key(default=2.0, ge=0, le=1000)
    """How long a reading of the lane `urgent` waits for others of its stream, ms."""
    linger_bulk_ms: float = key(default=1000.0, ge=0, le=10_000)
    """How long a reading of the lane `bulk` waits for others of its stream, ms."""
    commit_readings_max: int = key(default=5_000, ge=1, le=100_000)
    """Readings of one stream that end the waiting at once."""
    queue_readings_max: int = key(default=10_000, ge=1, le=1_000_000)
    """Readings of one stream that wait for their commit, in memory. At the bound the source's
    policy holds: block or drop and count."""
    queue_bytes_max: int = key(default=16 << 20, ge=1 << 20)
    """Bytes of memory of all readings that wait for their commit, about. A stream may have as much
    as is still free for the others, so one alone has half. At the bound the source's policy
    holds."""
    quota_bytes: int = key(default=256 << 20, ge=1 << 20)
    """Bytes of rows that are kept. 256 MiB hold about five million readings: a day offline at 60 a
    second. At the bound the lowest lane that gives up what it has (`at_quota`) goes first."""
    consumer_bytes: int = key(default=32 << 20, ge=0)
    """Bytes of rows that the cloud has and a local consumer (a processor) has not read yet, beside
    the quota. At the bound the oldest go, and the consumer is told how many it missed."""
    wal_bytes_max: int = key(default=64 << 20, ge=4 << 20)
    """Bytes of the write-ahead log. A reader that holds a snapshot keeps it from shrinking; at the
    bound intake waits for that reader."""
    reserve_bytes: int = key(default=20 << 20, ge=0)
    """Disk space kept aside, so that sending and deleting go on when the disk is full: what the
    write-ahead log has then must fit into it, 4 MiB and what one commit may bring,
    `queue_bytes_max`. With less, a disk that stays full may stop the device until space is
    freed."""
    clock_wait_s: float = key(default=60.0, ge=0)
    """Seconds that readings wait while connected, where they were taken before the machine's clock
    was set: then their times are repaired before they are sent. If it is not set by then they are
    sent as they are, counted and said."""
    urgent: LaneConfig = LaneConfig()
    normal: LaneConfig = LaneConfig()
    bulk: LaneConfig = LaneConfig()

    def linger_s(self) -> dict[Lane, float]:
        """Seconds that each lane waits for company."""
        return {
            Lane.URGENT: self.linger_urgent_ms / 1000,
            Lane.NORMAL: self.linger_ms / 1000,
            Lane.BULK: self.linger_bulk_ms / 1000,
        }

    def lane_quotas(self) -> dict[Lane, LaneQuota]:
        """The lanes' bounds."""
        by_lane = {Lane.URGENT: self.urgent, Lane.NORMAL: self.normal, Lane.BULK: self.bulk}
        return {
            lane: LaneQuota(of.quota_bytes, of.age_s, of.at_quota) for lane, of in by_lane.items()
        }
