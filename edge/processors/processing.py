"""Chains at work: read what the log received, let it pass the processors, commit what came of it.

Each chain is a consumer of the log. Its cursor, its state and the readings that it made become
durable in one transaction, so after a kill at any moment it goes on as if there had been none: no
reading is processed twice or left out, and none that it made is there twice. It is given readings
while they are being written; what it makes of them is written after them. What the log could not
give it (it was too far behind, or they were lost before) is counted.

Of things behind this device (docs/gateways.md) each has a state of its own, and what is made of its
readings is its own too: `edgewake.edge.things.chain_states`.

A chain that was removed from the configuration is forgotten: the log keeps nothing for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Final

from edgewake.edge.intake.intake import LossReason
from edgewake.edge.log.consumer import STATE_BYTES_MAX, Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import CHAINS as PREFIX
from edgewake.edge.log.forgetting import forget_others
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed
from edgewake.edge.processors.config import ChainConfig
from edgewake.edge.things.streams import made_of, streams_of
from edgewake.protocol.downlink.downlink import REQUESTS
from edgewake.protocol.errors import Rejected
from edgewake.protocol.topics import stream_and_thing

if TYPE_CHECKING:
    from edgewake.edge.processors.chain import Chain
    from edgewake.edge.things.chain_states import ThingStates

log = logging.getLogger("edgewake.processing")

READ_READINGS: Final = 500
"""Readings that a chain takes at once: some milliseconds for which the agent's loop does nothing
else."""


class OneState:
    """What a chain remembers where all readings are this device's; one task's."""

    def __init__(self, chain: Chain, kept: bytes | None, bytes_max: int) -> None:
        """Go on from what `encode` gave; with that of another configuration, begin."""
        self._chain = chain
        self._bytes_max = bytes_max
        self._state = chain.resume(kept)
        self.is_resumed = self._state != chain.begin()
        """Was there a state of this chain?"""

    def apply(self, _thing: str, readings: Sequence[Reading]) -> Sequence[Reading]:
        """What is made of readings."""
        applied = self._chain.apply(self._state, readings)
        self._state = applied.state
        return applied.readings

    def encode(self) -> bytes:
        """The state to commit, of at most the bound."""
        self._state, body = self._chain.kept(self._state, self._bytes_max)
        return body

    def counts(self) -> dict[str, Any]:
        """For the status: exact, as they are part of the state."""
        return self._chain.counts(self._state)


class ChainTask:
    """One chain and its consumer."""

    def __init__(self, chain: Chain, events: EventLog, *, of_things: bool = False) -> None:
        """`of_things`: each thing behind this device has a stream of its own."""
        self._chain = chain
        self._events = events
        self._of_things = of_things
        self._states = self._begun(None)
        self._missed = 0
        self._consumer: Consumer | None = None

    async def open(self) -> Consumer:
        """Register the chain: from now on the log keeps what it has not read.

        Raises LogClosedError, sqlite3.Error.
        """
        self._consumer = await self._events.consumer(
            name_of(self._chain.into), streams_of(self._chain.stream, of_things=self._of_things)
        )
        return self._consumer

    async def run(self) -> None:
        """Until cancelled or until the log is closed. Raises LogClosedError, sqlite3.Error."""
        consumer = self._consumer or await self.open()
        while True:
            try:
                await self._process(consumer)
            except LogRenewedError:
                log.warning(
                    "chain %s: the event log was damaged: it goes on with the state that could be "
                    "saved", self._chain.into,
                    extra={"event": "chain.log_renewed", "chain": self._chain.into},
                )  # fmt: skip

    async def _process(self, consumer: Consumer) -> None:
        self._states = self._resumed(consumer.state)
        while True:
            chunk = await consumer.read(READ_READINGS)
            made: dict[str, list[Reading]] = {}
            for item in chunk.items:
                if isinstance(item, Missed):
                    self._miss(item)
                    continue
                _, thing = stream_and_thing(item.stream)
                if readings := self._sound(self._states.apply(thing, item.readings)):
                    made.setdefault(made_of(item.stream, self._chain.into), []).extend(readings)
            body = self._states.encode()
            await consumer.commit(chunk.cursor, state=body, derived=made or None, wait=False)
            await asyncio.sleep(0)  # all of the above may have found everything at hand

    def _sound(self, made: Sequence[Reading]) -> Sequence[Reading]:
        """Leave out readings that the stream does not accept, and log them.

        The stream would refuse the others along with them.
        """
        if self._chain.into != REQUESTS:
            return made
        from edgewake.protocol.downlink.request import (
            check_request,  # a device pays for it when it asks
        )

        sound: list[Reading] = []
        for reading in made:
            try:
                check_request(reading[1])
            except Rejected as error:
                log.error(
                    "chain %s: %s",
                    self._chain.into,
                    error.detail,
                    extra={"event": "chain.refused", "chain": self._chain.into},
                )
                self._events.stream(REQUESTS).lose(1, LossReason.REFUSED)
            else:
                sound.append(reading)
        return sound

    def _begun(self, kept: bytes | None) -> OneState | ThingStates:
        if not self._of_things:
            return OneState(self._chain, kept, STATE_BYTES_MAX)
        # A device pays for it where it has things.
        from edgewake.edge.things.chain_states import ThingStates

        return ThingStates(self._chain, kept, STATE_BYTES_MAX)

    def _resumed(self, kept: bytes | None) -> OneState | ThingStates:
        states = self._begun(kept)
        if kept is not None and not states.is_resumed:
            log.warning(
                "chain %s: its configuration changed, it starts again", self._chain.into,
                extra={"event": "chain.begun_anew", "chain": self._chain.into},
            )  # fmt: skip
        return states

    def _miss(self, item: Missed) -> None:
        self._missed += item.count
        log.warning(
            "chain %s: %d readings of %s are missing in its input: %s", self._chain.into,
            item.count, item.stream, item.reason,
            extra={"event": "chain.missed", "chain": self._chain.into, "count": item.count,
                "reason": item.reason},
        )  # fmt: skip

    def counts(self) -> dict[str, Any]:
        """For the status; `missed` since the start, the rest since the chain began."""
        return {**self._states.counts(), "missed": self._missed}


class Processing:
    """All chains of an agent."""

    def __init__(
        self,
        configs: Sequence[ChainConfig],
        events: EventLog,
        of_things: Container[str] = frozenset(),
    ) -> None:
        """`of_things`: streams of which each thing behind this device has one of its own."""
        self._events = events
        self.chains = {
            config.into: ChainTask(_built(config), events, of_things=config.stream in of_things)
            for config in configs
        }

    async def forget_others(self) -> None:
        """Forget the state of chains that were removed from the configuration.

        Raises LogClosedError, sqlite3.Error.
        """
        await forget_others(self._events, PREFIX, [name_of(into) for into in self.chains])

    async def open(self) -> None:
        """Register all chains, before the first reading comes. Raises as `forget_others`.

        A local reading is kept only for consumers that are known when it comes.
        """
        for chain in self.chains.values():
            await chain.open()

    def counts(self) -> dict[str, Any]:
        """For the status, by the stream that a chain makes."""
        return {into: chain.counts() for into, chain in self.chains.items()}


def _built(config: ChainConfig) -> Chain:
    """The processors are imported where there is a chain: a small device pays for what it has."""
    from edgewake.edge.processors.build import build

    return build(config)


def name_of(into: str) -> str:
    """The name of a chain's consumer."""
    return PREFIX + into
