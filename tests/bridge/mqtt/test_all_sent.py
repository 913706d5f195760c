"""When a broker has sent all: its answers and its time are the test's."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from edgewake.cloud.bridge.mqtt.all_sent import LOOK_S, SILENT_S, AllSent
from edgewake.cloud.bridge.mqtt.mqtt_connection import Connection
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import RemoteError


class Broker:
    """A connection whose broker answers when the test says so."""

    def __init__(self) -> None:
        self.pings, self.pongs, self.heard_s = 0, 0, 0.0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ping(self) -> None:
        self.pings += 1


class Here:
    def __init__(self) -> None:
        self.clock, self.broker = FakeClock(), Broker()
        self.broker.heard_s = self.clock.monotonic_s()
        self.all_sent = AllSent(cast(Connection, self.broker), self.clock)

    async def look_later(self, *, is_paused: bool = False) -> None:
        """Another look, LOOK_S later."""
        looking = asyncio.create_task(self.all_sent.look_later(is_paused=is_paused))
        await asyncio.sleep(0)
        self.clock.advance(LOOK_S)
        await looking


async def test_an_answer_counts_if_nothing_came_before_it() -> None:
    here = Here()
    assert not here.all_sent.is_answered(7, may_ask=True)
    assert not here.all_sent.is_answered(7, may_ask=True), "the question is on its way"
    assert here.broker.pings == 1, "it asks once"
    here.broker.pongs = 1
    assert not here.all_sent.is_answered(8, may_ask=True), "one came before the answer"
    assert here.broker.pings == 2
    here.broker.pongs = 2
    assert here.all_sent.is_answered(8, may_ask=True)


async def test_what_is_not_acknowledged_yet_makes_an_answer_worth_nothing() -> None:
    here = Here()
    assert not here.all_sent.is_answered(7, may_ask=False)
    assert here.broker.pings == 0
    here.all_sent.is_answered(7, may_ask=True)
    here.broker.pongs = 1
    assert not here.all_sent.is_answered(7, may_ask=False)
    here.broker.pongs = 9
    assert not here.all_sent.is_answered(7, may_ask=True), "it is asked once more"


async def test_a_broker_that_says_nothing_is_given_up_but_not_while_we_read_nothing() -> None:
    here = Here()
    here.clock.advance(SILENT_S + 1)
    await here.look_later(is_paused=True)
    await here.look_later()
    here.clock.advance(SILENT_S + 1)
    with pytest.raises(TimeoutError, match="silent for 10 s"):
        await here.look_later()


async def test_who_waits_hears_what_ended_the_connection() -> None:
    here = Here()
    here.broker.lost.set_exception(RemoteError("the broker disconnects"))
    with pytest.raises(RemoteError, match="disconnects"):
        await here.look_later()
