"""A log without writer and thread: everything happens when it is said, and a crash is a call.

For tests against a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from edgewake.edge.log.keeping.work import Done, FrameKey, Limits, OutFrame, Work
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME
from edgewake.protocol.clock import Clock, FakeClock
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.frame_bytes import read
from tests.edge.helpers import reading

FILES = (LOG_NAME, f"{LOG_NAME}-wal", SIDECAR_NAME)
LIMITS = Limits(
    quota_bytes=1 << 20, readings_max=10, bytes_max=10_000, window_frames=6, window_bytes=1 << 20
)


@contextmanager
def place() -> Iterator[Path]:
    """Where a log may lie, in memory where the machine has such a folder: what an fsync is for is
    tested elsewhere.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "log"


@dataclass
class BareLog:
    """One device's log, over its restarts.

    Numbers are given to readings in the order in which they come.
    """

    directory: Path
    limits: Limits = LIMITS
    clock: Clock = field(default_factory=FakeClock)
    boot: int = 1
    failpoint: Callable[[str], None] = lambda _place: None

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        self.store = self._open()

    def _open(self) -> LogStore:
        return LogStore(
            self.directory, self.limits, self.clock, boot=f"boot {self.boot}",
            new_epoch=lambda previous, _now: previous + 1,
            failpoint=lambda place: self.failpoint(place),
        )  # fmt: skip

    def restart(self, *, boots: bool = False) -> None:
        """An orderly end and a start."""
        self.store.close()
        self.boot += boots
        self.store = self._open()

    def crash(self, *, boots: bool = False) -> None:
        """What is in the files stays, nothing else; they are where they were."""
        files = {
            name: (self.directory / name).read_bytes()
            for name in FILES
            if (self.directory / name).exists()
        }
        self.store.close()
        for name, content in files.items():
            (self.directory / name).write_bytes(content)
        self.boot += boots
        self.store = self._open()

    def close(self) -> None:
        self.store.close()

    def put(self, readings: Mapping[str, Sequence[Reading]], **work: object) -> Done:
        """One commit."""
        return self.store.apply(Work(readings=readings, **work))  # type: ignore[arg-type]

    def send(
        self, freed: Sequence[tuple[FrameKey, RejectReason | None]] = (), **work: object
    ) -> Sequence[OutFrame]:
        """One commit that frees frames and forms what there is room for."""
        return self.store.apply(Work(freed=freed, sending=True, **work)).frames  # type: ignore[arg-type]

    def catch_up(self) -> None:
        """All that is left to be salvaged or repaired."""
        while self.store.has_to_catch_up:
            self.store.catch_up()

    def sums(self) -> tuple[int, int, int, int, int]:
        """Bytes as the log counts them: in all, in frames, kept for consumers, waiting; and
        readings that are not acknowledged.
        """
        state = self.store._state
        return (
            state.stored_bytes,
            state.framed_bytes,
            state.retained_bytes,
            state.waiting_bytes,
            self.store.backlog()[0],
        )


@dataclass
class Cloud:
    """What arrived: of each number the first, as the sequencer lets it pass."""

    frames: dict[FrameKey, Frame] = field(default_factory=dict)
    waiting: list[FrameKey] = field(default_factory=list)
    """Arrived and not acknowledged yet."""
    payloads: dict[FrameKey, bytes] = field(default_factory=dict)

    def take(self, frames: Sequence[OutFrame]) -> None:
        """Asserts that a frame has the same bytes at every attempt, as long as it holds its
        readings.
        """
        for out in frames:
            before = self.payloads.setdefault(out.key, out.payload)
            assert out.gap is not None or out.payload == before
            self.frames.setdefault(out.key, read(out.payload))
            self.waiting.append(out.key)

    def acknowledge(self, count: int | None = None) -> list[tuple[FrameKey, None]]:
        """For the log: the first so many, or all."""
        count = len(self.waiting) if count is None else count
        freed, self.waiting = self.waiting[:count], self.waiting[count:]
        return [(key, None) for key in freed]

    def heard(self, stream: str) -> list[object]:
        """Of each of a stream's positions, in order: the reading's `n`, or why it was lost.

        Asserts that numbers have no hole.
        """
        found: list[object] = []
        for epoch in sorted({key.epoch for key in self.frames if key.stream == stream}):
            numbers = sorted(
                key.frame for key in self.frames if (key.stream, key.epoch) == (stream, epoch)
            )
            assert numbers == list(range(1, len(numbers) + 1)), (
                f"a frame of epoch {epoch} never came: {numbers}"
            )
            seq = 1
            for frame in (self.frames[FrameKey(stream, epoch, number)] for number in numbers):
                assert frame.seq == seq, "readings between two frames never came"
                said = (
                    [frame.gap.reason] * frame.gap.count if frame.gap else list(frame.fields["n"])
                )
                found += said
                seq += len(said)
        return found


def with_two_streams(directory: Path) -> BareLog:
    """One stream has a frame, a gap and two batches that wait, the other one a batch."""
    found = BareLog(directory)
    found.put({"speed": [reading(n) for n in range(1, 6)], "street": [reading(1, name="B 3")]})
    found.store.apply(Work(sending=True, paused=frozenset({"street"})))
    found.store.apply(Work(lost={"speed": {"queue_full": 4}}))
    found.put({"speed": [reading(n) for n in range(10, 13)]})
    found.put({"speed": [reading(13)]})
    return found


def drained(log: BareLog, cloud: Cloud) -> None:
    """Everything is sent and acknowledged."""
    cloud.waiting = []
    log.restart()  # what was in flight is sent again
    log.catch_up()
    for _ in range(1_000):
        cloud.take(log.send(cloud.acknowledge()))
        if not cloud.waiting and not log.store.backlog()[0] and not log.store.has_unframed():
            return
    raise AssertionError("it has no end")


def readings_after(
    log: BareLog, stream: str, after: int, readings_max: int = 1_000
) -> tuple[list[object], int]:
    """What a consumer at a position reads: `n`, or why it is missing; and where it stands then."""
    found, at = log.store.read(stream, after, readings_max=readings_max, bytes_max=1 << 20)
    heard: list[object] = []
    for one in found:
        heard += (
            [one.reason] * one.count
            if isinstance(one, Missed)
            else [fields["n"] for _, fields in one.received().readings]
        )
    return heard, at
