"""How the whole system is, in one answer."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.ops.services.problems import KnownProblem, alert_problems
from edgewake.cloud.ops.tables.devices import Presence
from edgewake.cloud.ops.tables.tables import PartView
from edgewake.cloud.web.openapi import problems


class Overview(BaseModel):
    """What is there, and what needs attention."""

    problems: list[KnownProblem]
    """Empty: all is well."""
    parts: list[PartView]
    devices: dict[Presence, int]
    """Devices by presence."""
    streams: int
    records_per_s: float
    """Records a second of all streams over the last 30 s; a record is a frame of one or many
    readings."""
    queries: dict[str, int]
    """Queries by state."""
    leases: int
    dead_letters: dict[str, int]
    """Dead letters of the last hour by reason, among the newest hundred."""


def router(services: Services) -> APIRouter:
    """Show the overview."""
    routes = APIRouter(tags=["overview"])
    tables = services.tables

    @routes.get("/v1/overview", responses=problems(503))
    async def overview() -> Overview:
        """What is there, and what needs attention, each in one sentence."""
        look = await services.system.look()
        of_alerts = alert_problems(tables.alerts.all(), tables.alerts.notes.values())
        return Overview(
            problems=[*of_alerts, *look.problems],
            parts=list(look.parts),
            devices={state: tables.devices.total(state) for state in Presence},
            streams=len(tables.streams),
            records_per_s=round(sum(tables.rates.per_s(name) or 0.0 for name in tables.streams), 1),
            queries=dict(Counter(query.state for query in look.queries)),
            leases=len(tables.leases),
            dead_letters=dict(look.dead),
        )

    return routes
