"""Following others: events and cursor are kept together, a chunk is confirmed when it is durable,
and what comes twice is taken once.
"""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgewake.edge.downlink.feeds import BAD_PAYLOAD, SUCCESS, Feeds
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.subscription import Subscription, SubscriptionConfig, lost_in, reading_of
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.downlink.feed import ASK_BYTES_MAX, FeedAsk, FeedChunk, decode
from edgewake.protocol.errors import Rejected
from tests.edge.helpers import frame_of
from tests.edge.sources import feed_crash
from tests.edge.sources.cage import Caged, caged
from tests.services import PATIENCE_S

T0 = 1_790_000_000_000


def config(**more: object) -> SubscriptionConfig:
    return SubscriptionConfig(
        type="subscription", stream="s", follow=("speed",), begin="earliest", **more
    )  # type: ignore[arg-type]


class Cloud:
    """Has events 1 to `last` and answers every question twice, with seven of them; the cursor is
    the number of the last one.
    """

    def __init__(self, last: int) -> None:
        self.feeds = Feeds()
        self.feeds.send = self._send
        self.last = last
        self.asked: list[str] = []
        self.confirmed: list[int] = []
        self.at_confirmation: Callable[[str], None] = lambda _cursor: None
        self.gaps: tuple[dict[str, Any], ...] = ()

    def _send(self, payload: bytes) -> bool:
        ask = decode(FeedAsk, payload)
        self.asked.append(ask.after)
        begin = int(ask.after or 0)
        if begin >= self.last:
            return True  # an answer without events would come later
        numbers = range(begin + 1, min(begin + 7, self.last) + 1)
        events = tuple(
            {"n": n, "device": "other", "stream": "speed", "seq": n, "t": T0 + n} for n in numbers
        )
        chunk = FeedChunk(
            feed=ask.feed, after=ask.after, cursor=str(numbers[-1]), events=events, gaps=self.gaps
        )
        self.gaps = ()
        for _ in range(2):
            self.take(chunk)
        return True

    def take(self, chunk: FeedChunk) -> None:
        """A message comes."""

        def confirm(reason: int) -> None:
            self.at_confirmation(chunk.cursor)
            self.confirmed.append(reason)

        self.feeds.take(chunk.to_json(), confirm)


async def test_it_goes_on_where_the_log_says_and_takes_nothing_twice(tmp_path: Path) -> None:
    """Control: a feed that asks for something else has no cursor yet, and begins at the
    beginning.
    """
    cloud = Cloud(40)
    for last in (10, 25, 40):
        cloud.last = last
        async with caged(tmp_path, config(), answering=False, feeds=cloud.feeds) as one:
            await one.until(lambda: len(one.column("n")) >= cloud.last, "all events")
            await one.until(lambda: cloud.asked[-1] == str(cloud.last), "the question for more")
            assert one.column("n") == list(range(1, last + 1))
            assert set(one.column("of_device")) == {"other"}
            assert one.times()[:2] == [T0 + 1, T0 + 2]
    assert cloud.asked == ["", "7", "10", "10", "17", "24", "25", "25", "32", "39", "40"]
    assert set(cloud.confirmed) == {SUCCESS}
    assert len(cloud.confirmed) == 2 * (len(cloud.asked) - 3)
    async with caged(tmp_path, config(where="n > 0"), answering=False, feeds=cloud.feeds) as one:
        await one.until(lambda: len(cloud.asked) > 11, "a question")
    assert cloud.asked[11] == ""


async def test_a_chunk_is_confirmed_when_it_and_its_cursor_are_durable(tmp_path: Path) -> None:
    cloud, reached = Cloud(3), list[str]()
    seen: list[tuple[bool, str]] = []
    cloud.at_confirmation = lambda cursor: seen.append(("committed" in reached, cursor))
    async with caged(tmp_path, config(), failpoint=reached.append, feeds=cloud.feeds) as one:
        reached.clear()
        await one.until(lambda: len(seen) == 2, "both are confirmed")
    assert sorted(seen) == [(False, "3"), (True, "3")], (
        "the repetition at once, the one that is waited for when it is durable"
    )


async def test_what_is_no_longer_kept_is_a_gap_with_its_count(tmp_path: Path) -> None:
    cloud = Cloud(3)
    cloud.gaps = (
        {"reason": "retention", "lost": 90}, {"reason": "epoch", "lost": None},
        {"reason": "filter_changed", "lost": 0},
        {"scope": "device", "reason": "quota", "lost": 4}, {"reason": "too_large", "lost": 1},
    )  # fmt: skip

    def gaps(one: Caged) -> list[tuple[str, int]]:
        found = [frame_of(out).gap for out in one.sent]
        return [(gap.reason, gap.count) for gap in found if gap is not None]

    async with caged(tmp_path, config(), feeds=cloud.feeds) as one:
        await one.until(lambda: len(gaps(one)) == 3, "the gaps are said")
        assert gaps(one) == [("not_kept", 91), ("given_up", 4), ("too_large", 1)]


async def test_hostile_chunks_are_refused_and_an_error_is_waited_out(tmp_path: Path) -> None:
    cloud = Cloud(0)
    async with caged(tmp_path, config(), feeds=cloud.feeds) as one:
        await one.until(lambda: cloud.asked, "it asks")
        for payload in (
            b"",
            b"{",
            b"\xff" * 70_000,
            b'{"feed":"s"}',
            b'{"feed":"../s","after":""}',
        ):
            cloud.feeds.take(payload, cloud.confirmed.append)
        assert cloud.confirmed == [BAD_PAYLOAD] * 5
        cloud.take(FeedChunk(feed="other", after=""))
        assert cloud.confirmed[5:] == [SUCCESS], "nobody waits for it"
        cloud.last = 3
        cloud.take(FeedChunk(feed="s", after="", error="no access server", retry_s=0.01))
        await one.until(lambda: len(one.column("n")) == 3, "it asked again")


async def test_an_error_that_lasts_is_logged_once_and_again_after_it_was_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = Cloud(0)
    async with caged(tmp_path, config(), feeds=cloud.feeds) as one:

        async def fails() -> None:
            asked = len(cloud.asked)
            cloud.take(
                FeedChunk(feed="s", after=cloud.asked[-1], error="no access server", retry_s=0.01)
            )
            await one.until(lambda: len(cloud.asked) > asked, "it asks again")

        def logged() -> int:
            return sum(record.message == "feed s: no access server" for record in caplog.records)

        await one.until(lambda: cloud.asked, "it asks")
        for _ in range(3):
            await fails()
        assert logged() == 1
        cloud.last = 3
        await fails()
        await one.until(lambda: cloud.asked[-1] == "3", "it took what there is")
        await fails()
        assert logged() == 2


async def test_a_new_connection_makes_it_ask_again_at_once(tmp_path: Path) -> None:
    cloud = Cloud(0)
    async with caged(tmp_path, config(), feeds=cloud.feeds) as one:
        await one.until(lambda: len(cloud.asked) == 1, "it asks")
        cloud.feeds.connected()
        await one.until(lambda: len(cloud.asked) == 2, "it asks again")


def test_an_event_keeps_its_fields_and_of_its_envelope_who_it_is_of() -> None:
    event = {
        "stream": "a",
        "device": "d",
        "epoch": 1,
        "seq": 2,
        "t": 3,
        "mode": "ack",
        "received_at": 4,
        "speed": 5.5,
        "final": None,
    }
    assert reading_of(event) == {"t": 3, "speed": 5.5, "of_stream": "a", "of_device": "d"}
    result = {
        "query": "q",
        "revision": 2,
        "final": True,
        "window_start": 0,
        "window_end": 60_000,
        "mean": 7,
    }
    assert reading_of(result) == {
        "t": 60_000, "mean": 7, "of_query": "q", "of_revision": 2, "of_final": True,
        "of_window_start": 0, "of_window_end": 60_000,
    }  # fmt: skip
    assert reading_of({"t": True, "x": 1}) == {"x": 1}
    assert [
        lost_in(gap)
        for gap in (
            {"lost": 5},
            {"lost": None},
            {"count": 3},
            {"lost": -1},
            {"lost": "5"},
            {"lost": 0},
        )
    ] == [
        5,
        1,
        3,
        1,
        1,
        0,
    ]


def test_questions_are_bounded() -> None:
    ask = FeedAsk(feed="s", streams=("speed",))
    assert decode(FeedAsk, ask.to_json()) == ask
    for wrong in (
        {"streams": []},
        {"streams": ["x"] * 17},
        {"where": "x" * 5000},
        {"after": "a\nb"},
        {"feed": "a/b"},
    ):
        with pytest.raises(Rejected):
            decode(FeedAsk, orjson.dumps(dataclasses.asdict(ask) | wrong))
    with pytest.raises(Rejected, match="16384"):
        decode(FeedAsk, b" " * (ASK_BYTES_MAX + 1))


def test_another_condition_is_another_feed() -> None:
    names = {
        Subscription(
            config(**more), SourceContext("d", SystemClock(), lambda _name: None, Feeds())
        ).position_name
        for more in ({}, {"where": "n > 1"}, {"select": "n"})
    }
    assert len(names) == 3


# kill -9


def life(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.edge.sources.feed_crash", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.services
def test_kills_before_and_after_the_commit_leave_each_event_there_once_and_in_order(
    tmp_path: Path,
) -> None:
    for place, nth in (("inserted", "3"), ("committed", "2")):
        ended = life(tmp_path, "--kill", place, nth)
        assert ended.returncode == -signal.SIGKILL, (place, ended.stderr[-2000:])
    last = life(tmp_path)
    assert orjson.loads(last.stdout or "[]") == list(range(1, feed_crash.N + 1)), last.stderr[
        -2000:
    ]


OF_THINGS = sorted([feed_crash.thing_of(n), n] for n in range(1, feed_crash.N + 1))


@pytest.mark.services
def test_what_a_gateway_follows_for_its_things_is_each_things_once_over_a_kill(
    tmp_path: Path,
) -> None:
    ended = life(tmp_path, "--things", "--kill", "committed", "2")
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    last = life(tmp_path, "--things")
    assert sorted(orjson.loads(last.stdout or "[]")) == OF_THINGS, last.stderr[-2000:]


@pytest.mark.services
def test_a_cursor_that_is_kept_after_the_events_takes_those_of_things_twice(tmp_path: Path) -> None:
    """The control."""
    killed = life(tmp_path, "--things", "--apart", "--kill", "apart", "1")
    assert killed.returncode == -signal.SIGKILL
    twice = sorted([feed_crash.thing_of(n), n] for n in range(1, 8))
    found = sorted(orjson.loads(life(tmp_path, "--things").stdout))
    assert found == sorted(OF_THINGS + twice)


@pytest.mark.services
def test_a_cursor_that_is_kept_after_the_events_takes_them_twice(tmp_path: Path) -> None:
    """The control."""
    assert life(tmp_path, "--apart", "--kill", "apart", "1").returncode == -signal.SIGKILL
    assert orjson.loads(life(tmp_path).stdout) == [*range(1, 8), *range(1, feed_crash.N + 1)]


GONE = 31
AFTER_A_GAP = ["not_kept 30", *range(GONE, feed_crash.N + 1)]


@pytest.mark.services
def test_a_gap_is_said_once_wherever_a_kill_comes(tmp_path: Path) -> None:
    """Killed right after the cursor behind it became durable: nobody asks for it again."""
    ended = life(tmp_path, "--gone", str(GONE), "--kill", "committed", "2")
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    last = life(tmp_path, "--gone", str(GONE))
    assert orjson.loads(last.stdout or "[]") == AFTER_A_GAP, last.stderr[-2000:]


@pytest.mark.services
def test_a_gap_that_is_said_after_its_cursor_is_kept_is_lost(tmp_path: Path) -> None:
    """The control."""
    assert (
        life(tmp_path, "--apart", "--gone", str(GONE), "--kill", "committed", "2").returncode
        == -signal.SIGKILL
    )
    assert orjson.loads(life(tmp_path, "--gone", str(GONE)).stdout) == AFTER_A_GAP[1:]
