"""Questions for feeds and the chunks that answer them: asked again where they are lost, confirmed
once, never mixed up.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.downlink import feeds as module
from edgewake.edge.downlink.feeds import BAD_PAYLOAD, SUCCESS, Feeds, Got
from edgewake.protocol.downlink.feed import FeedAsk, FeedChunk

ASK = FeedAsk(feed="others", streams=("speed",), after="c1")


def chunk(feed: str = "others", after: str = "c1", cursor: str = "c2") -> bytes:
    return FeedChunk(feed=feed, after=after, cursor=cursor).to_json()


class Asking:
    """One device with a connection, which asks."""

    def __init__(self, *, connected: bool = True) -> None:
        self.sent: list[bytes] = []
        self.told: list[int] = []
        self.feeds = Feeds()
        self.feeds.send = lambda payload: (self.sent.append(payload), connected)[1]

    async def ask(self, ask: FeedAsk = ASK) -> asyncio.Task[Got | None]:
        task = asyncio.create_task(self.feeds.ask(ask))
        await asyncio.sleep(0)
        return task

    def take(self, payload: bytes) -> None:
        self.feeds.take(payload, self.told.append)


async def test_the_chunk_that_was_asked_for_goes_to_who_asked_and_he_confirms_it() -> None:
    one = Asking()
    asked = await one.ask()
    assert orjson.loads(one.sent[0])["after"] == "c1"
    one.take(chunk())
    got = await asked
    assert got is not None
    assert (got[0].cursor, one.told) == ("c2", []), "not confirmed before it is durable"
    got[1](SUCCESS)
    assert one.told == [SUCCESS]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(chunk(after="c0"), id="an answer to the question before"),
        pytest.param(chunk(feed="another"), id="an answer for a feed that nobody follows any more"),
    ],
)
async def test_what_nobody_waits_for_is_confirmed_and_forgotten(payload: bytes) -> None:
    one = Asking()
    asked = await one.ask()
    one.take(payload)
    assert (one.told, asked.done()) == ([SUCCESS], False)
    one.take(chunk())
    assert (await asked) is not None


async def test_a_chunk_that_comes_twice_is_given_once() -> None:
    one = Asking()
    asked = await one.ask()
    one.take(chunk())
    one.take(chunk())
    await asked
    one.take(chunk())
    assert one.told == [SUCCESS, SUCCESS], (
        "the second and the third; the first is confirmed by who asked"
    )


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"\xff", b'{"feed": 5}', b'{"feed": "others"}', b"[" * 5000]
)
async def test_what_is_no_chunk_is_refused_and_the_right_one_is_still_awaited(
    payload: bytes,
) -> None:
    one = Asking()
    asked = await one.ask()
    one.take(payload)
    assert one.told == [BAD_PAYLOAD]
    one.take(chunk())
    assert (await asked) is not None


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(payload: bytes) -> None:
    told: list[int] = []
    Feeds().take(payload, told.append)
    assert told in ([BAD_PAYLOAD], [SUCCESS])


@pytest.mark.parametrize(
    ("connected", "constant"),
    [(True, "ANSWER_S"), (False, "OFFLINE_S")],
    ids=["the answer was lost", "there is no connection"],
)
async def test_a_question_without_an_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, connected: bool, constant: str
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 3600.0)
    monkeypatch.setattr(module, "OFFLINE_S", 3600.0)
    monkeypatch.setattr(module, constant, 0.0)
    one = Asking(connected=connected)
    assert await one.feeds.ask(ASK) is None
    one.take(chunk())
    assert one.told == [SUCCESS], "it comes too late, and is forgotten"


async def test_a_new_connection_asks_all_again_at_once() -> None:
    one = Asking()
    others = FeedAsk(feed="more", streams=("x",), after="")
    first, second = await one.ask(), await one.ask(others)
    one.take(chunk())
    one.feeds.connected()
    assert await second is None
    assert await first is not None, "what has come is not asked again"
    one.feeds.connected()


async def test_who_asks_again_while_somebody_waits_gets_the_answer() -> None:
    """A source is started again before the one before is quite gone."""
    one = Asking()
    before = await one.ask()
    again = await one.ask()
    before.cancel()
    await asyncio.wait({before})
    one.take(chunk())
    assert (await asyncio.wait_for(again, 60)) is not None


async def test_who_waits_no_more_leaves_nothing_behind() -> None:
    one = Asking()
    asked = await one.ask()
    asked.cancel()
    await asyncio.wait({asked})
    assert one.feeds._waiting == {}


def test_without_a_connection_nothing_is_sent_before_there_was_one() -> None:
    assert Feeds().send(b"{}") is False
