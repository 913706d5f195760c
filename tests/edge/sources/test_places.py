"""Where a source goes on: behind what was passed on, whatever failed meanwhile.

Files, and feeds with their gaps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.downlink.feeds import SUCCESS, Feeds
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.file_tail import FileTail, FileTailConfig
from edgewake.edge.sources.lines.line_format import LineFormat
from edgewake.edge.sources.subscription import (
    GIVEN_UP,
    NOT_KEPT,
    TOO_LARGE,
    Subscription,
    SubscriptionConfig,
    lost_in,
    reading_of,
    reason_of,
)
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.downlink.feed import FeedAsk, FeedChunk, decode
from edgewake.protocol.names import RESERVED_FIELDS
from tests.edge.sources.sink import MemorySink, intake_of, running
from tests.examples import examples


def tail(path: Path, position: str | None = None, **more: object) -> FileTail:
    config = FileTailConfig(type="file_tail", stream="s", path=path, poll_s=0.01, **more)  # type: ignore[arg-type]
    return FileTail(config, SystemClock(), position=lambda _name: position)


def add(path: Path, *numbers: int) -> None:
    with path.open("a") as file:
        file.write("".join(f'{{"n": {n}}}\n' for n in numbers))


async def test_lines_that_could_not_be_passed_on_are_read_again_and_no_others(
    tmp_path: Path,
) -> None:
    """The same source is run again after its failure, as the agent does."""
    path, sink = tmp_path / "in.log", MemorySink()
    add(path, 1, 2)
    same = tail(path)
    async with running(same, sink) as one:
        await one.until(lambda: sink.values() == [1, 2])
        sink.failures = [RuntimeError("the log")]
        add(path, 3)
        assert isinstance(await one.error(), RuntimeError)
    add(path, 4)
    async with running(same, sink) as one:
        await one.until(lambda: sink.values() == [1, 2, 3, 4])
        add(path, 5)
        await one.until(lambda: sink.values() == [1, 2, 3, 4, 5])


async def test_after_a_restart_it_goes_on_behind_what_was_committed_and_not_behind_what_was_read(
    tmp_path: Path,
) -> None:
    path, sink = tmp_path / "in.log", MemorySink()
    add(path, 1)
    async with running(tail(path), sink) as one:
        await one.until(lambda: sink.values() == [1])
        sink.is_full = True
        add(path, 2)
        await one.until(lambda: sink.waiting)
        assert sink.values() == [1]
    sink.is_full = False
    async with running(tail(path, sink.positions[-1]), sink) as one:
        await one.until(lambda: sink.values() == [1, 2])


async def test_lines_that_are_all_refused_move_the_place_too(tmp_path: Path) -> None:
    """Else they would be refused, and counted, again after each restart."""
    path, sink = tmp_path / "in.log", MemorySink()
    path.write_text("nonsense\nmore\n")
    async with running(tail(path), sink) as one:
        await one.until(lambda: sum(sink.lost.values()) == 2 and len(sink.positions) >= 1)
        kept = sink.positions[-1]
    again = MemorySink()
    async with running(tail(path, kept), again) as one:
        add(path, 1)
        await one.until(lambda: again.values() == [1])
    assert again.lost == {}


@pytest.mark.parametrize("kept", ["nonsense", "[]", '{"device": 1}'])
async def test_a_place_that_cannot_be_read_makes_the_whole_file_be_read_and_is_said(
    tmp_path: Path, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "in.log"
    add(path, 1, 2)
    async with running(tail(path, kept, start="end")) as one:
        await one.until(lambda: one.sink.values() == [1, 2])
    assert [
        record for record in caplog.records if getattr(record, "event", "") == "source.no_position"
    ]


async def test_by_policy_a_file_is_read_on_while_the_log_is_full_and_what_is_lost_is_counted(
    tmp_path: Path,
) -> None:
    path, sink = tmp_path / "in.log", MemorySink()
    sink.is_full = True
    add(path, 1, 2)
    async with running(tail(path), sink, Policy.DROP_NEWEST) as one:
        await one.until(lambda: one.intake.dropped == 2)
        sink.free()
        add(path, 3)
        await one.until(lambda: sink.values() == [3])
    assert sink.lost == {"queue_full": 2}


async def test_a_file_with_a_byte_order_mark_and_other_line_ends_is_read_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.log"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\r\n{"n": 2}\r\n')
    async with running(tail(path)) as one:
        await one.until(lambda: one.sink.values() == [1, 2])
    assert one.sink.lost == {}


async def test_a_file_in_another_encoding_is_refused_line_by_line_and_stops_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.log"
    path.write_bytes('{"n": 1}\n{"n": 2}\n'.encode("utf-16"))
    async with running(tail(path)) as one:
        await one.until(lambda: sum(one.sink.lost.values()) >= 2)
        with path.open("ab") as file:
            file.write(b'\n{"n": 3}\n')
        await one.until(lambda: one.sink.values() == [3])


async def test_the_time_of_each_line_is_its_own_where_it_says_one(tmp_path: Path) -> None:
    path = tmp_path / "in.log"
    path.write_text('{"t": 1690000000005, "n": 1}\n{"n": 2}\n')
    async with running(tail(path, format=LineFormat.JSON)) as one:
        await one.until(lambda: one.sink.values() == [1, 2])
    assert one.sink.readings[0][0] == 1_690_000_000_005
    assert one.sink.readings[1][0] > 1_700_000_000_000


# a feed


@pytest.mark.parametrize(
    ("gap", "reason", "lost"),
    [
        ({"lost": 5}, NOT_KEPT, 5),
        ({"count": 7}, NOT_KEPT, 7),
        ({"lost": 5, "count": 7}, NOT_KEPT, 5),
        ({"reason": "too_large", "lost": 1}, TOO_LARGE, 1),
        ({"reason": "too_large", "scope": "device", "count": 3}, GIVEN_UP, 3),
        ({"scope": "device", "count": 3}, GIVEN_UP, 3),
        ({"scope": "stream", "lost": 0}, NOT_KEPT, 0),
        ({}, NOT_KEPT, 1),
        ({"lost": None}, NOT_KEPT, 1),
        ({"lost": True}, NOT_KEPT, 1),
        ({"lost": -5}, NOT_KEPT, 1),
        ({"lost": 1.5}, NOT_KEPT, 1),
        ({"lost": "many"}, NOT_KEPT, 1),
    ],
)
def test_a_gap_of_others_is_one_of_ours_with_its_reason_and_its_count(
    gap: dict[str, Any], reason: str, lost: int
) -> None:
    assert (reason_of(gap), lost_in(gap)) == (reason, lost)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.one_of(
    st.sampled_from([*sorted(RESERVED_FIELDS), "t", "of_device", "speed", ""]), st.text(max_size=4)
)


@settings(max_examples=examples(30))
@given(st.dictionaries(NAMES, JSON, max_size=8))
def test_whatever_an_event_of_others_holds_it_is_a_reading_or_refused_and_never_an_error(
    event: dict[str, Any],
) -> None:
    sink = MemorySink()
    fields = reading_of(event)
    assert not (RESERVED_FIELDS - {"t"}) & set(fields), "the envelope's names are not free"
    reading = intake_of(sink).check(fields)
    assert (reading is None) == (sum(sink.lost.values()) == 1)


class Cloud:
    """Answers each question with the next chunk."""

    def __init__(self, *chunks: dict[str, Any]) -> None:
        self.feeds = Feeds()
        self.feeds.send = self._send
        self.left = list(chunks)
        self.asked: list[str] = []
        self.confirmed: list[int] = []

    def _send(self, payload: bytes) -> bool:
        ask = decode(FeedAsk, payload)
        self.asked.append(ask.after)
        if self.left:
            chunk = FeedChunk(
                **(
                    {"feed": ask.feed, "after": ask.after, "cursor": "", "retry_s": 0.01}
                    | self.left.pop(0)
                )
            )
            self.feeds.take(chunk.to_json(), self.confirmed.append)
        return True

    def source(self, position: str | None = None) -> Subscription:
        config = SubscriptionConfig(type="subscription", stream="s", follow=("speed",))
        return Subscription(
            config, SourceContext("d1", SystemClock(), lambda _name: position, self.feeds)
        )


def events(*numbers: int) -> tuple[dict[str, Any], ...]:
    return tuple({"n": n, "device": "other", "stream": "speed", "seq": n, "t": n} for n in numbers)


async def test_events_gaps_and_cursor_are_one_commit_and_confirmed_after_it() -> None:
    cloud, sink = (
        Cloud({"cursor": "c1", "events": events(1, 2), "gaps": ({"lost": 5},)}),
        MemorySink(),
    )
    sink.durable_now.clear()
    async with running(cloud.source(), sink) as one:
        await one.until(lambda: sink.commits)
        assert cloud.confirmed == [], "not durable yet"
        sink.durable_now.set()
        await one.until(lambda: cloud.confirmed == [SUCCESS])
    assert (sink.values(), sink.positions, dict(sink.lost)) == ([1, 2], ["c1"], {NOT_KEPT: 5})


async def test_chunks_of_nothing_cost_no_write_but_the_first_and_move_the_cursor() -> None:
    """A condition that lets nothing through would wear the flash out."""
    cloud = Cloud(
        {"cursor": "c1"}, {"cursor": "c2"}, {"cursor": "c3", "events": events(3)}, {"cursor": "c4"}
    )
    async with running(cloud.source()) as one:
        await one.until(lambda: len(cloud.asked) == 5)
    assert cloud.asked == ["", "c1", "c2", "c3", "c4"]
    assert one.sink.positions == ["c1", "c3"]


async def test_an_error_of_the_cloud_moves_nothing_and_is_asked_past() -> None:
    cloud = Cloud(
        {"error": "no such stream", "cursor": "bad", "events": events(9)},
        {"cursor": "c1", "events": events(1)},
    )
    async with running(cloud.source("c0")) as one:
        await one.until(lambda: one.sink.values() == [1])
    assert cloud.asked[:2] == ["c0", "c0"]
    assert cloud.confirmed[:2] == [SUCCESS, SUCCESS]


async def test_a_chunk_that_could_not_be_passed_on_is_not_confirmed_and_asked_for_again() -> None:
    again = {"cursor": "c1", "events": events(1)}
    cloud, sink = Cloud(again, again), MemorySink()
    sink.failures = [RuntimeError("the log")]
    same = cloud.source()
    async with running(same, sink) as one:
        assert isinstance(await one.error(), RuntimeError)
    assert cloud.confirmed == []
    async with running(same, sink) as one:
        await one.until(lambda: cloud.confirmed == [SUCCESS])
    assert (cloud.asked[:2], sink.values()) == (["", ""], [1])
