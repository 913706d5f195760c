"""Standard input."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from edgewake.edge.intake.intake import Intake, LossReason
from edgewake.edge.log.event_log import LogBusyError
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.json_lines import JsonLines
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError
from tests.edge.sources.cage import configured


class Memory:
    """A sink with room, until it is full."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.lost: Counter[LossReason] = Counter()
        self.is_full = False
        self.waited = asyncio.Event()

    async def room(self, *, promised: bool = False) -> None:
        self.waited.set()
        await asyncio.Event().wait()

    async def durable(self) -> None:
        pass

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self.put(readings, position, {})

    async def kept(self) -> None:
        pass

    def lose(self, count: int, reason: LossReason) -> None:
        self.lost[reason] += count

    def lose_these(self, readings: Sequence[Reading], reason: LossReason) -> None:
        self.lose(len(readings), reason)

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        if self.is_full:
            raise LogBusyError
        self.readings += readings


async def test_lines_are_read_to_the_end_and_bad_ones_stop_nothing() -> None:
    reader, writer = os.pipe()
    sink, source = Memory(), JsonLines(reader)
    intake = Intake("stdin", sink, source.policy, FakeClock(5))
    run = asyncio.create_task(source.run(intake))
    await asyncio.to_thread(_write, writer)
    await asyncio.wait_for(run, 10)
    os.close(reader)
    assert sink.readings == [(5, {"v": 1}), (1_790_000_000_007, {"v": 2}), (5, {"v": 3})]
    assert intake.refused == {"json": 1, "oversize": 1}


async def test_a_map_makes_readings_of_lines(tmp_path: Path) -> None:
    """Also of the last one, which has no end; the input's end and a wrong line stop nothing."""
    made = (
        '[[map]]\ntopic = "source/s"\nothers = "drop"\neach = "in"\n[map.fields]\n'
        'v = { name = "heat", as = "number", scale = 0.1 }\n'
    )
    config = configured("json_lines", maps_text=made)
    maps = config.message_maps(SourceContext("d", FakeClock(5), lambda _: None))
    reader, writer = os.pipe()
    sink, source = Memory(), JsonLines(reader, maps=maps)
    intake = Intake("stdin", sink, source.policy, FakeClock(5))
    text = b'{"in": [{"v": "215"}, {"v": 220}]}\n{broken\n%b\n{"in": [{"v": 225}]}' % (
        b"x" * 70_000
    )
    run = asyncio.create_task(source.run(intake))
    await asyncio.to_thread(os.write, writer, text)
    os.close(writer)
    await asyncio.wait_for(run, 10)
    os.close(reader)
    assert sink.readings == [(5, {"heat": 21.5}), (5, {"heat": 22.0}), (5, {"heat": 22.5})]
    assert intake.refused == {"json": 1, "oversize": 1}


def test_the_maps_of_its_configuration_are_those_of_the_source(tmp_path: Path) -> None:
    config = configured("json_lines", maps=str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"none\.toml"):
        config.source(SourceContext("d", FakeClock(5), lambda _: None))


@pytest.mark.parametrize("is_full_still", [True, False])
async def test_what_was_read_when_the_agent_stops_is_kept_or_said(is_full_still: bool) -> None:
    """Also what the thread has read and the loop has not seen: the pipe has it no more."""
    reader, writer = os.pipe()
    sink, source = Memory(), JsonLines(reader)
    intake = Intake("stdin", sink, source.policy, FakeClock(5))
    sink.is_full = True
    run = asyncio.create_task(source.run(intake))
    text = b"".join(b'{"v": %d}\n' % n for n in range(30_000))
    written = await asyncio.wait_for(_write_until_nobody_reads(writer, text, sink.waited), 10)
    sink.is_full = is_full_still
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, 10)
    os.close(writer)
    left = b""
    while more := os.read(reader, 1 << 20):
        left += more
    os.close(reader)
    taken = text[: written - len(left)]
    assert 0 < len(taken) < len(text), "the source was not stopped in the middle"
    lines = taken.count(b"\n") + taken.endswith(b"}")
    assert (len(sink.readings), sink.lost[LossReason.STOPPED]) == (
        (0, lines) if is_full_still else (lines, 0)
    )


async def test_a_source_stops_though_nothing_comes() -> None:
    reader, writer = os.pipe()
    run = asyncio.create_task(
        JsonLines(reader).run(Intake("stdin", Memory(), JsonLines.policy, FakeClock(5)))
    )
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, 10)
    os.close(writer)
    os.close(reader)


async def _write_until_nobody_reads(pipe: int, text: bytes, waiting: asyncio.Event) -> int:
    """As much as the source and the pipe take; the bytes written."""
    os.set_blocking(pipe, False)
    written = 0
    while True:
        try:
            written += os.write(pipe, text[written:])
        except BlockingIOError:
            if waiting.is_set():
                return written
            await asyncio.sleep(0.001)


def _write(pipe: int) -> None:
    os.write(pipe, b'{"v": 1}\nnonsense\n{"v": ')
    os.write(pipe, b'2, "t": 1790000000007}\n' + b"x" * 50_000)
    os.write(pipe, b"y" * 50_000 + b'\n{"v": 3}')
    os.close(pipe)
