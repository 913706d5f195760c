"""What is done to a part or a service of a running system, for how long, and how it is undone.

Each proves that it happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from edgewake.simulators.faults import group_of
from tests.hiccups.world import ANALYSIS, OPS, World
from tests.services import Process, thread_states
from tests.story.system import READY, READY_S

CONTROL = "none"
KILLED = "killed"
FROZEN = "frozen"
CUT = "cut"
FULL = "disk full"
FENCED = "fenced"
LEADS = {ANALYSIS: '"event":"analysis.leads"', OPS: '"event":"alerts.leads"'}
"""Parts of which one leads and the others stand by, and what the one says."""
PIECE = b"\0" * (1 << 20)


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the table: a part, a fault, and for how many seconds it lasts (0 of a kill: it is
    started again at once).
    """

    part: str
    fault: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.part} {self.fault}" + (f" {self.seconds:g} s" if self.seconds else "")


async def happen(world: World, cell: Cell) -> None:
    """Do it, wait, undo it.

    When this returns the part may work again, or is being started again.
    """
    if cell.fault == CONTROL:
        return
    if cell.fault == KILLED:
        before = world.pid(cell.part)
        os.killpg(before, signal.SIGKILL)
        await world.until(lambda: world.pid(cell.part) != before, f"{cell.part} is started again")
        return
    undone = {FROZEN: _frozen, CUT: _cut, FULL: _full, FENCED: _fenced}[cell.fault]
    async with undone(world, cell.part):
        await asyncio.sleep(cell.seconds)


@asynccontextmanager
async def _frozen(world: World, part: str) -> AsyncIterator[None]:
    pid = world.pid(part)
    os.killpg(pid, signal.SIGSTOP)
    try:
        await world.until(
            lambda: all(thread_states(one) == {"T"} for one in group_of(pid)),
            f"{part} stands still",
        )
        yield
    finally:
        os.killpg(pid, signal.SIGCONT)


@asynccontextmanager
async def _cut(world: World, part: str) -> AsyncIterator[None]:
    gates = world.gates_of(part)
    before = sum(gate.held for gate in gates)
    for gate in gates:
        gate.shut()
    try:
        yield
        assert sum(gate.held for gate in gates) > before, f"{part}: there was nothing to cut"
    finally:
        for gate in gates:
            gate.open()


@asynccontextmanager
async def _full(world: World, part: str) -> AsyncIterator[None]:
    filler = world.disk(part) / "filler"
    try:
        await asyncio.to_thread(_fill, filler)
        yield
    finally:
        filler.unlink(missing_ok=True)


def _fill(path: Path) -> None:
    """Until there is no room."""
    with path.open("wb", buffering=0) as file:
        for piece in (PIECE, PIECE[:4096]):
            try:
                while True:
                    file.write(piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


@asynccontextmanager
async def _fenced(world: World, part: str) -> AsyncIterator[None]:
    if part == "kafka":
        async with _shut_out(world):
            yield
        return
    before = world.ended.get(part, 0)
    with world.twin(part) as twin:
        if part in LEADS:
            await _take_the_lead(world, part, twin)
        else:
            # of two that have one name the earlier one ends
            await world.until(
                lambda: world.ended.get(part, 0) > before,
                f"{part} ends, since another one has its name",
                timeout_s=READY_S,
            )
        yield
        if twin.is_running():  # the part, started again, may have fenced it in turn
            twin.kill()


@asynccontextmanager
async def _shut_out(world: World) -> AsyncIterator[None]:
    world.controller.shut()
    try:
        await world.until(lambda: not world.brokers(), "Kafka's broker is shut out")
        yield
    finally:
        world.controller.open()
        with contextlib.suppress(AssertionError):
            await world.until(world.brokers, "Kafka's broker is let in again", timeout_s=30)


async def _take_the_lead(world: World, part: str, twin: Process) -> None:
    """Of two that may lead the other one does, while the first stands still; then it goes on."""
    await world.until(
        lambda: READY in twin.output(), f"another {part} stands by", timeout_s=READY_S
    )
    async with _frozen(world, part):
        await world.until(
            lambda: LEADS[part] in twin.output(), f"another {part} leads", timeout_s=READY_S
        )
