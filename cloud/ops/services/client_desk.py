"""Ends clients, deliveries and groups, wakes clients and tests deliveries.

That is an order to the server that has them. Each call waits for the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.ops.tables.table_writer import TableWriter
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.leases.delivery_record import Delivery
from edgewake.protocol.leases.lease_record import Lease, LeaseState
from edgewake.protocol.ops.open_client import TEST, WAKE, Ending

HEARD_S: Final = 10.0
"""Seconds until a server has acted on an order: it checks once a second, and reports it."""
CALLED_S: Final = 20.0
"""Seconds that a wake-up may take: an endpoint has ten seconds to answer."""
LOOK_S: Final = 0.1
WAKEABLE: Final = (LeaseState.WAITING, LeaseState.DUE, LeaseState.NOTIFIED)


@dataclass(frozen=True, slots=True)
class ClientDesk:
    """Writes orders and waits for their outcomes."""

    writer: TableWriter
    tables: OpsTables
    clock: Clock

    async def end_client(self, client_id: str, *, by: str, reason: str) -> None:
        """Ends an open stream. Raises Problem or Unavailable."""
        if self.tables.clients.find(client_id) is None:
            detail = f"no client {client_id!r} reads now; it may have left"
            raise Problem(404, "no_such_client", detail)
        await self._say(
            client_id,
            Ending(at=self.clock.now_ms(), by=by, reason=reason),
            is_there=lambda: self.tables.clients.find(client_id) is not None,
        )

    async def end_lease(self, lease_id: str, *, by: str) -> None:
        """Ends a lease. Raises Problem or Unavailable."""
        if lease_id not in self.tables.leases:
            raise Problem(
                404, "no_such_lease", f"unknown lease {lease_id!r}; GET /v1/leases lists them"
            )
        await self._say(
            lease_id,
            Ending(at=self.clock.now_ms(), by=by),
            is_there=lambda: lease_id in self.tables.leases,
        )

    async def wake_lease(self, lease_id: str, *, by: str) -> tuple[Lease, bool]:
        """Wakes a sleeping client now.

        Returns its lease after its endpoint was called, and whether the endpoint accepted the call.
        Raises Problem or Unavailable.
        """
        before = self.tables.leases.get(lease_id)
        if before is None:
            raise Problem(
                404, "no_such_lease", f"unknown lease {lease_id!r}; GET /v1/leases lists them"
            )
        if before.state not in WAKEABLE:
            detail = f"it is {before.state}: expected a client that sleeps, and an endpoint in use"
            raise Problem(409, "not_asleep", detail)
        key = WAKE + lease_id
        await self.writer.write(topics.ENDINGS, key, Ending(at=self.clock.now_ms(), by=by))
        deadline_s = self.clock.monotonic_s() + CALLED_S
        while True:
            now = self.tables.leases.get(lease_id)
            if now is None:
                raise Problem(404, "no_such_lease", f"the lease {lease_id!r} has just ended")
            if (now.wakes, now.failures) != (before.wakes, before.failures):
                break
            if self.clock.monotonic_s() > deadline_s:
                detail = (
                    f"its endpoint was not called within {CALLED_S:g} s; is a push proxy there?"
                )
                raise Problem(503, "not_called_yet", detail)
            await self.clock.sleep(LOOK_S)
        await self.writer.write(topics.ENDINGS, key, None)
        return now, now.wakes > before.wakes

    async def test_delivery(self, delivery_id: str, *, by: str) -> Delivery:
        """Has an endpoint called once without an event and returns the delivery after it.

        Raises Problem or Unavailable.
        """
        before = self._delivery(delivery_id)
        key = TEST + delivery_id
        await self.writer.write(topics.ENDINGS, key, Ending(at=self.clock.now_ms(), by=by))
        deadline_s = self.clock.monotonic_s() + CALLED_S
        while self._delivery(delivery_id).tested_at == before.tested_at:
            if self.clock.monotonic_s() > deadline_s:
                detail = (
                    f"its endpoint was not called within {CALLED_S:g} s; is a push proxy there?"
                )
                raise Problem(503, "not_called_yet", detail)
            await self.clock.sleep(LOOK_S)
        await self.writer.write(topics.ENDINGS, key, None)
        return self._delivery(delivery_id)

    async def end_delivery(self, delivery_id: str, *, by: str) -> None:
        """Ends a delivery, whoever owns it. Raises Problem or Unavailable."""
        key = self._delivery(delivery_id).key
        deliveries = self.tables.shared.deliveries
        await self._say(
            key,
            Ending(at=self.clock.now_ms(), by=by),
            is_there=lambda: delivery_id in deliveries,
        )

    async def end_group(self, group_id: str, *, by: str) -> None:
        """Ends a group, whoever owns it. Raises Problem or Unavailable."""
        groups = self.tables.shared.groups
        found = groups.get(group_id)
        if found is None:
            raise Problem(
                404, "no_such_group", f"unknown group {group_id!r}; GET /v1/shares lists them"
            )
        await self._say(
            found.key, Ending(at=self.clock.now_ms(), by=by), is_there=lambda: group_id in groups
        )

    def _delivery(self, delivery_id: str) -> Delivery:
        found = self.tables.shared.deliveries.get(delivery_id)
        if found is None:
            detail = f"unknown delivery {delivery_id!r}; GET /v1/deliveries lists them"
            raise Problem(404, "no_such_delivery", detail)
        return found

    async def _say(self, key: str, word: Ending, *, is_there: Callable[[], bool]) -> None:
        await self.writer.write(topics.ENDINGS, key, word)
        deadline_s = self.clock.monotonic_s() + HEARD_S
        while is_there():
            if self.clock.monotonic_s() > deadline_s:
                detail = f"it did not end within {HEARD_S:g} s; is its server there? Ask again"
                raise Problem(503, "not_heard_yet", detail)
            await self.clock.sleep(LOOK_S)
        await self.writer.write(topics.ENDINGS, key, None)

    async def clean_up(self) -> None:
        """Removes expired orders that no server acted on. Raises Unavailable."""
        now = self.clock.now_ms()
        for key, word in list(self.tables.clients.endings.items()):
            if not word.holds(now):
                await self.writer.write(topics.ENDINGS, key, None)
