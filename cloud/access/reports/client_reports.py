"""Publishes who reads here, and ends the clients that an operator ends.

See `edgewake.protocol.ops.open_client`.

A report goes out every REPORT_EVERY_S and at once when a client was ended. Kafka's absence delays
no stream: nothing is queued, and the next report says all.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
import secrets
from typing import Final

from confluent_kafka import KafkaException, Producer
from pydantic import ValidationError

from edgewake.cloud.access.open_streams import Entry, Member, OpenStreams, Seen
from edgewake.cloud.access.reports.connecting import connected
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock, sleep_or
from edgewake.protocol.ops.open_client import (
    CLIENTS_TOLD_MAX,
    FILTER_CHARS_MAX,
    REPORT_EVERY_S,
    Ending,
    OpenClient,
    ServerClients,
)

log = logging.getLogger("edgewake.access")

TURN: Final = 100
"""Streams that are looked at before others have a turn."""
NAME_CHARS_MAX: Final = 100
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._-]")


class ClientReports:
    """The reports of one server. `run` must run; `hear` may be called from any thread."""

    def __init__(self, config: KafkaConfig, name: str, streams: OpenStreams, clock: Clock) -> None:
        self._config = config
        self._name = name
        self._streams = streams
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._prefix = f"{_FOREIGN.sub('_', name[:NAME_CHARS_MAX])}-{secrets.token_hex(3)}-"
        """Part of its clients' ids, since a server that starts again has other clients."""
        self._is_due = asyncio.Event()

    def hear(self, client: str, word: bytes) -> None:
        """A row of `ew.endings`."""
        if client.startswith(self._prefix) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, client, word)

    def _end(self, client: str, word: bytes) -> None:
        try:
            said = Ending.model_validate_json(word)
        except ValidationError as error:
            log.warning("%s: a word that cannot be read: %s", topics.ENDINGS, error)
            return
        if not said.holds(self._clock.now_ms()):
            return
        for member, entry in list(self._streams.members.items()):
            if self._id(entry) == client:
                facts = {"event": "access.ended_by_operator", "client": client, "by": said.by}
                log.info("%s is ended by %s", client, said.by, extra=facts)
                member.expel(said.reason)
        self._is_due.set()

    async def run(self) -> None:
        """Report until cancelled."""
        producer = await connected(
            self._config,
            f"{self._name}-clients",
            lambda: topic_admin.ensure_topics(self._config, [topics.CLIENTS]),
            self._clock,
            lambda error: log.debug("clients: %s", error),
        )
        try:
            while True:
                await self._turn(producer)
        finally:
            producer.poll(0)

    async def _turn(self, producer: Producer) -> None:
        """One report, and the wait for the next."""
        self._is_due.clear()  # before: who is ended while it is made may be in it still
        self._send(producer, await self._report())
        await sleep_or(self._clock, REPORT_EVERY_S, self._is_due)
        await self._clock.sleep(0)  # who was ended leaves first

    async def _report(self) -> ServerClients:
        found: list[tuple[Member, Entry, Seen]] = []
        total = 0
        for number, (member, entry) in enumerate(list(self._streams.members.items()), 1):
            if number % TURN == 0:
                await self._clock.sleep(0)
            seen = member.seen() if member in self._streams.members else None
            if seen is not None:
                found.append((member, entry, seen))
                total += 1
        told = heapq.nlargest(
            CLIENTS_TOLD_MAX, found, key=lambda one: (one[2].behind.records, one[1].number)
        )
        return ServerClients(
            server=self._name,
            at=self._clock.now_ms(),
            total=total,
            clients=tuple(self._told(*one) for one in told),
        )

    def _told(self, member: Member, entry: Entry, seen: Seen) -> OpenClient:
        subscription = None if member.sight is None else member.sight.subscription
        return OpenClient(
            id=self._id(entry),
            protocol=seen.protocol,
            principal=member.reader.name,
            proof=member.reader.proof.kind,
            address=member.client,
            streams=() if subscription is None else tuple(subscription.streams),
            where="" if subscription is None else _cut(subscription.where),
            select="" if subscription is None else _cut(subscription.select),
            opened_at=entry.opened_at,
            state=seen.state,
            behind_records=seen.behind.records,
            behind_s=round(seen.behind.seconds, 3),
            unsent_bytes=seen.unsent_bytes,
            sent_bytes=seen.sent_bytes,
            slow=seen.slow,
            policy=seen.policy,
        )

    def _id(self, entry: Entry) -> str:
        return f"{self._prefix}{entry.number}"

    def _send(self, producer: Producer, report: ServerClients) -> None:
        try:
            producer.poll(0)
            if len(producer) == 0:  # else Kafka is away: the next report says all
                producer.produce(
                    topics.CLIENTS, key=self._name, value=report.model_dump_json().encode()
                )
                producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.debug("clients: %s", error)


def _cut(text: str | None) -> str:
    found = text or ""
    return found if len(found) <= FILTER_CHARS_MAX else f"{found[: FILTER_CHARS_MAX - 1]}…"
