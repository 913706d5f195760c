"""Ends leases that an operator ends, wakes clients that one wakes, and tests endpoints.

Their words stand on `ew.endings` (`edgewake.protocol.ops.open_client`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from pydantic import ValidationError

from edgewake.cloud.push.deliveries.deliveries import Deliveries
from edgewake.cloud.push.proxy import Elsewhere, Proxy, Standby
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.open_client import TEST, WAKE, Ending

log = logging.getLogger("edgewake.push")


class Expulsions:
    """`run` must run; `hear` may be called from any thread."""

    def __init__(self, proxy: Proxy, deliveries: Deliveries, clock: Clock) -> None:
        self._proxy = proxy
        self._deliveries = deliveries
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

    async def _end(self, lease_id: str, word: bytes) -> None:
        try:
            said = Ending.model_validate_json(word)
            if lease_id.startswith(WAKE):
                self._wake(lease_id.removeprefix(WAKE), said)
            elif lease_id.startswith(TEST):
                self._test(lease_id.removeprefix(TEST), said)
            elif said.holds(self._clock.now_ms()) and await self._proxy.expel(lease_id):
                facts = {"event": "push.ended_by_operator", "lease": lease_id, "by": said.by}
                log.info("lease %s is ended by %s", lease_id, said.by, extra=facts)
        except ValidationError as error:
            log.warning("%s: a word that cannot be read: %s", topics.ENDINGS, error)
        except (Unavailable, Standby, Elsewhere) as error:  # who ended it is told, and asks again
            facts = {"event": "push.not_ended", "lease": lease_id}
            log.warning("lease %s is not ended: %s", lease_id, error, extra=facts)

    def _wake(self, lease_id: str, said: Ending) -> None:
        if said.holds(self._clock.now_ms()) and self._proxy.wake_now(lease_id):
            facts = {"event": "push.woken_by_operator", "lease": lease_id, "by": said.by}
            log.info("lease %s is woken for %s", lease_id, said.by, extra=facts)

    def _test(self, delivery_id: str, said: Ending) -> None:
        if said.holds(self._clock.now_ms()) and self._deliveries.test_soon(delivery_id):
            facts = {"event": "delivery.tested_by_operator", "delivery": delivery_id, "by": said.by}
            log.info("delivery %s is tested for %s", delivery_id, said.by, extra=facts)
