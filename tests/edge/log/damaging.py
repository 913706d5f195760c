"""Damage to a closed log's file, and the judgement of what arrives after it.

Every damage is a plain function of bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog, OutFrame
from edgewake.edge.log.keeping.work import no_failpoint
from edgewake.edge.log.tables.schema import LOG_NAME, PAGE_BYTES
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.frames.frame import Frame
from tests.edge.helpers import Sent, frame_of, opened, reading
from tests.services import PATIENCE_S, wait_until

READINGS = 2000
LATER = range(READINGS, READINGS + 100)
"""Readings of the life after the damage: they must be accepted whatever there is."""
GIVEN_UP = 7
"""Readings of each stream that never came, in the middle of it: the log holds a gap in their
place."""
REASON = "queue_full"
GAP_BYTES_BEFORE = 10
"""Bytes of a gap's record before its reason: sizes and types of its columns, stream, first,
count."""
GAP_BITS = 8 * (GAP_BYTES_BEFORE + len(REASON) + 4)
CONFIG = LogConfig(linger_ms=0, reserve_bytes=0)
UPLINK = UplinkConfig(frame_readings_max=50, inflight_frames_max=8)
PAGE = PAGE_BYTES
STREAMS = ("speed", "street")


@dataclass
class FirstLife:
    """A log with batches and frames that wait, some acknowledged out of order, and what the cloud
    has of it.
    """

    files: dict[str, bytes]
    cloud: Cloud

    @property
    def log(self) -> bytes:
        """The file that is damaged."""
        return self.files[LOG_NAME]


@dataclass
class Cloud:
    """What arrived, each frame once, as the sequencer lets it pass: the first of each number."""

    frames: dict[tuple[str, int, int], Frame] = field(default_factory=dict)

    def take(self, out: OutFrame) -> None:
        """One frame."""
        self.frames.setdefault((out.key.stream, out.key.epoch, out.key.frame), frame_of(out))

    def copy(self) -> Cloud:
        """For another life."""
        return Cloud(dict(self.frames))

    def verdict(self, expected: set[int]) -> dict[str, int]:
        """Violations by kind, over all streams. All must be 0."""
        found = Counter(wrong=0, twice=0, unsaid=0, said_of_what_came=0, holes=0)
        for stream in STREAMS:
            arrived: Counter[int] = Counter()
            said = 0
            epochs = sorted({epoch for name, epoch, _ in self.frames if name == stream})
            for epoch in epochs:
                numbers = sorted(
                    number for name, of, number in self.frames if (name, of) == (stream, epoch)
                )
                found["holes"] += numbers != list(range(1, len(numbers) + 1))
                seq = 1
                for frame in (self.frames[stream, epoch, number] for number in numbers):
                    found["holes"] += frame.seq != seq
                    seq += frame.gap.count if frame.gap else len(frame.t)
                    said += frame.gap.count if frame.gap else 0
                    for i, n in enumerate(frame.fields.get("n", ())):
                        arrived[n] += 1  # type: ignore[index]
                        found["wrong"] += (frame.t[i], frame.fields["text"][i]) != (
                            reading(n)[0],
                            text_of(n),
                        )  # type: ignore[arg-type]
            found["wrong"] += len(set(arrived) - expected)
            found["twice"] += sum(count - 1 for count in arrived.values())
            lost = len(expected) - len(arrived) + GIVEN_UP
            found["unsaid"] += max(0, lost - said)
            found["said_of_what_came"] += max(0, said - lost)
        return dict(found)

    def lost(self, expected: set[int]) -> int:
        """Readings that did not arrive."""
        arrived = {
            (stream, n)
            for (stream, _, _), frame in self.frames.items()
            for n in frame.fields.get("n", ())
        }
        return len(STREAMS) * len(expected) - len(arrived)


def text_of(n: int) -> str:
    """Some are long enough to go on in an overflow page."""
    return f"{n} " * (300 if n % 97 == 0 else 3)


def first_life(directory: Path) -> FirstLife:
    """Two streams, each with a gap; eight frames of each at most were sent, three acknowledged, the
    others and 1500 readings wait.
    """
    sent, cloud = Sent(), Cloud()
    with opened(directory, sent=sent, config=CONFIG, uplink=UPLINK) as events:
        for at in range(0, READINGS, 10):
            for stream in STREAMS:
                log = events.stream(stream)
                ticket = log.append_all([reading(n, text=text_of(n)) for n in range(at, at + 10)])
            assert log.wait_accepted(ticket, timeout_s=PATIENCE_S)
            if at == READINGS // 2:
                _give_up(events)
        events.start_sending()
        sent.until(8)
        for out in (sent[0], sent[1], sent[4]):
            cloud.take(out)
            events.free(out.key)
        sent.until(11)
    return FirstLife({path.name: path.read_bytes() for path in directory.iterdir()}, cloud)


def _give_up(events: EventLog) -> None:
    before = events.status().backlog_readings
    for stream in STREAMS:
        events.stream(stream).lose(GIVEN_UP, REASON)
    wait_until(
        lambda: events.status().backlog_readings == before + GIVEN_UP * len(STREAMS),
        "the losses have their places",
    )


def lay(directory: Path, life: FirstLife, log: bytes) -> None:
    """The files of a first life, with a damaged log."""
    directory.mkdir()
    for name, content in life.files.items():
        (directory / name).write_bytes(log if name == LOG_NAME else content)


def second_life(
    directory: Path, life: FirstLife, log: bytes, *, failpoint: Callable[[str], None] = no_failpoint
) -> Cloud:
    """Start on the damaged log, accept more, send everything; what the cloud has then."""
    lay(directory, life, log)
    return live_on(directory, life, failpoint=failpoint)


def live_on(
    directory: Path, life: FirstLife, *, failpoint: Callable[[str], None] = no_failpoint
) -> Cloud:
    """A life on what lies there."""
    sent, cloud = Sent(), life.cloud.copy()
    with opened(
        directory, sent=sent, config=CONFIG, uplink=UPLINK, seed=2, failpoint=failpoint
    ) as events:
        for stream in STREAMS:
            queue = events.stream(stream)
            assert queue.wait_accepted(
                queue.append_all([reading(n, text=text_of(n)) for n in LATER]), timeout_s=PATIENCE_S
            )
        events.start_sending()
        wait_until(lambda: _drained(events, sent), "drained")
        for out in sent:
            cloud.take(out)
    assert not list(directory.glob("*.damaged-*")), "a damaged log stays for ever"
    return cloud


def _drained(events: object, sent: Sent) -> bool:
    sent.acknowledge(events)  # type: ignore[arg-type]
    return (
        events.all_framed
        and events.status().backlog_readings == 0
        and sent.acknowledged == len(sent)
    )  # type: ignore[attr-defined]


Damage = Callable[[bytes], bytes]


def pages_in_use(log: bytes) -> list[int]:
    """From 0; those that were never written hold zeros."""
    return [page for page in range(len(log) // PAGE) if any(log[page * PAGE : (page + 1) * PAGE])]


def zero_page(number: int) -> Damage:
    """A page that a flash card lost: of those in use the one with this number, from 0,
    cyclically.
    """

    def change(log: bytes) -> bytes:
        used = pages_in_use(log)
        page = used[number % len(used)]
        return log[: page * PAGE] + bytes(PAGE) + log[(page + 1) * PAGE :]

    return change


def stale_page(number: int) -> Damage:
    """A page in the place of another one, as after a write that went astray."""

    def change(log: bytes) -> bytes:
        other = (number * 7 + 3) % (len(log) // PAGE)
        return (
            log[: number * PAGE]
            + log[other * PAGE : (other + 1) * PAGE]
            + log[(number + 1) * PAGE :]
        )

    return change


def truncate(size: int) -> Damage:
    """The file ends early."""
    return lambda log: log[: size % len(log)]


def flip_in_gap(number: int) -> Damage:
    """One bit of the row of `gaps` that stands last: of its header, its numbers, its reason or its
    CRC.
    """

    def change(log: bytes) -> bytes:
        at, changed = log.rindex(REASON.encode()) - GAP_BYTES_BEFORE + number // 8, bytearray(log)
        changed[at] ^= 1 << number % 8
        return bytes(changed)

    return change


def flip(seed: int) -> Damage:
    """One bit."""

    def change(log: bytes) -> bytes:
        rng = random.Random(seed)
        at, changed = rng.randrange(len(log)), bytearray(log)
        changed[at] ^= 1 << rng.randrange(8)
        return bytes(changed)

    return change
