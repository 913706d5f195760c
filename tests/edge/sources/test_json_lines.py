"""Standard input."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from edgewake.edge.intake import Intake, LossReason
from edgewake.edge.log_codec import Reading
from edgewake.edge.sources.json_lines import JsonLines
from edgewake.protocol.clock import FakeClock


class Memory:
    """A sink with room for ever."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    async def room(self) -> None: ...

    def lose(self, count: int, reason: LossReason) -> None: ...

    def put(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self.readings += readings


async def test_lines_are_read_to_the_end_and_bad_ones_stop_nothing() -> None:
    reader, writer = os.pipe()
    sink, source = Memory(), JsonLines(reader)
    intake = Intake("stdin", sink, source.policy, FakeClock(5))
    run = asyncio.create_task(source.run(intake))
    await asyncio.to_thread(_write, writer)
    await asyncio.wait_for(run, 10)
    os.close(reader)
    assert sink.readings == [(5, {"v": 1}), (7, {"v": 2}), (5, {"v": 3})]
    assert intake.refused == {"json": 1, "oversize": 1}


def _write(pipe: int) -> None:
    os.write(pipe, b'{"v": 1}\nnonsense\n{"v": ')
    os.write(pipe, b'2, "t": 7}\n' + b"x" * 50_000)
    os.write(pipe, b"y" * 50_000 + b'\n{"v": 3}')
    os.close(pipe)
