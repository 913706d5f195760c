from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.lookups.asked_by import ASKED_BY
from edgewake.cloud.ops.lookups.kafka_lookup import (
    AT_ONCE_MAX,
    HOLDER_SHARE,
    WAITING_MAX,
    KafkaLookup,
)
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from tests.ops.conftest import Writer
from tests.services import PATIENCE_S, free_ports


async def test_a_slow_lookup_keeps_no_other_waiting(
    writer: Writer, kafka_config: KafkaConfig
) -> None:
    lookup, end = KafkaLookup(kafka_config, SystemClock(), timeout_s=PATIENCE_S), threading.Event()
    slow = [
        asyncio.ensure_future(lookup.run(lambda _: end.wait(2 * PATIENCE_S)))
        for _ in range(AT_ONCE_MAX - 1)
    ]
    try:
        async with asyncio.timeout(60):
            assert (await lookup.run(lambda session: session.range(topics.DEAD, 0)))[0] == 0
        assert not any(one.done() for one in slow), "the others were not slow"
    finally:
        end.set()
        await asyncio.gather(*slow)
        await lookup.close()


@pytest.mark.parametrize("asker", ["greedy", "other"])
async def test_one_key_s_lookups_keep_no_other_key_s_waiting(
    kafka_config: KafkaConfig, asker: str
) -> None:
    """Control: the greedy one's own next lookup waits for those before it."""
    lookup, end = KafkaLookup(kafka_config, SystemClock(), timeout_s=PATIENCE_S), threading.Event()

    def ask(holder: str, work: Callable[[object], bool]) -> asyncio.Task[bool]:
        context = contextvars.copy_context()
        context.run(ASKED_BY.set, holder)
        return asyncio.create_task(lookup.run(work), context=context)

    slow = [ask("greedy", lambda _: end.wait(2 * PATIENCE_S)) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    try:
        refused = [one for one in slow if one.done() and one.exception() is not None]
        own_max = int(WAITING_MAX * HOLDER_SHARE)
        assert len(refused) == WAITING_MAX - own_max
        assert all("you hold 15 lookups" in str(one.exception()) for one in refused)
        slow[-1] = ask(asker, lambda _: True)
        if asker == "greedy":
            with pytest.raises(Unavailable):
                await slow[-1]
        else:
            async with asyncio.timeout(PATIENCE_S):
                assert await slow[-1]
        assert not slow[0].done(), "those before were slow"
    finally:
        end.set()
        await asyncio.gather(*slow, return_exceptions=True)
        await lookup.close()


async def test_lookups_under_way_are_bounded_also_when_their_callers_leave(
    kafka_config: KafkaConfig,
) -> None:
    lookup, end = KafkaLookup(kafka_config, SystemClock(), timeout_s=PATIENCE_S), threading.Event()
    left = [
        asyncio.ensure_future(lookup.run(lambda _: end.wait(2 * PATIENCE_S)))
        for _ in range(AT_ONCE_MAX)
    ]
    waiting = [
        asyncio.ensure_future(lookup.run(lambda _: True)) for _ in range(WAITING_MAX - AT_ONCE_MAX)
    ]
    await asyncio.sleep(0)
    for one in left:
        one.cancel()
    try:
        with pytest.raises(Unavailable, match=f"{WAITING_MAX} lookups"):
            await lookup.run(lambda _: True)
    finally:
        end.set()
        await asyncio.gather(*left, *waiting, return_exceptions=True)
        await lookup.close()


async def test_without_kafka_a_lookup_ends_in_its_time() -> None:
    (port,) = free_ports(1)
    lookup = KafkaLookup(KafkaConfig(bootstrap=f"127.0.0.1:{port}"), SystemClock(), timeout_s=1.0)
    try:
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                await lookup.run(lambda session: list(session.read(topics.DEAD, 0, 0, 10)))
    finally:
        await lookup.close()


async def test_every_record_of_a_range_comes_once(
    writer: Writer, kafka_config: KafkaConfig, unique: Callable[[str], str]
) -> None:
    topic, lookup = (
        f"ew.s.{unique('s')}",
        KafkaLookup(kafka_config, SystemClock(), timeout_s=PATIENCE_S),
    )
    writer.fill(topic, 0, range(1000))
    try:
        found = await lookup.run(
            lambda session: [message.offset() for message in session.read(topic, 0, 10, 900)]
        )
    finally:
        await lookup.close()
    assert found == list(range(10, 900))
