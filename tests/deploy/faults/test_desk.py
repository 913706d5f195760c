"""Faults on real processes under the supervisor, asked for as the operations API asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgewake.cloud.ops.lookups.fault_control import FaultControl, FaultsConfig
from edgewake.cloud.web.http_part import Problem
from edgewake.deploy.faults import control, desk
from edgewake.deploy.faults.link import Link
from edgewake.deploy.parts.supervisor import Supervisor
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.faults import FaultDone, FaultKind, Order, Verdict
from edgewake.simulators.faults import state
from tests.deploy.children import LIVELY, part, supervisor, until
from tests.services import free_ports

KEY = "ew_key"


@dataclass(frozen=True)
class World:
    """A supervisor with one part, and how one asks for faults."""

    supervisor: Supervisor
    ask: FaultControl
    verdict_file: Path
    port: int

    @property
    def pid(self) -> int:
        child = self.supervisor.keepers["bridge-1"].child
        return child.pid if child else 0

    async def newest(self) -> FaultDone:
        return (await self.ask.ask()).faults[0]


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    port, link_port, behind = free_ports(3)
    parts = supervisor(tmp_path, part("bridge-1", LIVELY), part(desk.SPARED, LIVELY))
    verdict_file, stop, ready = tmp_path / "ledger.json", asyncio.Event(), asyncio.Event()
    links = [Link("devices", "devices to the broker", port=link_port, to_port=behind)]
    faults = desk.Desk(parts.keepers, links, verdict_file, SystemClock())
    key_file = tmp_path / "faults.key"
    key_file.write_text(KEY)
    running = asyncio.create_task(
        parts.run(stop, when_ready=ready.set, alongside=[lambda: control.serve(faults, port, KEY)])
    )
    await until(ready.is_set, "the part is ready")
    asked = FaultControl(FaultsConfig(port=port, key_file=key_file))
    yield World(parts, asked, verdict_file, port)
    stop.set()
    await running


async def test_a_killed_part_is_gone_comes_back_and_the_fault_is_over_then(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        before = here.pid
        view = await here.ask.ask(Order(kind=FaultKind.KILL, target="bridge-1"))
        assert view.faults[0].over_at is None
        await until(lambda: state(before) == "", "the process is gone")
        await until(lambda: here.pid not in (0, before), "another one is there")
        while (fault := await here.newest()).over_at is None:
            await asyncio.sleep(0.05)
        assert fault.over_at >= fault.at
        assert (await here.ask.ask()).parts[0].restarts == 1


async def test_a_frozen_part_stands_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "LASTS_S", 5.0)
    async with world(tmp_path) as here:
        order = Order(kind=FaultKind.FREEZE, target="bridge-1")
        await here.ask.ask(order)
        await until(lambda: state(here.pid) == "T", "it stands still")
        with pytest.raises(Problem, match="already") as refused:
            await here.ask.ask(order)
        assert refused.value.status == 409
        while (await here.newest()).over_at is None:
            await asyncio.sleep(0.05)
        assert state(here.pid) in {"R", "S"}
        assert (await here.ask.ask()).parts[0].restarts == 0


async def test_what_is_frozen_at_the_end_is_thawed_and_stops_in_order(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        pid = here.pid
        await here.ask.ask(Order(kind=FaultKind.FREEZE, target="bridge-1"))
    assert state(pid) == ""


async def test_a_link_is_cut_and_whole_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "LASTS_S", 0.5)
    async with world(tmp_path) as here:
        await here.ask.ask(Order(kind=FaultKind.CUT, target="devices"))
        assert (await here.ask.ask()).links[0].is_cut or (await here.newest()).over_at
        while (await here.newest()).over_at is None:
            await asyncio.sleep(0.05)
        assert not (await here.ask.ask()).links[0].is_cut


@pytest.mark.parametrize("target", ["nobody", desk.SPARED])
async def test_a_target_that_is_not_there_or_judges_is_refused(tmp_path: Path, target: str) -> None:
    async with world(tmp_path) as here:
        with pytest.raises(Problem, match="bridge-1") as refused:
            await here.ask.ask(Order(kind=FaultKind.KILL, target=target))
        assert refused.value.status == 404
        assert here.supervisor.keepers["bridge-1"].restarts == 0


async def test_without_the_key_nothing_happens(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        (tmp_path / "other.key").write_text("ew_other")
        other = FaultControl(FaultsConfig(port=here.port, key_file=tmp_path / "other.key"))
        with pytest.raises(Unavailable, match="key"):
            await other.ask(Order(kind=FaultKind.KILL, target="bridge-1"))
        assert (await here.ask.ask()).faults == []


async def test_the_verdict_is_what_the_ledger_wrote_last(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        assert (await here.ask.ask()).verdict is None
        numbers = dict.fromkeys(set(Verdict.model_fields) - {"sentences"}, 7)
        said = Verdict(**numbers, sentences=["a n=1 was shown again"])
        here.verdict_file.write_text(said.model_dump_json())
        assert (await here.ask.ask()).verdict == said


async def test_a_supervisor_that_is_away_is_said(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "key").write_text(KEY)
    with pytest.raises(Unavailable, match="does not answer"):
        await FaultControl(FaultsConfig(port=port, key_file=tmp_path / "key")).ask()
