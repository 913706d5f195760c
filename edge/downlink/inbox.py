"""The inbox: messages of the cloud, durable before their PUBACK, and done exactly once.

    publish ─ check ─ log (durable) ─ PUBACK
    read ─ begun (durable) ─ do ─ done + answer (one transaction) ─ uplink

The inbox is a stream of the event log that never leaves the device (receiver-based logging: it is
replayed to its consumer after a crash), and its consumer's state says what was begun and what is
done. `done` and the answer commit together, so an answer is neither lost nor given twice. A message
that was begun in an earlier life is given to the handler as interrupted.

The broker keeps no session for the device: the cloud sends unanswered messages again, at each birth
and now and then, and an id that is known here is confirmed and dropped. At the bound the broker
gets `quota exceeded`, and the message comes again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from edgewake.edge.downlink.kept import Kept, Now
from edgewake.edge.downlink.ledger import Ledger, Step
from edgewake.edge.log.consumer import Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog, LogBusyError, LogClosedError
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.downlink import ANSWERS, Answer
from edgewake.protocol.errors import Rejected
from edgewake.protocol.topics import of_thing

log = logging.getLogger("edgewake.downlink")

INBOX: Final = "ew_inbox"
"""The stream of the log that holds what came."""
CONSUMER: Final = "downlink"
WAITING_MAX: Final = 100
"""Messages that are not done. More are not taken; the cloud sends them again."""
WAITING_BYTES_MAX: Final = 1 << 20
"""Bytes of them, on disk and in memory."""
SUCCESS, QUOTA_EXCEEDED, BAD_PAYLOAD = 0x00, 0x97, 0x99
"""Reason codes of a PUBACK (MQTT 5, section 3.4.2.1)."""

Check: TypeAlias = Callable[[Kept, bool], Answer | None]
"""An answer where the message is not to be begun. The second argument: was it begun in an earlier
life?"""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a message."""

    answer: Answer
    derived: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    """Readings that are kept with the answer, in one transaction, by stream."""


Handler: TypeAlias = Callable[[Kept], Awaitable[Done | None]]
"""Does a message. None: this life ends now, and the next one is asked again."""


class Inbox:
    """The inbox of one device. The owner of the connection calls `take` in the event loop."""

    def __init__(self, events: EventLog, clock: Clock, *, boot: str) -> None:
        self._events = events
        self._clock = clock
        self._boot = boot
        self._stream = events.stream(INBOX)
        self._ledger = Ledger()
        self._waiting: dict[str, tuple[int, int]] = {}
        """Ticket in the log and bytes, by key."""
        self._consumer: Consumer | None = None
        self._keeping: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def open(self) -> Consumer:
        """Before the first message comes: the log keeps them for a consumer that it knows.

        Raises LogClosedError, sqlite3.Error.
        """
        self._consumer = await self._events.consumer(CONSUMER, [INBOX])
        self._ledger = _ledger(self._consumer.state)
        return self._consumer

    def now(self) -> Now:
        """The clocks."""
        return Now(max(0, self._clock.now_ms()), self._clock.monotonic_s(), self._boot)

    # in

    def take(
        self, kind: str, payload: bytes, expires_s: int | None, acknowledge: Callable[[int], None]
    ) -> None:
        """A message came.

        `acknowledge` is called with a reason code as soon as it is durable, known, or refused.
        """
        # A device pays for it when something comes.
        from edgewake.protocol.downlink.down_message import check_life, decode

        try:
            message = decode(kind, payload)
            kept = Kept(message.id, kind, payload.decode(), check_life(expires_s), self.now())
        except Rejected as error:
            self.counts["refused"] += 1
            log.warning(
                "a message of the cloud is refused: %s",
                error,
                extra={"event": "downlink.refused", "reason": error.reason.value},
            )
            acknowledge(BAD_PAYLOAD)
            return
        if kept.key in self._waiting:
            self.counts["repeated"] += 1
            self._acknowledge_when_kept(self._waiting[kept.key][0], acknowledge)
            return
        if self._ledger.step(kept.key) is not None:
            self.counts["repeated"] += 1
            acknowledge(SUCCESS)
            return
        waiting_bytes = sum(size for _, size in self._waiting.values())
        if (
            self._consumer is None
            or len(self._waiting) >= WAITING_MAX
            or waiting_bytes + len(payload) > WAITING_BYTES_MAX
        ):
            self._put_off(kept, acknowledge)
            return
        try:
            ticket = self._stream.append(kept.reading())
        except LogBusyError:
            self._put_off(kept, acknowledge)
            return
        self._waiting[kept.key] = (ticket, len(payload))
        self.counts["taken"] += 1
        self._acknowledge_when_kept(ticket, acknowledge)

    def _acknowledge_when_kept(self, ticket: int, acknowledge: Callable[[int], None]) -> None:
        keeping = asyncio.create_task(self._keep(ticket, acknowledge))
        self._keeping.add(keeping)
        keeping.add_done_callback(self._keeping.discard)

    def _put_off(self, kept: Kept, acknowledge: Callable[[int], None]) -> None:
        self.counts["put_off"] += 1
        log.warning(
            "too much of the cloud's waits here: %s comes later",
            kept.id,
            extra={"event": "downlink.put_off", "id": kept.id},
        )
        acknowledge(QUOTA_EXCEEDED)

    async def _keep(self, ticket: int, acknowledge: Callable[[int], None]) -> None:
        try:
            await self._stream.accepted(ticket)
        except LogClosedError:
            return  # not confirmed, so it comes again
        acknowledge(SUCCESS)

    # out

    async def run(self, check: Check, handle: Handler) -> None:
        """Do what is here, in its order, until cancelled.

        Raises LogClosedError, sqlite3.Error, and what the handler raises.
        """
        consumer = self._consumer or await self.open()
        while True:
            self._ledger = _ledger(consumer.state).joined(self._ledger)
            try:
                while True:
                    await self._work_off(consumer, check, handle)
            except LogRenewedError:
                log.warning(
                    "the event log was damaged: the inbox goes on with what was saved",
                    extra={"event": "downlink.log_renewed"},
                )

    async def _work_off(self, consumer: Consumer, check: Check, handle: Handler) -> None:
        chunk = await consumer.read()
        for item in chunk.items:
            if isinstance(item, Missed):
                self.counts["lost"] += item.count
                # who is lost is not said: what comes again is taken again, and what is done is
                # known
                self._waiting.clear()
                log.error(
                    "%d messages of the cloud are lost: %s",
                    item.count,
                    item.reason,
                    extra={"event": "downlink.lost"},
                )
                continue
            for reading in item.readings:
                try:
                    kept = Kept.from_reading(reading)
                except (KeyError, TypeError, ValueError) as error:
                    self.counts["lost"] += 1
                    log.error(
                        "a kept message cannot be read: %s", error, extra={"event": "downlink.lost"}
                    )
                    continue
                await self._once(consumer, kept, check, handle)
        await consumer.commit(chunk.cursor, state=self._ledger.encode())

    async def _once(self, consumer: Consumer, kept: Kept, check: Check, handle: Handler) -> None:
        step = self._ledger.step(kept.key)
        if step is Step.DONE:
            self._waiting.pop(kept.key, None)
            return
        was_begun = step is Step.BEGUN
        refusal = check(kept, was_begun)
        if refusal is None and not was_begun:
            self._ledger.begin(kept.key)
            await consumer.commit({}, state=self._ledger.encode())
        done = await handle(kept) if refusal is None else Done(refusal)
        if done is None:
            # Nothing behind it is touched: the next life begins with it.
            await asyncio.Event().wait()
            return
        answer = done.answer
        self._ledger.end(kept.key)
        stream = of_thing(ANSWERS, kept.thing) if kept.thing else ANSWERS
        answers = {stream: [(self.now().wall_ms, dict(answer.fields()))]}
        await consumer.commit({}, state=self._ledger.encode(), derived={**done.derived, **answers})
        self._waiting.pop(kept.key, None)
        self.counts[answer.state.value] += 1
        log.info(
            "%s %s: %s",
            kept.kind,
            kept.id,
            answer.state,
            extra={"event": "downlink.answered", "id": kept.id, "state": answer.state},
        )


def _ledger(state: bytes | None) -> Ledger:
    try:
        return Ledger.decode(state)
    except (ValueError, AttributeError):
        log.error(
            "what was done of the cloud's messages cannot be read",
            extra={"event": "downlink.no_ledger"},
        )
        return Ledger()
