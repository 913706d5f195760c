"""Values for tests, with defaults."""

from __future__ import annotations

from typing import Any

from edgewake.protocol.lease import Lease, LeaseRequest, Subscription, WakePolicy, Webhook

NOW = 1_790_000_000_000
SECRET = "whsec_" + "A" * 32


def request(*streams: str, url: str = "http://127.0.0.1:9/hook", cursor: str = "v1.x", **more: Any) -> LeaseRequest:
    """A request for a lease."""
    subscription = Subscription(streams=streams or ("s",), where=more.pop("where", None))
    wake = WakePolicy(**more.pop("wake", {}))
    return LeaseRequest(subscription=subscription, cursor=cursor, endpoint=Webhook(url=url), wake=wake, **more)


def lease(lease_id: str, **more: Any) -> Lease:
    """A lease that ends in 2100."""
    defaults = {"token_hash": "0" * 64, "request": request(), "secret": SECRET, "created_at": NOW, "expires_at": 4_102_444_800_000}
    return Lease(id=lease_id, **{**defaults, **more})
