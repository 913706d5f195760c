"""Ends leases, deliveries and groups, wakes clients and tests endpoints for operators.

Their words stand on `ew.endings` (`edgewake.protocol.ops.open_client`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from pydantic import ValidationError

from edgewake.cloud.push.deliveries.deliveries import Deliveries
from edgewake.cloud.push.groups.groups import Groups
from edgewake.cloud.push.proxy import Elsewhere, Proxy, Standby
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.delivery_record import DELIVERY
from edgewake.protocol.leases.group_record import GROUP
from edgewake.protocol.ops.open_client import TEST, WAKE, Ending

log = logging.getLogger("edgewake.push")


class Expulsions:
    """`run` must run; `hear` may be called from any thread."""

    def __init__(self, proxy: Proxy, deliveries: Deliveries, groups: Groups, clock: Clock) -> None:
        self._proxy = proxy
        self._deliveries, self._groups = deliveries, groups
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._heard: deque[tuple[str, bytes]] = deque(maxlen=1000)
        """At most 1000 requests: operators are people, and a dropped one would be sent again."""
        self._news = asyncio.Event()

    def hear(self, client: str, word: bytes) -> None:
        """A row of `ew.endings`."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, client, word)

    def _put(self, client: str, word: bytes) -> None:
        self._heard.append((client, word))
        self._news.set()

    async def run(self) -> None:
        """End and wake until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._heard:
                await self._end(*self._heard.popleft())

    async def _end(self, key: str, word: bytes) -> None:
        try:
            said = Ending.model_validate_json(word)
            if key.startswith(WAKE):
                self._wake(key.removeprefix(WAKE), said)
            elif key.startswith(TEST):
                self._test(key.removeprefix(TEST), said)
            elif said.holds(self._clock.now_ms()) and await self._expel(key):
                facts = {"event": "push.ended_by_operator", "lease": key, "by": said.by}
                log.info("%s is ended by %s", key, said.by, extra=facts)
        except ValidationError as error:
            log.warning("%s: a word that cannot be read: %s", topics.ENDINGS, error)
        except (Unavailable, Standby, Elsewhere) as error:  # who ended it is told, and asks again
            facts = {"event": "push.not_ended", "lease": key}
            log.warning("%s is not ended: %s", key, error, extra=facts)

    async def _expel(self, key: str) -> bool:
        """End a lease, or what has a row of its own under this key, where it is here."""
        if key.startswith(DELIVERY):
            return await self._deliveries.expel(key.removeprefix(DELIVERY))
        if key.startswith(GROUP):
            return await self._groups.expel(key.removeprefix(GROUP))
        return await self._proxy.expel(key)

    def _wake(self, lease_id: str, said: Ending) -> None:
        if said.holds(self._clock.now_ms()) and self._proxy.wake_now(lease_id):
            facts = {"event": "push.woken_by_operator", "lease": lease_id, "by": said.by}
            log.info("lease %s is woken for %s", lease_id, said.by, extra=facts)

    def _test(self, delivery_id: str, said: Ending) -> None:
        if said.holds(self._clock.now_ms()) and self._deliveries.test_soon(delivery_id):
            facts = {"event": "delivery.tested_by_operator", "delivery": delivery_id, "by": said.by}
            log.info("delivery %s is tested for %s", delivery_id, said.by, extra=facts)
