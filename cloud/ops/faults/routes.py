"""Routes that inject faults into a demonstration and show the ledger's verdict."""

from __future__ import annotations

from fastapi import APIRouter, Request

from edgewake.cloud.ops.lookups.fault_control import FaultControl
from edgewake.cloud.ops.routes.shared import Services
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.faults import FaultsView, Order


def router(services: Services) -> APIRouter:
    """Makes the routes that list and inject faults."""
    routes = APIRouter(tags=["faults"])

    def control() -> FaultControl:
        if services.faults is None:
            detail = "fault injection is off: start the system with `edgewake up --faults`"
            raise Problem(404, "no_faults", detail)
        return services.faults

    @routes.get("/v1/faults", responses=problems(404, 503))
    async def look() -> FaultsView:
        """Show possible and past faults, and what the ledger finds lost, duplicated or wrong."""
        return await control().ask()

    @routes.post("/v1/faults", status_code=202, responses=problems(404, 409, 503))
    async def do(order: Order, request: Request) -> FaultsView:
        """Kill or freeze a part, or cut a link, of `edgewake up --faults`.

        A frozen part and a cut link recover after ten seconds; a killed part is started again. 409:
        a fault is in progress there, or the part does not run.
        """
        request.state.audit = f"{order.kind} {order.target}"
        return await control().ask(order)

    return routes
