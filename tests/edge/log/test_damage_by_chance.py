"""Damage anywhere in the files, again and again, in lives of any kind: nothing wrong, nothing
twice, nothing unsaid.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.damage.salvage import LOG_ERRORS, is_damage, set_aside
from edgewake.edge.log.keeping.work import OutFrame, Work
from edgewake.edge.log.tables.consumers import Passed
from edgewake.edge.log.tables.schema import LOG_NAME, PAGE_BYTES
from tests.edge.helpers import reading
from tests.edge.log.bare_log import FILES, BareLog, Cloud, place, readings_after
from tests.examples import examples

T = TypeVar("T")
STREAMS = ("speed", "street")
WAL = f"{LOG_NAME}-wal"


class Device:
    """A log that is mended as the agent mends it: set aside, and begun anew."""

    def __init__(self, log: BareLog) -> None:
        self.log = log
        self.accepted: dict[str, list[object]] = {name: [] for name in STREAMS}
        self.n = self.mended = 0

    def mending(self, what: Callable[[], T]) -> T:
        """Do it; again where the log turned out damaged."""
        for _ in range(4):
            try:
                return what()
            except LOG_ERRORS as error:
                if not is_damage(error):
                    raise
                self.mended += 1
                self.log.store.close()
                set_aside(self.log.directory)
                self.log.store = self.log._open()
        raise AssertionError("it has no end")

    def open(self) -> None:
        self.mending(self._opened)

    def _opened(self) -> None:
        self.log.store.close()
        self.log.store = self.log._open()

    def put(self, stream: str, count: int, text: str) -> None:
        some = [reading(self.n + more, text=text) for more in range(count)]
        self.mending(lambda: self.log.put({stream: some}))
        self.accepted[stream] += range(self.n, self.n + count)
        self.n += count

    def lose(self, stream: str, count: int) -> None:
        self.mending(lambda: self.log.store.apply(Work(lost={stream: {"queue_full": count}})))
        self.accepted[stream] += ["queue_full"] * count

    def send(self, cloud: Cloud, acknowledged: int | None) -> Sequence[OutFrame]:
        freed = cloud.acknowledge(acknowledged)
        frames = self.mending(lambda: self.log.send(freed))
        take(cloud, frames)
        return frames

    def drain(self, cloud: Cloud) -> None:
        cloud.waiting = []
        self.log.store.close()
        self.open()
        for _ in range(400):
            while self.log.store.has_to_catch_up:
                self.mending(lambda: self.log.store.catch_up())
            self.send(cloud, None)
            is_left = self.mending(lambda: self.log.store.backlog()[0]) or self.mending(
                lambda: self.log.store.has_unframed()
            )
            # The questions themselves may have met damage.
            if not (cloud.waiting or is_left or self.log.store.has_to_catch_up):
                return
        raise AssertionError("it has no end")


def take(cloud: Cloud, frames: Sequence[OutFrame]) -> None:
    """What was sent before with its readings may come again as a gap of its number: the first
    holds.
    """
    for out in frames:
        if out.gap is not None:
            cloud.payloads.setdefault(out.key, out.payload)
    cloud.take(frames)


def harm(files: dict[str, bytes], seed: int, kind: str) -> dict[str, bytes]:
    """One page or bit of the log or of its write-ahead log, or the end of one of them; never of the
    sidecar, which says what there was.
    """
    rng = random.Random(seed)
    name = rng.choice([name for name in (LOG_NAME, WAL) if files.get(name)])
    data = bytearray(files[name])
    at = rng.randrange(len(data))
    if kind == "bit":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "page":
        begins = at // PAGE_BYTES * PAGE_BYTES
        data[begins : begins + PAGE_BYTES] = bytes(len(data[begins : begins + PAGE_BYTES]))
    elif kind == "stray":
        begins, other = (
            at // PAGE_BYTES * PAGE_BYTES,
            rng.randrange(len(data)) // PAGE_BYTES * PAGE_BYTES,
        )
        data[begins : begins + PAGE_BYTES] = data[other : other + PAGE_BYTES].ljust(
            PAGE_BYTES, b"\0"
        )[: len(data[begins : begins + PAGE_BYTES])]
    else:
        data = data[:at]
    return files | {name: bytes(data)}


LIFE = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(STREAMS), st.integers(1, 25),
            st.sampled_from(["", "short", "x" * 900])),
        st.tuples(st.just("put"), st.sampled_from(STREAMS), st.integers(1, 25),
            st.just("some text")),
        st.tuples(st.just("lose"), st.sampled_from(STREAMS), st.integers(1, 9), st.none()),
        st.tuples(st.just("send"), st.none() | st.integers(0, 4), st.none(), st.none()),
        st.tuples(st.just("checkpoint"), st.none(), st.none(), st.none()),
    ),
    min_size=3, max_size=25,
)  # fmt: skip
HARM = st.tuples(
    st.sampled_from(["bit", "bit", "bit", "page", "stray", "cut"]),
    st.integers(0, 2**32),
    st.booleans(),
)


@given(st.lists(st.tuples(LIFE, HARM), min_size=1, max_size=3))
@settings(max_examples=examples(50))
def test_every_position_arrives_once_as_it_was_or_is_said_to_be_lost(
    lives: list[tuple[list[tuple[object, ...]], tuple[str, int, bool]]],
) -> None:
    with place() as directory:
        device, cloud = Device(BareLog(directory)), Cloud()
        for life, (kind, seed, crashes) in lives:
            for what, *arguments in life:
                if what == "put":
                    device.put(*arguments)  # type: ignore[arg-type]
                elif what == "lose":
                    device.lose(str(arguments[0]), int(str(arguments[1])))
                elif what == "send":
                    device.send(cloud, arguments[0])  # type: ignore[arg-type]
                else:
                    device.mending(lambda: device.log.store.checkpoint())
            if not crashes:
                device.log.store.close()
            files = {
                name: (directory / name).read_bytes()
                for name in FILES
                if (directory / name).exists()
            }
            if crashes:
                device.log.store.close()
            for name, content in harm(files, seed, kind).items():
                (directory / name).write_bytes(content)
            cloud.waiting = []
            device.open()
        device.drain(cloud)
        for stream in STREAMS:
            heard = cloud.heard(stream)
            assert len(heard) == len(device.accepted[stream]), "unsaid, or said twice"
            assert all(
                got in ("corrupt", due)
                for got, due in zip(heard, device.accepted[stream], strict=True)
            )
        assert not list(directory.glob("*.damaged-*")), "all of it was read"
        device.log.close()


@given(st.integers(1, 30), HARM, st.integers(0, 25))
@settings(max_examples=examples(40))
def test_a_consumer_is_given_every_position_once_or_told_that_it_is_missing(
    commits: int, damage: tuple[str, int, bool], passed: int
) -> None:
    kind, seed, _ = damage
    with place() as directory:
        device = Device(BareLog(directory))
        device.log.store.register("reader", ["speed"], at_end=False)
        for _ in range(commits):
            device.put("speed", 3, "some text")
        at = min(passed, device.n)
        device.log.store.apply(Work(passed={"reader": Passed({"speed": at}, b"state")}))
        files = {name: (directory / name).read_bytes() for name in FILES}
        device.log.store.close()
        for name, content in harm(files, seed, kind).items():
            (directory / name).write_bytes(content)
        device.open()
        while device.log.store.has_to_catch_up:
            device.mending(lambda: device.log.store.catch_up())
        kept = device.log.store.consumer("reader")
        assert kept is not None
        assert kept.cursor == {"speed": at}
        assert kept.state in (b"state", None)
        heard, end = device.mending(lambda: readings_after(device.log, "speed", at))
        assert end == device.n
        assert len(heard) == device.n - at
        assert all(
            got in ("corrupt", due) for got, due in zip(heard, range(at, device.n), strict=True)
        )
        device.log.close()


@pytest.mark.parametrize("logs", [1, 2, 3, 4])
def test_several_damaged_logs_are_read_into_one(logs: int) -> None:
    """A disk that damages faster than it can be read."""
    with place() as directory:
        device, cloud = Device(BareLog(directory)), Cloud()
        for _ in range(logs):
            device.put("speed", 10, "some text")
            device.log.store.close()
            set_aside(directory)
            device.open()
        device.put("speed", 10, "some text")
        device.drain(cloud)
        assert cloud.heard("speed") == list(range(10 * (logs + 1)))
        device.log.close()
