"""Does faults to the parts that the supervisor keeps, and knows when each is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from edgewake.deploy.faults.link import Link
from edgewake.deploy.parts.lifecycle import State
from edgewake.deploy.parts.supervisor import Keeper
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.faults import (
    FaultDone,
    FaultKind,
    FaultsView,
    LinkState,
    Order,
    PartState,
    Refused,
    Verdict,
)

LASTS_S: Final = 10.0
"""Seconds that a part is frozen, or a link cut."""
LOOK_S: Final = 0.1
FAULTS_KEPT: Final = 20
SPARED: Final = "ledger"
"""The part that judges; nothing is done to it."""


class Desk:
    """Injects faults into parts, one at a time for each part."""

    def __init__(
        self,
        keepers: Mapping[str, Keeper],
        links: Sequence[Link],
        verdict_file: Path,
        clock: Clock,
    ) -> None:
        self._keepers = {name: one for name, one in keepers.items() if name != SPARED}
        self._links = {link.name: link for link in links}
        self._verdict_file = verdict_file
        self._clock = clock
        self._done: deque[FaultDone] = deque(maxlen=FAULTS_KEPT)
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def do(self, order: Order) -> FaultDone | Refused:
        """Let it happen. A target to which something is done already is refused."""
        is_cut = order.kind is FaultKind.CUT
        known: Mapping[str, object] = self._links if is_cut else self._keepers
        if order.target not in known:
            detail = f"{order.target!r}: expected one of {', '.join(known)}"
            return Refused(refused="no_such_target", detail=detail)
        if any(one.over_at is None and one.target == order.target for one in self._done):
            detail = f"something is done to {order.target} already; wait until it is over"
            return Refused(refused="still_on", detail=detail)
        if is_cut:
            return self._begin(order, self._links[order.target].cut(LASTS_S))
        keeper = self._keepers[order.target]
        child = keeper.child
        if child is None or keeper.state is not State.READY:
            detail = f"{order.target} is {keeper.state.value}: expected a part that is ready"
            return Refused(refused="not_running", detail=detail)
        if order.kind is FaultKind.KILL:
            before = keeper.restarts
            child.kill()
            return self._begin(order, self._come_back(keeper, before))
        try:
            os.killpg(child.pid, signal.SIGSTOP)
        except ProcessLookupError:
            detail = f"{order.target} has just ended; wait until it is ready again"
            return Refused(refused="not_running", detail=detail)
        return self._begin(order, self._thaw(keeper, child.pid))

    def look(self) -> FaultsView:
        """What there is, what was done, and how the ledger stands."""
        parts = [
            PartState(name=name, state=keeper.state.value, restarts=keeper.restarts)
            for name, keeper in self._keepers.items()
        ]
        links = [
            LinkState(name=link.name, text=link.text, is_cut=link.is_cut)
            for link in self._links.values()
        ]
        return FaultsView(
            parts=parts, links=links, faults=list(self._done)[::-1], verdict=self._verdict()
        )

    async def close(self) -> None:
        """Undo what still lasts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _verdict(self) -> Verdict | None:
        try:
            return Verdict.model_validate_json(self._verdict_file.read_bytes())
        except (OSError, ValidationError):
            return None

    def _begin(self, order: Order, until_over: Awaitable[None]) -> FaultDone:
        self._number += 1
        fault = FaultDone(
            number=self._number, kind=order.kind, target=order.target, at=self._clock.now_ms()
        )
        self._done.append(fault)

        async def wait() -> None:
            await until_over
            fault.over_at = self._clock.now_ms()

        task = asyncio.create_task(wait(), name=f"{order.kind} {order.target}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return fault

    async def _come_back(self, keeper: Keeper, restarts_before: int) -> None:
        """Until it was started again and is ready."""
        while keeper.restarts == restarts_before or keeper.state is not State.READY:
            await self._clock.sleep(LOOK_S)

    async def _thaw(self, keeper: Keeper, pid: int) -> None:
        """Let it go on after LASTS_S, unless the supervisor found that it hangs and killed it."""
        try:
            await self._clock.sleep(LASTS_S)
        finally:
            if keeper.child is not None and keeper.child.pid == pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGCONT)
