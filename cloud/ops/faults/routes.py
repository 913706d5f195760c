"""Routes of a demonstration: kill or freeze a part, cut a link, and see what the ledger says."""

from __future__ import annotations

from fastapi import APIRouter, Request

from edgewake.cloud.ops.lookups.fault_control import FaultControl
from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.faults import FaultsView, Order


def router(services: Services) -> APIRouter:
    """Look at faults, and let them happen."""
    routes = APIRouter(tags=["faults"])

    def control() -> FaultControl:
        if services.faults is None:
            detail = "this system does no faults to itself: start it with `edgewake up --faults`"
            raise Problem(404, "no_faults", detail)
        return services.faults

    @routes.get("/v1/faults", responses=problems(404, 503))
    async def look() -> FaultsView:
        """Which faults can be done and were done, and what the ledger finds lost, twice, wrong."""
        return await control().ask()

    @routes.post("/v1/faults", status_code=202, responses=problems(404, 409, 503))
    async def do(order: Order, request: Request) -> FaultsView:
        """Kill or freeze a part, or cut a link, of `edgewake up --faults`.

        A frozen part goes on after ten seconds, a cut link after as many; a part that was killed is
        started again. 409: something is done to it already, or it does not run.
        """
        request.state.audit = f"{order.kind} {order.target}"
        return await control().ask(order)

    return routes
