"""Gives a session back to a bridge that returns while another one, its heir, empties it.

A broker sends what was not acknowledged again to whoever connects. Were the owner to take its
session from its heir, then what the heir has given to Kafka, but not yet acknowledged, would come
to the owner once more, and count twice where it has no number. So both say in the register of
sessions what they are about to do, before they connect:

    owner   writes its row, reads up to it, and waits while there is an heir
    heir    says that it is one, reads up to that, and waits a moment for an owner that read before;
            once the owner's row changes it takes nothing more, acknowledges what it has, and leaves

The rows stand in one partition, so one of the two reads what the other has written. An heir that
does not repeat its row is dead, and an owner that Kafka does not answer connects nevertheless: what
was in flight then may come twice, as after the death of a bridge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from edgewake.cloud.bridge.admission.records import KafkaRecord
from edgewake.cloud.bridge.admission.register import Register, Standing
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.bridge.handover")

LOOK_S: Final = 0.02
"""Seconds between two looks at the register."""
ASK_S: Final = 2.0
"""Seconds between two rows of an owner that waits for its heir."""
TOLD_S: Final = 10.0
"""Seconds that an owner waits for Kafka to have its row; without Kafka it could keep nothing that
the broker sends it."""
CLAIM_S: Final = 5.0
"""Seconds that an heir waits for Kafka to have its row; then it gives up."""
GRACE_S: Final = 0.5
"""Seconds for an owner that had seen no heir to connect, and to be heard."""


class Handover:
    """Both sides of one bridge."""

    def __init__(
        self, register: Register, write: Callable[[KafkaRecord], None], clock: Clock
    ) -> None:
        self._register = register
        self._write_record = write
        self._clock = clock
        self._connects = 0

    def _write(self, key: str, value: bytes | None) -> None:
        self._write_record(KafkaRecord(topics.BRIDGES, key, value, [], self._clock.now_ms()))

    # As the owner of our session

    def register_again(self) -> None:
        """Our row is gone: we were taken for dead. Write it again."""
        self._write(*self._register.row())

    async def our_turn(self) -> None:
        """Wait until nobody else empties our session; called before each connection.

        The row that a process wrote when it started serves for its first connection.
        """
        if self._connects:
            self._register.ask()
        self._connects += 1
        is_said = False
        while await self._is_told() and (heir := await self._living_heir()) is not None:
            if not is_said:
                log.info(
                    "bridge %s empties our session: waiting until it gives it back",
                    heir,
                    extra={"event": "bridge.waits_for_session", "heir": heir},
                )
            is_said = True
            await self._until(lambda: self._register.our_heir is None, ASK_S)
            # Silence of an heir counts only where Kafka, too, has answered since.
            self._register.ask()
        if self._register.has_dead_heir:
            self.release(self._register.own)

    async def _living_heir(self) -> str | None:
        """Who empties our session; of one that was silent, after a moment in which it may speak.

        Where Kafka stood still for all, what the heir wrote meanwhile comes when it goes on.
        """
        if self._register.has_dead_heir:
            await self._until(lambda: self._register.our_heir is not None, ASK_S)
        return self._register.our_heir

    async def _is_told(self) -> bool:
        """Write our row, where the topic has another one; has it been read?"""
        if not self._register.is_told:
            self._write(*self._register.row())
            await self._until(lambda: self._register.is_told, TOLD_S)
        return self._register.is_told

    # As the heir of another one's

    async def claim(self, session: str) -> Standing | None:
        """Say that we empty a session; the row of its owner, as it was before.

        Raises TimeoutError where Kafka does not take it, or another bridge empties it.
        """
        if (other := self._register.heir(session)) and not self._register.is_ours(session):
            raise TimeoutError(f"bridge {other} empties it")
        self.repeat_claim(session)
        await self._until(lambda: self._register.is_ours(session), CLAIM_S)
        if not self._register.is_ours(session):
            raise TimeoutError("Kafka does not take that we empty it")
        standing = self._register.standing(session)
        await self._clock.sleep(GRACE_S)
        return standing

    def repeat_claim(self, session: str) -> None:
        """We still empty it."""
        self._write(*self._register.heir_row(session))

    def release(self, session: str) -> None:
        """We do not empty it any more."""
        self._write(self._register.heir_key(session), None)

    def is_wanted_back(self, session: str, standing: Standing | None) -> bool:
        """Has its owner written its row since?"""
        return self._register.standing(session) != standing

    def ended(self, session: str) -> None:
        """It is empty, and the broker keeps it no more."""
        self._write(self._register.key(session), None)

    async def _until(self, is_so: Callable[[], bool], patience_s: float) -> None:
        deadline_s = self._clock.monotonic_s() + patience_s
        while not is_so() and self._clock.monotonic_s() < deadline_s:
            await self._clock.sleep(LOOK_S)
