"""Requests repairs from the analysis, which recomputes windows from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.query import Registration
from edgewake.protocol.ops.repair import OPEN_MAX, ROWS_MAX, Repair, RepairKind


class RepairDesk:
    """Writes the first row of a repair to `ew.repairs`; the analysis updates it."""

    def __init__(
        self, writer: TableWriter, tables: OpsTables, *, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        """`new_id` makes unique ids."""
        self._writer, self._tables, self._clock, self._new_id = writer, tables, clock, new_id
        self._turn = asyncio.Lock()

    def of(self, query: str) -> list[Repair]:
        """Returns the repairs of a query, latest first."""
        found = [repair for repair in self._tables.repairs.values() if repair.query == query]
        return sorted(found, key=lambda repair: (repair.asked_at, repair.id), reverse=True)

    async def ask(
        self,
        registration: Registration,
        kind: RepairKind,
        begin: int,
        end: int | None,
        *,
        by: str,
        lossy: bool = False,
    ) -> Repair:
        """Requests a repair. Raises Problem or Unavailable."""
        now_ms = self._clock.now_ms()
        if not begin < (now_ms if end is None else end):
            raise Problem(
                422,
                "range",
                f"the range begins at {begin} and ends at {end or now_ms}: expected one that "
                "begins before it ends",
            )
        async with self._turn:
            if sum(repair.state.is_open for repair in self._tables.repairs.values()) >= OPEN_MAX:
                raise Problem(
                    409,
                    "too_many_repairs",
                    f"{OPEN_MAX} repairs wait or run, the most at once; wait for one to end",
                )
            await self._forget()
            asked = Repair(
                id=f"{now_ms}-{self._new_id()}",
                query=registration.name,
                registered_at=registration.registered_at,
                kind=kind,
                begin=begin,
                end=end,
                lossy=lossy,
                asked_at=now_ms,
                asked_by=by,
                updated_at=now_ms,
            )
            await self._writer.write(topics.REPAIRS, asked.id, asked)
        return asked

    async def _forget(self) -> None:
        for repair_id in oldest_ended(self._tables.repairs):
            await self._writer.write(topics.REPAIRS, repair_id, None)


def oldest_ended(repairs: Mapping[str, Repair]) -> list[str]:
    """Returns the ids to forget, so that there is room for one more."""
    ended = sorted(
        (repair.asked_at, repair.id) for repair in repairs.values() if not repair.state.is_open
    )
    return [repair_id for _, repair_id in ended[: max(0, len(repairs) + 1 - ROWS_MAX)]]
