"""When an owner may take its session: by a topic that stands still for a while, and an heir."""

from __future__ import annotations

import asyncio

from edgewake.cloud.bridge.admission.records import KafkaRecord
from edgewake.cloud.bridge.admission.register import HEIR_S, Register
from edgewake.cloud.bridge.mqtt.handover import ASK_S, LOOK_S, TOLD_S, Handover

LATER_S = 0.5
BACKOFF_S = 7.0
"""How long the owner waits before it tries to connect again."""


class Topic:
    """The owner's sight of `ew.bridges`, in a time that passes only while it sleeps."""

    def __init__(self, *, still: tuple[float, float], heir_until_s: float) -> None:
        """The topic stands `still` from one second to another, and what the heir wrote meanwhile
        comes LATER_S after what the owner did. The heir repeats its row each second until
        `heir_until_s`.
        """
        self.now_s = 0.0
        self._still = still
        self._heir_until_s = heir_until_s
        self.owner = Register(site="s", own="a", instance="1", monotonic_s=lambda: self.now_s)
        self._heir = Register(site="s", own="b", instance="1", monotonic_s=lambda: self.now_s)
        self._owners: list[tuple[str, bytes | None]] = []
        self._heirs: list[tuple[str, bytes | None]] = []
        self._beats = 0

    def write(self, record: KafkaRecord) -> None:
        self._owners.append((record.key, record.value))
        self._pass_on()

    def _pass_on(self) -> None:
        begin, end = self._still
        for rows, later_s in ((self._owners, 0.0), (self._heirs, LATER_S)):
            if begin <= self.now_s < end + later_s:
                continue
            for key, value in rows:
                self.owner.follow(key, value)
            rows.clear()

    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self._beats:
            self._beats += 1
            if self.now_s < self._heir_until_s:
                self._heirs.append(self._heir.heir_row("a"))
        self._pass_on()
        await asyncio.sleep(0)

    def give_back(self) -> None:
        self._heirs.append((self._heir.heir_key("a"), None))

    async def our_turn_s(self) -> float:
        """When the owner connects for the second time."""
        handover = Handover(self.owner, self.write, self)
        self.write(KafkaRecord("", *self.owner.row(), [], 0))
        await handover.our_turn()
        self.owner.follow(*self._heir.heir_row("a"))
        while self.now_s < BACKOFF_S:
            await self.sleep(LOOK_S)
        await handover.our_turn()
        return self.now_s


async def test_an_heir_that_is_not_heard_because_kafka_stands_still_is_waited_for() -> None:
    still_until_s = BACKOFF_S + 1
    topic = Topic(still=(1.0, still_until_s), heir_until_s=20.0)
    turn_s = asyncio.create_task(topic.our_turn_s())
    while topic.now_s < still_until_s + 2:
        await asyncio.sleep(0)
        assert not turn_s.done(), f"it connected at {topic.now_s:.1f} s, beside its heir"
    topic.give_back()
    assert await turn_s < still_until_s + 2 + ASK_S


async def test_an_heir_that_died_is_not_waited_for_longer() -> None:
    topic = Topic(still=(0.0, 0.0), heir_until_s=0.0)
    assert await topic.our_turn_s() < BACKOFF_S + HEIR_S + 2 * ASK_S


async def test_without_kafka_an_owner_connects_at_last() -> None:
    topic = Topic(still=(1.0, 1e9), heir_until_s=1e9)
    assert await topic.our_turn_s() < BACKOFF_S + HEIR_S + TOLD_S + 2 * ASK_S
