from __future__ import annotations

import asyncio
from collections.abc import Callable

from edgewake.cloud.push.waking.call_slots import CallSlots
from tests.services import PATIENCE_S


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


async def _hold(slots: CallSlots, host: str, begun: list[str], end: asyncio.Event) -> None:
    async with slots.of(host):
        begun.append(host)
        await end.wait()


async def test_a_host_that_hangs_has_its_own_slots_and_no_other_hosts() -> None:
    slots, begun, end = CallSlots(calls_max=10, per_host_max=2), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for host in [*["hangs"] * 50, "healthy"]:
            tasks.create_task(_hold(slots, host, begun, end))
        await until(lambda: "healthy" in begun)
        assert begun == ["hangs", "hangs", "healthy"]
        end.set()
    assert (len(begun), len(slots)) == (51, 0)


async def test_no_more_calls_than_there_may_be_in_all_and_one_that_is_cut_off_leaves_its_slot() -> (
    None
):
    slots, begun, end = CallSlots(calls_max=2, per_host_max=2), list[str](), asyncio.Event()
    calls = [asyncio.create_task(_hold(slots, host, begun, end)) for host in ("a", "b", "c", "d")]
    await until(lambda: len(begun) == 2)
    calls[0].cancel()  # it has a slot
    calls[2].cancel()  # it waits for one
    await until(lambda: begun == ["a", "b", "d"])
    end.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert len(slots) == 0
