"""How many questions for feeds wait at a bridge: of one device, and of all together."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator

import mqtt5
import orjson
import pytest

from edgewake.cloud.bridge import feeds as module
from edgewake.cloud.bridge.admission.allowance import MUTED_S
from edgewake.cloud.bridge.feeds import FeedConfig, Feeds
from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger
from edgewake.protocol import topics
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.downlink.feed import FEEDS_MAX, FeedChunk
from tests.bridge.thingsboard.alone import away, bridge

MOST = 40


class Waiting:
    """A bridge whose access server says nothing, so that each question waits."""

    def __init__(self) -> None:
        config = FeedConfig(access_urls=("http://127.0.0.1:9",), streams=("city",))
        self.feeds = Feeds(config, lambda *_: None, random.Random(1))

    def asks(self, device: str, count: int = 1, first: int = 0) -> None:
        for n in range(first, first + count):
            ask = {"feed": f"f{n}", "streams": ["city"], "after": ""}
            self.feeds.on_ask(device, orjson.dumps(ask))

    @property
    def held(self) -> Counter[str]:
        """How many wait, by device."""
        return Counter({name: len(found) for name, found in self.feeds._tasks.items()})


@pytest.fixture
async def waiting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Waiting]:
    monkeypatch.setattr(module, "WAITING_MAX", MOST)
    made = Waiting()
    yield made
    await made.feeds.close()


async def test_greedy_devices_leave_room_for_every_other(waiting: Waiting) -> None:
    """Three that ask for all they may fill the bridge; each that comes later is served."""
    for name in ("a", "b", "c"):
        waiting.asks(name, FEEDS_MAX)
    assert waiting.held.total() == MOST
    for n in range(MOST - 3):
        waiting.asks(f"modest-{n}")
    assert waiting.held == Counter(dict.fromkeys(["a", "b", "c"], 1)) + Counter(
        {f"modest-{n}": 1 for n in range(MOST - 3)}
    )
    waiting.asks("one too many")
    assert waiting.held.total() == MOST
    assert "one too many" not in waiting.held


async def test_who_has_most_gives_up_its_newest_and_takes_it_back_from_nobody(
    waiting: Waiting,
) -> None:
    waiting.asks("greedy", FEEDS_MAX)
    waiting.asks("other", FEEDS_MAX)
    waiting.asks("third", MOST - 2 * FEEDS_MAX)
    waiting.asks("late")
    before = waiting.held
    assert before["greedy"] == FEEDS_MAX - 1
    assert "f0" in waiting.feeds._tasks["greedy"]
    assert f"f{FEEDS_MAX - 1}" not in waiting.feeds._tasks["greedy"]
    left_out = waiting.feeds.left_out
    waiting.asks("greedy", 5, first=FEEDS_MAX)
    assert waiting.held == before
    assert waiting.feeds.left_out == left_out + 5, "it is counted"


async def test_one_device_has_its_own_bound_and_may_ask_again(waiting: Waiting) -> None:
    waiting.asks("a", FEEDS_MAX + 5)
    assert waiting.held == {"a": FEEDS_MAX}
    task = waiting.feeds._tasks["a"]["f3"]
    waiting.asks("a", first=3)
    assert waiting.held == {"a": FEEDS_MAX}
    assert waiting.feeds._tasks["a"]["f3"] is not task, "the newer one counts"


async def test_who_asks_too_much_is_told_a_bounded_number_of_times_when_to_ask_again() -> None:
    clock = FakeClock()
    made, told = bridge(clock, away(10)), list[FeedChunk]()
    made.feeds._send = lambda _, chunk: told.append(chunk)
    account = made.account("greedy")
    account.busy_s = -0.1
    ask = orjson.dumps({"feed": "f", "streams": ["city"], "after": ""})
    for expected in (1, 2, 3):  # once in this time
        for _ in range(5):
            made._on_publish(AckLedger(), mqtt5.PublishPacket(topics.feed("greedy"), ask))
        assert [one.feed for one in told] == ["f"] * expected
        clock.advance(MUTED_S)
    assert round(told[0].retry_s) == 2
    assert made.feeds._tasks == {}, "no access server is asked"
    clock.advance(told[0].retry_s + 0.1)
    made._on_publish(AckLedger(), mqtt5.PublishPacket(topics.feed("greedy"), ask))
    assert list(made.feeds._tasks) == ["greedy"]
    await made.feeds.close()
