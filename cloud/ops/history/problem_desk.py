"""Maintains the log of problems: checks for them regularly and records acknowledgements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from edgewake.cloud.ops.history.problem_log import ProblemLog
from edgewake.cloud.ops.services.problems import alert_problems
from edgewake.cloud.ops.services.system_look import SystemLook
from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.problem import ProblemRecord

log = logging.getLogger("edgewake.ops")

LOOK_EVERY_S: Final = 5.0
"""Seconds between two checks; a problem that is shorter may be missed."""


@dataclass(frozen=True, slots=True)
class ProblemDesk:
    """Checks for problems while `leads` says that this server writes."""

    writer: TableWriter
    tables: OpsTables
    system: SystemLook
    clock: Clock
    leads: Callable[[], bool]
    log: ProblemLog = field(default_factory=ProblemLog)

    async def run(self) -> None:
        """Keeps the problems up to date until cancelled."""
        while True:
            await self.clock.sleep(LOOK_EVERY_S)
            if not (self.leads() and self.system.ready.is_set()):
                continue
            try:
                await self._look()
            except Unavailable as error:
                facts = {"event": "ops.problems_wait"}
                log.warning("the log of problems waits: %s", error, extra=facts)

    async def _look(self) -> None:
        look = await self.system.look()
        alerts = self.tables.alerts
        found = [*alert_problems(alerts.all(), alerts.notes.values()), *look.problems]
        now = self.clock.now_ms()
        for key, row in self.log.changes(self.tables.problems, found, now=now):
            if not self.leads():
                return
            await self.writer.write(topics.PROBLEMS, key, row)

    async def acknowledge(self, problem_id: str, *, by: str, note: str) -> ProblemRecord:
        """Records that somebody handles a problem. Raises Problem or Unavailable."""
        row = self.tables.problems.get(problem_id)
        if row is None:
            raise Problem(
                404,
                "no_such_problem",
                f"unknown problem {problem_id!r}; GET /v1/problems lists them",
            )
        new = row.model_copy(
            update={
                "acknowledged_at": self.clock.now_ms(),
                "acknowledged_by": by,
                "note": note,
            }
        )
        await self.writer.write(topics.PROBLEMS, problem_id, new)
        return new
