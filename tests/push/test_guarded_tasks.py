"""Tasks of partitions: what ends the process, and what does not."""

from __future__ import annotations

import asyncio

import pytest

from edgewake.cloud.push.guarded_tasks import GuardedTasks
from edgewake.cloud.push.leases.lease_writer import NotOwner


async def dies(error: Exception) -> None:
    raise error


async def test_an_error_ends_the_others_and_the_loss_of_rows_does_not() -> None:
    told: list[None] = []
    tasks = GuardedTasks(lambda: told.append(None))
    running = asyncio.create_task(tasks.run())
    other = tasks.spawn(asyncio.Event().wait(), "other")  # type: ignore[arg-type]
    await tasks.spawn(dies(NotOwner("another has them")), "lost")
    assert not tasks.failed.done()
    await tasks.spawn(dies(OSError("no room")), "dead")
    with pytest.raises(OSError, match="no room"):
        await running
    assert other.cancelled()
    assert len(told) == 1


async def test_work_that_is_cancelled_before_its_first_step_is_closed() -> None:
    """A warning of work that was never awaited would fail this test."""
    tasks = GuardedTasks()
    task = tasks.spawn(dies(OSError()), "cancelled")
    await tasks.cancel()
    assert task.cancelled()
    assert not tasks.failed.done()
