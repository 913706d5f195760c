"""Routes about devices."""

from __future__ import annotations

from fastapi import APIRouter

from edgewake.cloud.ops.routes.shared import PAGE_DEFAULT, After, DeviceName, Limit, Page, Services
from edgewake.cloud.ops.tables.devices import DeviceView, Presence
from edgewake.cloud.web import Problem
from edgewake.cloud.web_openapi import problems
from edgewake.protocol import topics


def router(services: Services) -> APIRouter:
    """List and show devices."""
    routes = APIRouter(tags=["devices"])
    table = services.tables.devices

    @routes.get("/v1/devices")
    async def devices(
        limit: Limit = PAGE_DEFAULT, after: After = None, state: Presence | None = None
    ) -> Page[DeviceView]:
        """Devices by name. `state` is as old as the last look at the time, a second at most."""
        found = table.page(after, limit + 1, state)
        following = found[limit - 1].device if len(found) > limit else None
        return Page(items=found[:limit], next=following, total=table.total(state))

    @routes.get("/v1/devices/{device}", responses=problems(404))
    async def device(device: DeviceName) -> DeviceView:
        """One device."""
        found = table.get(device)
        if found is None:
            raise Problem(404, "no_such_device", f"nothing is known of device {device!r}")
        return found

    @routes.delete("/v1/devices/{device}", status_code=204, responses=problems(404))
    async def remove(device: DeviceName) -> None:
        """Forget what is known of a device.

        Its readings stay, and it is listed again when it sends again.
        """
        if device not in table:
            raise Problem(404, "no_such_device", f"nothing is known of device {device!r}")
        for what in ("status", "seen"):
            await services.writer.write(topics.DEVICES, f"{device}|{what}", None)

    return routes
