"""Values for tests, with defaults, and a clock that stands still until it is told to go on."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Any

from edgewake.cloud.calls.sealing import Endpoint, Sealer
from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.leases.lease import LeaseRequest, WakePolicy, Webhook
from edgewake.protocol.leases.lease_read import hash_token
from edgewake.protocol.leases.lease_record import Lease

NOW = 1_790_000_000_000
SECRET = "whsec_" + "A" * 32
TOKEN = "0" * 48
KEY = bytes(range(32))
IDS = itertools.count(1)


def random_bytes(count: int) -> bytes:
    """Bytes that never come twice."""
    return next(IDS).to_bytes(count, "big")


def sealer(*keys: bytes) -> Sealer:
    """A sealer with test keys."""
    return Sealer(list(keys) or [KEY], random_bytes)


def request(
    *streams: str, url: str = "http://127.0.0.1:9/hook", cursor: str = "c0", **more: Any
) -> LeaseRequest:
    """A request for a lease."""
    subscription = Chosen(streams=streams or ("s",), where=more.pop("where", None))
    wake = WakePolicy(**more.pop("wake", {}))
    endpoint = more.pop("endpoint", None) or Webhook(url=url)
    return LeaseRequest(
        subscription=subscription, cursor=cursor, endpoint=endpoint, wake=wake, **more
    )


def lease(
    lease_id: str, *, url: str = "http://127.0.0.1:9/hook", seals: Sealer | None = None, **more: Any
) -> Lease:
    """A lease that ends in 2100."""
    wake = more.pop("wake", {})
    defaults = {
        "token_hash": hash_token(TOKEN),
        "request_hash": "",
        "streams": ("s",),
        "cursor": "c0",
        "endpoint_host": "127.0.0.1",
        "sealed": (seals or sealer()).seal(lease_id, Endpoint(url, SECRET, TOKEN)),
        "wake": wake if isinstance(wake, WakePolicy) else WakePolicy(**wake),
        "ttl_s": 604_800,
        "created_at": NOW,
        "expires_at": 4_102_444_800_000,
    }
    return Lease(id=lease_id, **{**defaults, **more})


class ManualClock:
    """A clock that moves only by `advance`; who sleeps is woken when its time has come."""

    def __init__(self, now_ms: int = NOW) -> None:
        self._now_s = 0.0
        self._began_ms = now_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._began_ms + round(self._now_s * 1000)

    def monotonic_s(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), waits))
        await waits

    @property
    def is_waited_for(self) -> bool:
        """Does somebody sleep?"""
        return bool(self._sleepers)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now_s:
            waits = heapq.heappop(self._sleepers)[2]
            if not waits.done():
                waits.set_result(None)


async def has_slept(clock: ManualClock) -> None:
    """Until nobody has anything to do before time passes."""
    for _ in range(100):
        await asyncio.sleep(0)
    assert clock.is_waited_for


class MemoryRows:
    """Rows of a partition, as a proxy that has it stores them."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.proved_at = 0.0

    async def put_row(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.kept.pop(key, None)
        else:
            self.kept[key] = value
