"""Which proxy has a lease, and how a request gets there.

A client may ask any proxy. One that does not own the lease's partition passes the request on, once,
to the one that does: Kafka's group coordinator knows each member's partitions, and a member's
client id says where it is reached (`NAME@URL`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final

import httpx
from confluent_kafka import KafkaException

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.push.leases.lease_member import GROUP
from edgewake.cloud.push.waiting_pools import WaitingPools
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

FORWARDED: Final = "edgewake-forwarded-by"
"""Header of a request that was passed on; it is not passed on again."""
KNOWN_S: Final = 1.0
"""Seconds for which an answer of the coordinator is used."""
ASK_TIMEOUT_S: Final = 4.0
FORWARD_TIMEOUT_S: Final = 20.0
_HEADERS: Final = ("authorization", "content-type", "idempotency-key", "if-none-match")
_ANSWER_HEADERS: Final = (
    "cache-control",
    "content-type",
    "location",
    "retry-after",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
    "www-authenticate",
)


class Peers:
    """The other proxies."""

    def __init__(self, config: KafkaConfig, clock: Clock, own_url: str) -> None:
        self._clock = clock
        self._own_url = own_url
        self._admin: Admin = clients.admin(config)
        self._known: dict[int, str] = {}
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._client = httpx.AsyncClient(timeout=FORWARD_TIMEOUT_S, trust_env=False)
        self._for_waits = WaitingPools()

    async def url_of(self, partition: int) -> str | None:
        """The URL of a partition's owner; None where the owner is unknown or this proxy.

        Raises Unavailable.
        """
        async with self._asking:
            if self._clock.monotonic_s() - self._asked_at > KNOWN_S:
                self._known = await self._ask()
                self._asked_at = self._clock.monotonic_s()
        url = self._known.get(partition)
        return None if url == self._own_url else url

    async def _ask(self) -> dict[int, str]:
        try:
            asked = self._admin.describe_consumer_groups([GROUP], request_timeout=ASK_TIMEOUT_S)[
                GROUP
            ]
            group = await asyncio.wrap_future(asked)
        except KafkaException as error:
            raise Unavailable(f"leases: {error.args[0].str()}") from error
        return {
            assigned.partition: member.client_id.partition("@")[2]
            for member in group.members
            if member.assignment is not None
            for assigned in member.assignment.topic_partitions
            if assigned.topic == topics.LEASES
        }

    async def forward(
        self,
        url: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        client: str = "",
        waits_s: float = 0,
    ) -> httpx.Response:
        """Pass a request of a client's on, whose answer may take `waits_s` more.

        Raises Unavailable.

        The other proxy believes us who that is where it trusts our address.
        """
        passed = {name: headers[name] for name in _HEADERS if name in headers} | {
            FORWARDED: self._own_url
        }
        # Whoever waits holds a connection, and none that a short question needs.
        one = self._for_waits.one() if waits_s > 0 else nullcontext(self._client)
        if client:
            passed["x-forwarded-for"] = client.partition("/")[0]
        try:
            with one as connections:
                return await connections.request(
                    method,
                    url + target,
                    headers=passed,
                    content=body,
                    timeout=FORWARD_TIMEOUT_S + waits_s,
                )
        except httpx.HTTPError as error:
            raise Unavailable(
                f"the proxy at {url} does not answer: {type(error).__name__}"
            ) from error

    async def close(self) -> None:
        """Close the connections to peers."""
        await self._client.aclose()
        await self._for_waits.close()


def passed_back(answer: httpx.Response) -> dict[str, str]:
    """The headers of an answer that go back to the client."""
    return {name: answer.headers[name] for name in _ANSWER_HEADERS if name in answer.headers}
