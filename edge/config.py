"""The agent's configuration: one TOML file, every key with its unit, its default and why.

device = "car-07"
data_dir = "/var/lib/edgewake"

[mqtt]
host = "broker.example"

[[source]]
type = "host_metrics"
stream = "host_metrics"
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from edgewake.edge.actions.config import AnyAction
from edgewake.edge.downlink.config import DownlinkConfig
from edgewake.edge.log.mode import LogMode
from edgewake.edge.log.quota import AtQuota, LaneQuota
from edgewake.edge.processors.config import AbsenceConfig, ChainConfig
from edgewake.edge.sketches.config import SketchConfig
from edgewake.edge.sources.config import AnySource
from edgewake.edge.uplink.lanes import Lane
from edgewake.edge.uplink.schedule import Hours
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.downlink import ANSWERS, REPLIES, REQUESTS
from edgewake.protocol.frame import FRAME_BYTES_MAX, FRAME_READINGS_MAX
from edgewake.protocol.names import is_device, is_reserved
from edgewake.protocol.plain import Check, ConfigTable, Length, key
from edgewake.protocol.record import Mode
from edgewake.protocol.sketch import STREAM as SKETCHES

READING_BYTES_MAX: Final = 64 * 1024
"""Bytes of one reading as JSON. A sensible one has some hundred; larger ones are refused, counted and said."""
SKETCHES_MAX: Final = 4
"""Streams that are sketched: each has a process of some 17 MB. More are refused."""
ACTIONS_MAX: Final = 100
"""Actions of an agent, and as many absence rules: each is a task and a cursor. More are refused."""
CHAINS_MAX: Final = 100
"""Chains of an agent: each is a task, a cursor and a state that are written often. More are refused."""
FALLBACKS_MAX: Final = 8
"""Brokers that stand in for the first one. Each is tried for up to ten seconds before the next has its turn."""
QUOTA_WINDOWS_MIN: Final = 2
"""The quota holds at least so many in-flight windows: what is being sent is never what has to go."""


def _device(name: str) -> str:
    if not is_device(name):
        raise ValueError("expected 1-64 of A-Z a-z 0-9 . _ -, a letter or digit first")
    return name


def _hours(hours: dict[Lane, tuple[str, ...]]) -> dict[Lane, tuple[str, ...]]:
    for of in hours.values():
        for text in of:
            Hours.parse(text)
    return hours


class LaneConfig(ConfigTable):
    """What may wait in one lane for its frame."""

    quota_bytes: int | None = key(default=None, ge=1 << 16)
    """Bytes of rows that wait, at most; none: only the quota of the whole log."""
    age_s: float | None = key(default=None, gt=0)
    """Seconds after which a reading that still waits is of no use: it goes, and a gap with the reason `age` says so. None: never."""
    at_quota: AtQuota = AtQuota.DROP_OLDEST
    """What happens when the lane is full. drop_oldest: the oldest readings make room; drop_newest: what comes is lost until there is room;
    thin_out: every second commit's readings go, from the oldest on, so that the whole outage stays covered, the older the thinner;
    stop_source: nothing is taken until there is room, and the source's own policy holds. The first three tell the cloud by gaps."""


class LogConfig(ConfigTable):
    """The event log: what is accepted is here until the cloud has it."""

    mode: LogMode = LogMode.HML
    """When a reading is logged. hml: soon after it came, many in one write, while processing goes on; rbml: before its source goes on;
    sbml: when it is sent; rbml+sbml: both; none: never."""
    linger_ms: float = key(default=200.0, ge=0, le=1000)
    """How long a commit waits for more readings while they come quickly, in the lane `normal`. Each commit costs an fsync, 20 KB of flash
    and a frame, however many readings are in it. A reading that is alone does not wait."""
    linger_urgent_ms: float = key(default=2.0, ge=0, le=1000)
    """The same in the lane `urgent`."""
    linger_bulk_ms: float = key(default=1000.0, ge=0, le=10_000)
    """The same in the lane `bulk`."""
    commit_readings_max: int = key(default=5_000, ge=1, le=100_000)
    """Readings of one stream that end the waiting at once."""
    queue_readings_max: int = key(default=10_000, ge=1, le=1_000_000)
    """Readings of one stream that wait for their commit, in memory. At the bound the source's policy holds: block or drop and count."""
    queue_bytes_max: int = key(default=16 << 20, ge=1 << 20)
    """Bytes of memory of all readings that wait for their commit, about. A stream may have as much as is still free for the others, so
    one alone has half. At the bound the source's policy holds."""
    quota_bytes: int = key(default=256 << 20, ge=1 << 20)
    """Bytes of rows that are kept. 256 MiB hold about five million readings: a day offline at 60 a second. At the bound the lowest
    lane that gives up what it has (`at_quota`) goes first."""
    consumer_bytes: int = key(default=32 << 20, ge=0)
    """Bytes of rows that the cloud has and a local consumer (a processor) has not read yet, beside the quota. At the bound the oldest go,
    and the consumer is told how many it missed."""
    wal_bytes_max: int = key(default=64 << 20, ge=4 << 20)
    """Bytes of the write-ahead log. A reader that holds a snapshot keeps it from shrinking; at the bound intake waits for that reader."""
    reserve_bytes: int = key(default=20 << 20, ge=0)
    """Disk space kept aside, so that sending and deleting go on when the disk is full: what the write-ahead log has then must fit into it,
    4 MiB and what one commit may bring, `queue_bytes_max`. With less, a disk that stays full may stop the device until space is freed."""
    clock_wait_s: float = key(default=60.0, ge=0)
    """Seconds that readings wait while connected, where they were taken before the machine's clock was set: then their times are repaired
    before they are sent. If it is not set by then they are sent as they are, counted and said."""
    urgent: LaneConfig = LaneConfig()
    normal: LaneConfig = LaneConfig()
    bulk: LaneConfig = LaneConfig()

    def linger_s(self) -> dict[Lane, float]:
        """Seconds that each lane waits for company."""
        return {Lane.URGENT: self.linger_urgent_ms / 1000, Lane.NORMAL: self.linger_ms / 1000, Lane.BULK: self.linger_bulk_ms / 1000}

    def lane_quotas(self) -> dict[Lane, LaneQuota]:
        """The lanes' bounds."""
        by_lane = {Lane.URGENT: self.urgent, Lane.NORMAL: self.normal, Lane.BULK: self.bulk}
        return {lane: LaneQuota(of.quota_bytes, of.age_s, of.at_quota) for lane, of in by_lane.items()}


class UplinkConfig(ConfigTable):
    """How readings travel."""

    inflight_frames_max: int = key(default=64, ge=1, le=10_000)
    """Frames sent and not yet acknowledged by the cloud. 64 frames and a way of 50 ms are 1280 frames a second."""
    inflight_bytes_max: int = key(default=1 << 20, ge=1 << 10)
    """Bytes of them, in memory too."""
    frame_readings_max: int = key(default=1_000, ge=1, le=FRAME_READINGS_MAX)
    """Readings in one frame. Beyond a thousand nothing is saved and more is sent twice after a loss."""
    frame_bytes_max: int = key(default=256 << 10, ge=1 << 10, le=FRAME_BYTES_MAX - (64 << 10))
    """Bytes of a frame before compression; a single larger reading still goes alone."""
    qos: Literal[0, 1] = 1
    """MQTT's quality of service for logged frames. 0: the broker confirms nothing and has a third of the work; the acknowledgements of the
    cloud, several in one message, are all that counts. 1: the broker confirms each frame and queues it while no bridge lives."""
    ack_timeout_s: float = key(default=10.0, gt=0)
    """A frame that the cloud did not acknowledge for so long is sent again; doubled at each attempt. One that three later frames have
    overtaken is sent again sooner."""
    ack_timeout_max_s: float = key(default=120.0, gt=0)
    """Bound of that doubling: the longest time until an old frame is sent again after an outage."""
    backoff_min_s: float = key(default=0.2, gt=0)
    """First wait before connecting again; doubled and jittered."""
    backoff_max_s: float = key(default=30.0, gt=0)
    """Bound of it: the longest time until this device connects again after an outage."""
    keepalive_s: int = key(default=10, ge=1, le=3600)
    """Silence after which the broker is asked for a sign of life; a dead line is noticed within twice that."""
    status_interval_s: float = key(default=10.0, gt=0)
    """How often the device says how it is."""
    drain_s: float = key(default=2.0, ge=0, le=60)
    """How long a stopping agent waits for acknowledgements. What is not acknowledged then is sent after the next start."""
    bytes_per_s_max: int | None = key(default=None, ge=128)
    """Bytes a second that the readings of all lanes take of the link on average, MQTT included; beyond, they wait. None: all there is."""
    hours: Annotated[dict[Lane, tuple[str, ...]], Check(_hours)] = key(default_factory=dict)
    """Hours of the day, UTC, in which a lane sends, e.g. `bulk = ["22:00-06:00"]`; it waits in the log meanwhile. None: always."""
    home_after_s: float = key(default=300.0, gt=0)
    """Connected to a broker of `[[fallback]]`: how often is looked whether `[mqtt]` answers again, to go back to it."""
    one_way_queue_max: int = key(default=1_000, ge=1)
    """Readings of one_way streams that wait for the connection; the oldest go first, counted."""
    one_way_queue_bytes_max: int = key(default=1 << 20, ge=1)
    """Bytes of them, as JSON; one that is larger waits alone."""

    def __post_init__(self) -> None:
        if self.backoff_min_s > self.backoff_max_s or self.ack_timeout_s > self.ack_timeout_max_s:
            raise ValueError("a first wait is longer than its bound")


class AgentConfig(ConfigTable):
    """One agent."""

    device: Annotated[str, Check(_device)]
    """Its identity: MQTT client id, first level of its topics, key in Kafka."""
    data_dir: Path
    """Directory of the event log, mode 0700; one agent at a time."""
    mqtt: BrokerConfig = BrokerConfig()
    fallback: Annotated[tuple[BrokerConfig, ...], Length(0, FALLBACKS_MAX)] = ()
    log: LogConfig = LogConfig()
    uplink: UplinkConfig = UplinkConfig()
    downlink: DownlinkConfig = DownlinkConfig()
    source: tuple[AnySource, ...] = ()
    chain: Annotated[tuple[ChainConfig, ...], Length(0, CHAINS_MAX)] = ()
    absence: Annotated[tuple[AbsenceConfig, ...], Length(0, ACTIONS_MAX)] = ()
    sketch: Annotated[tuple[SketchConfig, ...], Length(0, SKETCHES_MAX)] = ()
    action: Annotated[tuple[AnyAction, ...], Length(0, ACTIONS_MAX)] = ()

    def __post_init__(self) -> None:
        self._check_streams()
        self._check_owned()
        self._check_sent()
        self._check_chains()

    def _check_streams(self) -> None:
        if self.log.quota_bytes < QUOTA_WINDOWS_MIN * self.uplink.inflight_bytes_max:
            raise ValueError(f"log.quota_bytes: expected at least {QUOTA_WINDOWS_MIN} times uplink.inflight_bytes_max")
        for stream in self.lanes:
            if is_reserved(stream) or stream == ANSWERS:
                raise ValueError(f"source or chain: the stream {stream!r} is written by the system: expected another name")
            if stream == REQUESTS and not (self.downlink.requests and REQUESTS not in self.local_streams):
                raise ValueError(f"source or chain: {stream!r} asks the cloud: expected `downlink.requests = true`, and that it is sent")
        lanes = {(source.stream, source.lane) for source in self.source}
        if len(lanes) > len({stream for stream, _ in lanes}):
            raise ValueError("source: one stream has two lanes")
        sent = {(source.stream, source.send) for source in self.source}
        if len(sent) > len({stream for stream, _ in sent}):
            raise ValueError("source: one stream is both sent and not sent")
        if len({(source.stream, source.queue_bytes_max) for source in self.source}) > len({stream for stream, _ in lanes}):
            raise ValueError("source: one stream has two values of queue_bytes_max")

    def _check_owned(self) -> None:
        owned = [what for source in self.source if (what := source.owns()) is not None]
        for what in owned:
            if owned.count(what) > 1:
                raise ValueError(f"source: two of them read {what}")

    def _check_sent(self) -> None:
        if any(source.mode is Mode.ONE_WAY and not source.send for source in self.source):
            raise ValueError("source: a stream that is one_way and not sent goes nowhere")
        if self.local_streams and not self.log.mode.flags.on_receipt:
            raise ValueError(f"send: log.mode {self.log.mode} logs what is sent when it is sent, and nothing else")

    @property
    def local_streams(self) -> frozenset[str]:
        """Streams that are not sent."""
        made = {chain.into for chain in self.chain if not chain.send} | {rule.into for rule in self.absence if not rule.send}
        return frozenset(made | {source.stream for source in self.source if not source.send})

    def _check_chains(self) -> None:
        """A chain's input is there before it, so chains go round in no circle."""
        sources = {source.stream for source in self.source}
        logged = {source.stream for source in self.source if source.mode is Mode.ACK} | ({REPLIES} if self.downlink.requests else set())
        for chain in self.chain:
            if chain.into in sources | logged:
                raise ValueError(f"chain: the stream {chain.into!r} that it makes is made by somebody else too")
            if chain.stream not in logged:
                hint = "its source is one_way, which logs nothing" if chain.stream in sources else "no source or earlier chain makes it"
                raise ValueError(f"chain: it cannot read {chain.stream!r}: {hint}")
            logged.add(chain.into)
        self._check_watched(sources, logged)

    def _check_watched(self, sources: set[str], logged: set[str]) -> None:
        alerts: dict[str, tuple[Lane, bool]] = {}
        for rule in self.absence:
            if rule.stream not in logged:
                raise ValueError(f"absence {rule.name!r}: {rule.stream!r} is no stream of a logged source or a chain")
            if rule.into in sources | logged or alerts.setdefault(rule.into, (rule.lane, rule.send)) != (rule.lane, rule.send):
                raise ValueError(f"absence {rule.name!r}: the stream {rule.into!r} is made by somebody else too, or in another way")
        for action in self.action:
            if action.stream not in logged | alerts.keys():
                raise ValueError(f"action {action.name!r}: {action.stream!r} is no stream of a logged source, a chain or an absence rule")
        for sketch in self.sketch:
            if sketch.stream not in logged or (sketch.stream in self.local_streams) == sketch.beside:
                wanted = "is sent, as `beside` says" if sketch.beside else "has `send = false`: what is sent too would count twice"
                raise ValueError(f"sketch: {sketch.stream!r} is no stream of a logged source or a chain that {wanted}")
        if SKETCHES in sources | logged | alerts.keys():
            raise ValueError(f"source, chain or absence: {SKETCHES!r} is the stream of sketches")
        if len({sketch.lane for sketch in self.sketch}) > 1 or len({sketch.stream for sketch in self.sketch}) < len(self.sketch):
            raise ValueError("sketch: two have one stream, or not the same lane")
        for table, names in (("absence", [rule.name for rule in self.absence]), ("action", [action.name for action in self.action])):
            if len(set(names)) < len(names):
                raise ValueError(f"{table}: two have one name")

    @property
    def behind_s(self) -> dict[str, float]:
        """By stream that a chain makes: seconds by which its readings' time may lie before the reading that completed them."""
        found: dict[str, float] = {}
        for chain in self.chain:  # none reads what a later one makes
            found[chain.into] = found.get(chain.stream, 0.0) + sum(one.behind_s for one in chain.processor)
        return found

    @property
    def lanes(self) -> dict[str, Lane]:
        """By stream."""
        made = {chain.into: chain.lane for chain in self.chain} | {rule.into: rule.lane for rule in self.absence}
        if self.sketch:
            made[SKETCHES] = self.sketch[0].lane
        return {source.stream: source.lane for source in self.source} | made
