"""Routes about devices."""

from __future__ import annotations

from fastapi import APIRouter

from edgewake.cloud.ops.devices import DeviceView, Presence
from edgewake.cloud.ops.routes import PAGE_DEFAULT, After, DeviceName, Limit, Page, Services, page_of
from edgewake.cloud.web import Problem


def router(services: Services) -> APIRouter:
    """List and show devices."""
    routes = APIRouter(tags=["devices"])

    @routes.get("/v1/devices")
    async def devices(limit: Limit = PAGE_DEFAULT, after: After = None, state: Presence | None = None) -> Page[DeviceView]:
        """Devices by name."""
        found = [d for d in services.tables.devices(now=services.clock.now_ms()) if state is None or d.state is state]
        return page_of(found, lambda d: d.device, after, limit)

    @routes.get("/v1/devices/{device}")
    async def device(device: DeviceName) -> DeviceView:
        """One device."""
        found = services.tables.device(device, now=services.clock.now_ms())
        if found is None:
            raise Problem(404, "no_such_device", f"nothing is known of device {device!r}")
        return found

    return routes
