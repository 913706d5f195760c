"""What the writer and the store hand each other: frames, bounds, and the work of one transaction.

Values, no behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.quota import AtQuota, LaneQuota
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import CORRUPT, ConsumerState, Passed
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame_bytes import content_type_of, read
from edgewake.protocol.topics import stream_and_thing

Failpoint = Callable[[str], None]
"""Called with the name of a place where a crash must be survivable; does nothing outside tests."""


def no_failpoint(_place: str) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class FrameKey:
    """The frame that an acknowledgement names."""

    stream: str
    epoch: int
    frame: int


@dataclass(frozen=True, slots=True)
class OutFrame:
    """A frame as it is sent, the same bytes at every attempt."""

    key: FrameKey
    payload: bytes
    content_type: str
    count: int
    """Readings in it, or lost."""
    gap: str | None
    """Why they were lost; None where it holds them."""
    is_backlog: bool = field(default=False, compare=False)
    """More of its stream waited behind it when it was formed."""


def frame_of(key: FrameKey, payload: bytes, count: int) -> OutFrame:
    """A frame as its bytes tell it, for these have a CRC and the rest of its row has none.

    `count` where they tell nothing.
    """
    content_type = content_type_of(payload)
    try:
        frame = read(payload)
    except Rejected:
        # Formed by an agent of another version, before an update or a rollback. The bytes go as
        # they are: the cloud keeps them as a dead letter and says why.
        return OutFrame(key, payload, content_type, count, None)
    if frame.gap is not None:
        return OutFrame(key, payload, content_type, frame.gap.count, frame.gap.reason)
    return OutFrame(key, payload, content_type, len(frame.t), None)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of rows and frames; units as in LogConfig and UplinkConfig."""

    quota_bytes: int
    readings_max: int
    bytes_max: int
    window_frames: int
    window_bytes: int
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    """The lanes of the streams that are not `normal`."""
    lane_quotas: Mapping[Lane, LaneQuota] = field(default_factory=dict)
    """The quotas of the lanes that have bounds of their own."""
    consumer_bytes: int = 1 << 62
    """The most bytes of batches that only consumers still need."""
    local: frozenset[str] = frozenset()
    """Streams that are not sent: only consumers read them."""
    clock_wait_s: float = 60.0
    """Seconds that frames wait for the machine's clock to be set."""
    missing: str = CORRUPT
    """Reason of readings that were accepted and are not here."""
    copies_sent: bool = False
    """Are a frame's bytes logged when it is formed, beside the readings?"""

    def lane(self, stream: str) -> Lane:
        """A stream's lane; of a thing's it is that of all things'."""
        return self.lanes.get(stream_and_thing(stream)[0], Lane.NORMAL)

    def quota(self, stream: str) -> AtQuota:
        """What happens when a stream's lane is full."""
        return self.lane_quotas.get(self.lane(stream), LaneQuota()).policy


@dataclass(frozen=True, slots=True)
class Work:
    """What a transaction has to do."""

    readings: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    freed: Sequence[tuple[FrameKey, RejectReason | None]] = ()
    sending: bool = False
    """May frames be formed? Only while somebody sends them: a backlog that waits makes fuller
    frames."""
    paused: frozenset[str] = frozenset()
    """Streams of which no more frames are formed; those that are out do not count for the window,
    so that the others have it whole."""
    filling: frozenset[str] = frozenset()
    """Streams whose next frame waits for company."""
    frame_bytes: int | None = None
    """Bytes of the frames formed now, where the link or the broker takes less than the
    configuration allows."""
    lost: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Readings that never came to the log, by stream and reason; their positions follow those of
    `readings`."""
    passed: Mapping[str, Passed] = field(default_factory=dict)
    """What consumers commit, by name."""
    promised: frozenset[str] = frozenset()
    """Streams of `readings` whose senders hear that these are kept: a lane that came to its quota
    meanwhile takes them still."""
    registered: Sequence[ConsumerState] = ()
    forgotten: Sequence[str] = ()
    """Consumers that come and go."""

    @property
    def empty(self) -> bool:
        """Is there nothing to write?"""
        return not (
            self.readings
            or self.positions
            or self.freed
            or self.lost
            or self.passed
            or self.registered
            or self.forgotten
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """What has to become durable together."""

    readings: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    """Checked, by stream."""
    positions: Mapping[str, str] = field(default_factory=dict)
    """The positions of sources, by name."""
    consumer: str | None = None
    passed: Passed | None = None
    """What a consumer commits."""
    is_awaited: bool = False
    """Does somebody wait for it? A cursor alone waits for company otherwise."""
    is_promised: bool = False
    """Will the sender of the readings hear that they are kept?"""
    lost: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What the sources lost up to these positions, by stream and reason."""


def settle(answers: Iterable[Future[Any]], error: Exception | None = None) -> None:
    """Tell those who still wait that it is done, or why it is not."""
    for answer in answers:
        if answer.set_running_or_notify_cancel():
            answer.set_result(None) if error is None else answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a transaction."""

    frames: Sequence[OutFrame]
    dropped: int
    """Readings that the quota cost."""
