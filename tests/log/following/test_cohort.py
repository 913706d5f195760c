"""Older records that cannot be read now are still to come: nobody is told that he has all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from edgewake.cloud.log.decode import DATA
from edgewake.cloud.log.replay import BlockKey, OnAnswer, Replay
from edgewake.cloud.log.tail import RECORD_OVERHEAD_BYTES
from edgewake.protocol.errors import Unavailable
from tests.log.following.strategies import a_plan
from tests.log.following.test_fan_out import Kept, Reader, World, _settle

RECORDS = 20


class OnceAway(Kept):
    """The first question is answered with Unavailable."""

    def ask(self, key: BlockKey, on_answer: OnAnswer) -> None:
        if self.asked:
            super().ask(key, on_answer)
            return
        self.asked += 1
        asyncio.get_running_loop().call_soon(on_answer, Unavailable("away"))


async def test_who_waits_for_older_records_that_cannot_be_read_is_not_at_the_end() -> None:
    """A page said that it is live, and the latest that it is complete, without those records."""
    world = World(0.0, 4 * (RECORD_OVERHEAD_BYTES + 10))
    again: list[Callable[[], None]] = []
    world.shared = replace(
        world.shared,
        replay=cast(Replay, OnceAway(world.log)),
        call_later=lambda seconds, call: again.append(call),
    )
    for n in range(RECORDS):
        world.send("one", 0, [(DATA, {"device": "a", "n": n})])
        world.tick()
    reader = Reader(world, 0, a_plan("device = 'a'", None), from_begin=True)
    reader.read()
    async with asyncio.timeout(10):
        while not again:
            await asyncio.sleep(0)
    reader.read()
    assert reader.found == []
    assert not reader.subscriber.is_live
    assert not reader.subscriber.is_at_end
    again.pop()()
    await _settle(world, [reader])
    assert len(reader.found) == RECORDS
    assert reader.subscriber.is_live
    reader.subscriber.close()
