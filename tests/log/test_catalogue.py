"""Which topic a name stands for, and when Kafka's topics are listed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.catalogue import (
    CHANGED_S,
    Catalogue,
    Topic,
    UnknownStream,
    is_list_due,
    topics_of,
)
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.protocol import topics
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import Unavailable
from tests.feeds import DEADLINE_S, Feed


def test_a_name_stands_for_its_present_registration_and_never_for_an_earlier_one() -> None:
    found = topics_of({"ew.q.top.100": 1, "ew.q.top.200": 1, "ew.q.top.300": 1}, {"top": 200})
    assert found == {"top": Topic("top", "ew.q.top.200", True, 1)}


def test_after_its_removal_a_name_stands_for_its_last_registration() -> None:
    assert topics_of({"ew.q.top.200": 1, "ew.q.top.1000": 1}, {})["top"].topic == "ew.q.top.1000"


def test_a_stream_has_the_name_of_a_query_that_was_removed_but_not_of_one_that_is_registered() -> (
    None
):
    there = {"ew.s.top": 4, "ew.q.top.200": 1}
    assert topics_of(there, {})["top"] == Topic("top", "ew.s.top", False, 4)
    assert topics_of(there, {"top": 200})["top"].is_query


def test_other_topics_are_no_names() -> None:
    others = {
        "ew.up": 4,
        "ew.q.top": 1,
        "ew.q.top.x": 1,
        "ew.q..5": 1,
        "ew.s.Top": 1,
        "ew.s.a.b": 1,
        "ew.s.gone": 0,
        "other": 1,
    }
    assert topics_of(others, {}) == {}


@pytest.mark.parametrize(
    ("now_s", "listed_s", "changed_s", "expected"),
    [
        (0.0, float("-inf"), float("-inf"), True),
        (104.0, 100.0, 0.0, False),
        (105.0, 100.0, 0.0, True),
        (101.0, 100.0, 99.0, True),
        (114.0, 113.0, 99.5, True),
        (115.0, 113.0, 99.5, False),
    ],
)
def test_topics_are_listed_now_and_then_and_with_each_look_for_a_while_after_a_change(
    now_s: float, listed_s: float, changed_s: float, expected: bool
) -> None:
    assert is_list_due(now_s, listed_s=listed_s, changed_s=changed_s) is expected


async def test_a_name_that_is_asked_for_is_found_at_once_though_nothing_said_that_it_is_there(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    """Control: looks that nobody asked for do not find it."""
    clock = FakeClock()
    catalogue = Catalogue(kafka_config, "test-catalogue", clock)
    try:
        await catalogue._look()
        clock.advance(CHANGED_S)
        await catalogue._look()
        feed = new_feed()
        await catalogue._look()
        assert feed.name not in catalogue.topics
        running = asyncio.create_task(catalogue.run())
        async with asyncio.timeout(DEADLINE_S):
            (found,) = await catalogue.find((feed.name,), ANYBODY)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert found.name == feed.name
    finally:
        catalogue.close()


async def test_a_kafka_that_takes_its_time_makes_no_name_unknown(monkeypatch: pytest.MonkeyPatch):
    """It answered a moment ago, and a stream that has just been made was 404."""
    clock = FakeClock()
    catalogue = Catalogue(KafkaConfig(), "test-catalogue", clock)
    catalogue._listed_s = clock.monotonic_s()
    monkeypatch.setattr("edgewake.cloud.log.catalogue.ASK_TIMEOUT_S", 0.05)
    assert catalogue.is_reachable
    with pytest.raises(Unavailable, match="come again"):
        await catalogue.find(("just_made",), ANYBODY)
    catalogue._asked.clear()
    looked = asyncio.create_task(catalogue.find(("just_made",), ANYBODY))
    while not catalogue._asked.is_set():
        await asyncio.sleep(0)
    catalogue.generation += 1
    async with catalogue._looked:
        catalogue._looked.notify_all()
    with pytest.raises(UnknownStream):
        await looked


def test_a_row_that_is_no_object_is_skipped_and_said() -> None:
    """It was kept, and each look at it ended the server, also after a start."""
    catalogue = Catalogue(KafkaConfig(bootstrap="127.0.0.1:1"), "test-catalogue", FakeClock())
    try:
        for row in (b"[]", b"null", b"7"):
            with pytest.raises(ValueError, match="row 'top': expected a JSON object"):
                catalogue._change(topics.QUERIES, "top", row)
        assert catalogue._rows[topics.QUERIES] == {}
    finally:
        catalogue.close()
