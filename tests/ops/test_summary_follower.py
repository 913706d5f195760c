"""The follower on a real Kafka: roll-ups on their topic, and a store that is lost is made anew from
the topics.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.summaries import gather
from edgewake.cloud.summaries.follower import ROLL_UP_EVERY_S, Follower
from edgewake.cloud.summaries.rollup import QUIET_MS
from edgewake.cloud.summaries.store import Reads
from edgewake.cloud.summaries.summary import HOUR_MS, Series, Step, Summary
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.sketches.sketch import SketchKind
from tests.ops.conftest import Writer
from tests.ops.routes.test_summaries import HOUR, minutes
from tests.services import wait_until

NEXT_DAY = HOUR + 30 * HOUR_MS


@asynccontextmanager
async def following(config: KafkaConfig, path: Path, clock: FakeClock) -> AsyncIterator[None]:
    follower = Follower(config, path, clock, random.Random(1))
    task = asyncio.create_task(follower.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def eventually(holds: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, holds, what)


def kept(path: Path, series: Series, step: Step) -> list[Summary]:
    """Rows of a step in the store, without their sketches; none while it is not there."""
    try:
        return Reads(path).with_view(
            lambda view: [
                row.summary for row in view.rows(series, step, HOUR - 24 * HOUR_MS, NEXT_DAY, ())
            ]
        )
    except Unavailable:
        return []


async def test_an_hour_and_a_day_are_rolled_up_for_all_and_survive_the_loss_of_the_store(
    kafka_config: KafkaConfig, writer: Writer, unique: Callable[[str], str], tmp_path: Path
) -> None:
    series, clock = Series(unique("s"), "price"), FakeClock(NEXT_DAY)
    first, second = tmp_path / "a" / "summaries.db", tmp_path / "b" / "summaries.db"
    async with following(kafka_config, first, clock):
        await eventually(first.exists, "the store is there")
        minutes(writer, series.stream)
        await eventually(
            lambda: len(kept(first, series, Step.MINUTE)) == 60, "all minutes are read"
        )
        assert kept(first, series, Step.HOUR) == [], "it is not quiet yet"
        clock.advance(QUIET_MS / 1000 + ROLL_UP_EVERY_S)
        await eventually(
            lambda: [one.readings for one in kept(first, series, Step.DAY)] == [180],
            "the day is rolled up",
        )
        await eventually(
            lambda: [one.readings for one in kept(first, series, Step.HOUR)] == [180],
            "and the hour",
        )

    async with following(kafka_config, second, FakeClock(NEXT_DAY)):
        await eventually(
            lambda: [one.readings for one in kept(second, series, Step.DAY)] == [180],
            "the day came from its topic",
        )
        await eventually(
            lambda: len(kept(second, series, Step.MINUTE)) == 60, "and the minutes from theirs"
        )
        whole = Reads(second).with_view(
            lambda view: gather.over(view, series, HOUR, NEXT_DAY, (SketchKind.KLL,))
        )
        assert (whole.readings, whole.sketch(SketchKind.KLL).n) == (180, 180)
