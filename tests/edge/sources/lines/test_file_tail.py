"""A file's lines, each exactly once, through rotation, truncation and death."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from edgewake.edge.intake.intake import Intake, LogSink, OneWaySink
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.sources.lines import follower
from edgewake.edge.sources.lines.file_tail import FileTail, FileTailConfig
from edgewake.edge.sources.lines.follower import Follower
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import Sent, lose
from tests.services import PATIENCE_S


class Tail:
    """A running source with the log behind it."""

    def __init__(self, sent: Sent, intake: Intake, events: EventLog, source: FileTail) -> None:
        self.sent, self.intake, self.events, self.source = sent, intake, events, source

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition over what was taken."""
        async with asyncio.timeout(PATIENCE_S):
            await self.events.until(lambda: (self.sent.acknowledge(self.events), condition())[1])


@asynccontextmanager
async def tailing(directory: Path, path: Path, **more: object) -> AsyncIterator[Tail]:
    sent = Sent()
    events = EventLog(
        directory,
        LogConfig(linger_ms=0, reserve_bytes=0),
        UplinkConfig(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_frames=sent.take,
    )
    events.start_sending()
    source = FileTail(
        FileTailConfig(type="file_tail", stream="s", path=path, poll_s=0.01, **more),  # type: ignore[arg-type]
        SystemClock(),
        position=events.position,
    )
    intake = Intake("tail", LogSink(events.stream("s")), source.policy, SystemClock())
    task = asyncio.create_task(source.run(intake))
    try:
        yield Tail(sent, intake, events, source)
    finally:
        task.cancel()
        await asyncio.wait({task})
        await asyncio.to_thread(events.close)


def lines(numbers: range) -> str:
    return "".join(f'{{"n": {n}}}\n' for n in numbers)


async def test_lines_are_taken_as_they_come_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    async with tailing(tmp_path / "log", path) as tail:
        with path.open("a", buffering=1) as file:
            file.write(lines(range(3)))
            await tail.until(lambda: len(tail.sent.ns()) == 3)
            file.write('{"n": ')
            file.flush()
            file.write("3}\n")
            await tail.until(lambda: tail.sent.ns() == [0, 1, 2, 3])


async def test_a_bad_line_is_counted_and_never_stops_it(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    path.write_bytes(
        b'{"n": 1}\nnot json\n{"n": nan}\n\xff\xfe\n' + b"x" * 70_000 + b'\n{"n": 2}\n'
    )
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: tail.sent.ns() == [1, 2])
        assert tail.intake.refused == {"json": 3, "oversize": 1}


async def test_text_lines_become_a_field(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    path.write_bytes(b"hello \xff\n")
    async with tailing(tmp_path / "log", path, format="text") as tail:
        await tail.until(lambda: tail.intake.taken == 1 and len(tail.sent) == 1)
        assert b'"hello \xef\xbf\xbd"' in tail.sent[0].payload


async def test_a_restart_goes_on_behind_the_last_accepted_line(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    path.write_text(lines(range(1000)))
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: len(tail.sent.ns()) == 1000)
    with path.open("a") as file:
        file.write(lines(range(1000, 1500)))
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: bool(tail.sent.ns()) and tail.sent.ns()[-1] == 1499)
        assert tail.sent.ns() == list(range(1000, 1500))


@pytest.mark.parametrize("away", [False, True])
async def test_a_rotated_file_is_read_to_its_end_before_the_new_one(
    tmp_path: Path, away: bool
) -> None:
    """Also when it was rotated while the agent was away."""
    path = tmp_path / "in.log"
    path.write_text(lines(range(5)))

    def rotate() -> None:
        with path.open("a") as file:
            file.write(lines(range(5, 10)))
        path.rename(tmp_path / "in.log.1")
        path.write_text(lines(range(10, 15)))

    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: len(tail.sent.ns()) == 5)
        if not away:
            rotate()
            await tail.until(lambda: tail.sent.ns() == list(range(15)))
    if away:
        rotate()
        async with tailing(tmp_path / "log", path) as tail:
            await tail.until(lambda: tail.sent.ns() == list(range(5, 15)))


@pytest.mark.parametrize("longer", [False, True])
async def test_a_truncated_file_is_read_from_its_beginning(tmp_path: Path, longer: bool) -> None:
    """Also when it has grown past the old place before anybody looked."""
    path = tmp_path / "in.log"
    path.write_text(lines(range(20)))
    new = range(100, 150 if longer else 105)
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: len(tail.sent.ns()) == 20)
        path.write_text(lines(new))
        await tail.until(lambda: bool(tail.sent.ns()) and tail.sent.ns()[-1] == new[-1])
        assert tail.sent.ns() == [*range(20), *new]


async def test_start_at_the_end_takes_new_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    path.write_text(lines(range(5)))
    async with tailing(tmp_path / "log", path, start="end") as tail:
        async with asyncio.timeout(PATIENCE_S):
            while not tail.source.looked:
                await asyncio.sleep(0.01)
        with path.open("a") as file:
            file.write(lines(range(5, 7)))
        await tail.until(lambda: bool(tail.sent.ns()) and tail.sent.ns()[-1] == 6)
        assert 4 not in tail.sent.ns()


async def test_what_is_added_while_away_is_taken_although_nothing_was_taken_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.log"
    path.write_text(lines(range(5)))
    async with tailing(tmp_path / "log", path, start="end") as tail:
        async with asyncio.timeout(PATIENCE_S):
            while tail.events.position(f"file_tail:{path}") is None:
                await asyncio.sleep(0.01)
    with path.open("a") as file:
        file.write(lines(range(5, 7)))
    async with tailing(tmp_path / "log", path, start="end") as tail:
        await tail.until(lambda: tail.sent.ns() == [5, 6])


async def test_a_writer_that_has_not_noticed_the_rotation_loses_nothing(tmp_path: Path) -> None:
    """logrotate renames and creates first and signals the writer afterwards."""
    path = tmp_path / "in.log"
    async with tailing(tmp_path / "log", path) as tail:
        with path.open("a", buffering=1) as writer:
            writer.write(lines(range(5)))
            await tail.until(lambda: len(tail.sent.ns()) == 5)
            path.rename(tmp_path / "in.log.1")
            path.write_text(lines(range(5, 7)))
            await tail.until(lambda: len(tail.sent.ns()) == 7)
            writer.write(lines(range(7, 10)))
            await tail.until(lambda: sorted(tail.sent.ns()) == list(range(10)))  # type: ignore[type-var]


async def test_several_rotations_while_away_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    path.write_text(lines(range(5)))
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: len(tail.sent.ns()) == 5)
    path.rename(tmp_path / "in.log.2")
    (tmp_path / "in.log.1").write_text(lines(range(5, 10)))
    path.write_text(lines(range(10, 15)))
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: tail.sent.ns() == list(range(5, 15)))


async def test_a_file_that_was_packed_before_it_was_read_is_a_loss_and_a_gap(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.log"
    path.write_text(lines(range(5)))
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: len(tail.sent.ns()) == 5)
    path.write_text(path.read_text() + lines(range(5, 10)))
    with gzip.open(tmp_path / "in.log.1.gz", "wb") as packed:
        packed.write(path.read_bytes())
    path.unlink()
    path.write_text(lines(range(10, 15)))
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: tail.sent.ns()[-5:] == list(range(10, 15)))
        await tail.until(lambda: tail.events.status().lost == {"away": 1})


async def test_a_last_line_without_an_end_counts_once_its_file_is_rotated_and_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it does not count earlier is tested without waiting, in test_follower.py."""
    monkeypatch.setattr(follower, "QUIET_S", 0.5)
    path = tmp_path / "in.log"
    path.write_text(lines(range(3)) + '{"n": 3}')
    async with tailing(tmp_path / "log", path) as tail:
        await tail.until(lambda: tail.sent.ns() == [0, 1, 2])
        path.rename(tmp_path / "in.log.1")
        path.write_text(lines(range(4, 6)))
        await tail.until(lambda: sorted(tail.sent.ns()) == list(range(6)))  # type: ignore[type-var]


async def test_a_fifo_is_refused_and_freezes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "in.fifo"
    os.mkfifo(path)
    source = FileTail(
        FileTailConfig(type="file_tail", stream="s", path=path),
        SystemClock(),
        position=lambda _: None,
    )
    with pytest.raises(LocalError, match="not a regular file"):
        async with asyncio.timeout(PATIENCE_S):
            await source.run(
                Intake("tail", OneWaySink(lambda _: None, lose), source.policy, SystemClock())
            )


async def test_a_disk_that_does_not_answer_stops_neither_the_loop_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never, reached = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        reached.set()
        never.wait(2 * PATIENCE_S)

    monkeypatch.setattr(Follower, "read", hang)
    source = FileTail(
        FileTailConfig(type="file_tail", stream="s", path=tmp_path / "x"),
        SystemClock(),
        position=lambda _: None,
    )
    task = asyncio.create_task(
        source.run(Intake("tail", OneWaySink(lambda _: None, lose), source.policy, SystemClock()))
    )
    async with asyncio.timeout(PATIENCE_S):
        while not reached.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()
    never.set()


async def test_a_big_file_leaves_the_loop_its_turns(tmp_path: Path) -> None:
    """Turns are counted, not timed: between two chunks of lines everybody else has one."""
    path = tmp_path / "in.log"
    path.write_text(lines(range(40_000)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(others())
    taken: list[int] = []
    source = FileTail(
        FileTailConfig(type="file_tail", stream="s", path=path),
        SystemClock(),
        position=lambda _: None,
    )
    intake = Intake(
        "tail", OneWaySink(lambda readings: taken.append(turns), lose), source.policy, SystemClock()
    )
    task = asyncio.create_task(source.run(intake))
    async with asyncio.timeout(PATIENCE_S):
        while intake.taken < 40_000:
            await asyncio.sleep(0.01)
    for each in (task, other):
        each.cancel()
        await asyncio.wait({each})
    assert len(taken) >= 8
    assert all(later > earlier for earlier, later in pairwise(taken))
