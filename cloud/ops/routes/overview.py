"""How the whole system is, in one answer."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from pydantic import BaseModel

from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.ops.services import dead_letters
from edgewake.cloud.ops.services.dead_letters import Filter
from edgewake.cloud.ops.services.problems import KnownProblem, dead_by_reason, problems_of
from edgewake.cloud.ops.tables.devices import Presence
from edgewake.cloud.ops.tables.tables import PartView
from edgewake.cloud.web_openapi import problems

LETTERS_LOOKED_AT = 100
"""Dead letters, the newest ones: what is counted by reason."""


class Overview(BaseModel):
    """What is there, and what needs attention."""

    problems: list[KnownProblem]
    """Empty: all is well."""
    parts: list[PartView]
    devices: dict[Presence, int]
    """Devices by presence."""
    streams: int
    records_per_s: float
    """Of all streams over the last 30 s; a record is a frame of one or many readings."""
    queries: dict[str, int]
    """Queries by state."""
    leases: int
    dead_letters: dict[str, int]
    """Of the last hour by reason, among the newest hundred."""


def router(services: Services) -> APIRouter:
    """Show the overview."""
    routes = APIRouter(tags=["overview"])
    tables = services.tables

    @routes.get("/v1/overview", responses=problems(503))
    async def overview() -> Overview:
        """What is there, and what needs attention, each in one sentence."""
        newest = await services.lookup.run(
            lambda session: dead_letters.page(
                session,
                services.letters,
                before=None,
                limit=LETTERS_LOOKED_AT,
                wanted=Filter(None, None),
            )
        )
        dead = dead_by_reason(newest.items, now_ms=services.clock.now_ms())
        queries = [services.registry.view(row) for row in tables.queries.values()]
        parts = [tables.parts[name] for name in sorted(tables.parts)]
        found = problems_of(
            parts, queries, list(tables.leases.values()), dead, is_ready=services.ready.is_set()
        )
        return Overview(
            problems=list(found),
            parts=parts,
            devices={state: tables.devices.total(state) for state in Presence},
            streams=len(tables.streams),
            records_per_s=round(sum(tables.rates.per_s(name) or 0.0 for name in tables.streams), 1),
            queries=dict(Counter(query.state for query in queries)),
            leases=len(tables.leases),
            dead_letters=dict(dead),
        )

    return routes
