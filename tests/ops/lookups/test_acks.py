from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.lookups import acks
from edgewake.cloud.ops.lookups.acks import AckView, QueryPosition, Search, why_not_found
from edgewake.cloud.ops.lookups.kafka_lookup import KafkaLookup, OutOfRange
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.ack import AckToken
from edgewake.protocol.frames.record import Discipline
from edgewake.protocol.frames.sequence import Position
from edgewake.protocol.ops.query import Progress, QueryState, Reached, Registration
from tests.ops.builders import HastyClock
from tests.ops.conftest import Writer
from tests.services import PATIENCE_S, part

LONG_AFTER = SystemClock().now_ms() + 86_400_000


@pytest.fixture
async def lookup(kafka_config: KafkaConfig) -> AsyncIterator[KafkaLookup]:
    lookup = KafkaLookup(kafka_config, SystemClock(), timeout_s=PATIENCE_S)
    yield lookup
    await lookup.close()


async def find(
    lookup: KafkaLookup,
    token: AckToken,
    *,
    now_ms: int = LONG_AFTER,
    from_offset: int | None = None,
) -> AckView:
    return await lookup.run(
        lambda session: acks.look_up(session, token, now_ms=now_ms, from_offset=from_offset)
    )


async def settled(lookup: KafkaLookup, token: AckToken, *, now_ms: int = LONG_AFTER) -> AckView:
    """The answer once the sequencer has passed the frame."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await find(lookup, token, now_ms=now_ms)).state == "kept":
            await asyncio.sleep(0.1)
    return found


@contextmanager
def sequencer(writer: Writer, name: str, folder: Path) -> Iterator[None]:
    config = folder / "sequencer.toml"
    config.write_text(
        f'name = "{name}"\nunknown_s = 600\n[kafka]\nbootstrap = "{writer.config.bootstrap}"\n'
    )
    with part("sequencer", config, folder / "sequencer.log") as process:
        process.wait_for('"event":"part.ready"')
        yield


def delete_all(writer: Writer, topic: str, partition: int) -> None:
    """As retention does it."""
    client, end = clients.admin(writer.config), TopicPartition(topic, partition, OFFSET_END)
    client.delete_records([end])[end].result(10)


async def test_a_token_finds_the_frame_on_its_stream(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    tokens = [writer.received(device, stream, n) for n in range(1, 4)]
    positions = [writer.sequenced(device, stream, n, token) for n, token in enumerate(tokens, 1)]
    found = await find(lookup, tokens[1])
    assert (found.device, found.stream, found.epoch, found.frame, found.state) == (
        device,
        stream,
        1,
        2,
        "sequenced",
    )
    assert (found.partition, found.offset) == positions[1]


async def test_a_frame_is_found_at_any_rate_and_however_late_the_sequencer_was(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    """25,000 records of the same partition in the four seconds before it."""
    device, stream = unique("dev"), unique("s")
    token = writer.received(device, stream, 1)
    times = (writer.received_at(token) - 4_000 + i * 4_000 // 25_000 for i in range(25_000))
    writer.fill(topics.stream_topic(stream), writer.stream_partition(token), times)
    position = writer.sequenced(device, stream, 1, token)
    found = await find(lookup, token)
    assert (found.state, found.partition, found.offset) == ("sequenced", *position)


async def test_the_real_sequencer_s_frames_are_sequenced_held_repeats_and_gone(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str], tmp_path: Path
) -> None:
    device, stream = unique("dev"), unique("s")
    first = writer.received(device, stream, 1)
    other, place = "", first
    while place.partition == first.partition:  # a repeat behind a held frame is called held, too
        other = unique("dev")
        place = writer.received(other, unique("s"), 1)
    early = writer.received(other, stream, 2)
    again = writer.received(device, stream, 1)
    assert (await find(lookup, again)).state == "kept", "nobody has sequenced it yet"
    with sequencer(writer, unique("sequencer"), tmp_path):
        assert (await settled(lookup, first)).state == "sequenced"
        assert (await settled(lookup, again)).state == "repeat"
        assert (await settled(lookup, early)).state == "held"
        writer.received(other, stream, 1)
        async with asyncio.timeout(PATIENCE_S):
            while (found := await find(lookup, early)).state != "sequenced":
                await asyncio.sleep(0.1)
    assert (found.frame, found.stream) == (2, stream)
    delete_all(writer, topics.stream_topic(stream), writer.stream_partition(first))
    assert [(await find(lookup, token)).state for token in (first, again)] == ["gone", "gone"]


async def test_a_search_that_runs_out_of_time_says_where_it_goes_on(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    token = writer.received(device, stream, 1)
    writer.fill(
        topics.stream_topic(stream),
        writer.stream_partition(token),
        (writer.received_at(token) for _ in range(10_000)),
    )
    position = writer.sequenced(device, stream, 1, token)
    hasty, answers, at = KafkaLookup(writer.config, HastyClock(0.1)), [], None
    try:
        while not answers or answers[-1].state == "searching":
            answers.append(await find(hasty, token, from_offset=at))
            assert at is None or answers[-1].from_offset is None or answers[-1].from_offset > at, (
                "each request goes on"
            )
            at = answers[-1].from_offset
    finally:
        await hasty.close()
    assert len(answers) > 1, "the time was never over"
    assert (answers[-1].state, answers[-1].offset) == ("sequenced", position[1])


@pytest.mark.parametrize(
    ("position", "search", "more", "expected"),
    [
        (None, Search(), {}, "kept"),
        (Position(0, 7, 7), Search(), {}, "kept"),
        (Position(0, 8, 8), Search(), {}, "repeat"),
        (Position(0, 8, 8), Search(), {"age_ms": 100}, "kept"),
        (Position(0, 8, 8), Search(is_cut=True), {}, "gone"),
        (Position(0, 9, 5), Search(), {}, "held"),
        (Position(0, 9, 5), Search(later_seen=True), {}, "repeat"),
        (Position(0, 8, 8), Search(), {"is_numbered": False}, "kept"),
    ],
)
def test_why_a_frame_is_not_on_its_stream(
    position: Position | None, search: Search, more: dict[str, int], expected: str
) -> None:
    assert (
        why_not_found(7, position, search, **{"is_numbered": True, "age_ms": 60_000} | more)[0]
        == expected
    )


async def test_a_device_s_plain_reading_is_found_without_a_number(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    device, stream = unique("dev"), unique("s")
    token = writer.received(device, stream, 1, discipline=Discipline.FREE)
    writer.sequenced(device, stream, 1, token)
    found = await find(lookup, token)
    assert (found.state, found.epoch, found.frame) == ("sequenced", None, None)


async def test_the_token_of_a_dead_letter_tells_why(
    writer: Writer, lookup: KafkaLookup, unique: Callable[[str], str]
) -> None:
    offset = writer.dead_letter(unique("dev"), b"x")
    found = await find(lookup, AckToken(0, offset, dead=True))
    assert (found.state, found.detail) == ("dead", "why")


@pytest.mark.parametrize(
    ("token", "error"), [(AckToken(0, 10**12), OutOfRange), (AckToken(99, 0), LookupError)]
)
async def test_a_token_of_no_frame_finds_none(
    writer: Writer, lookup: KafkaLookup, token: AckToken, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await find(lookup, token)


def progress(query: str, streams: str, offsets: dict[int, int], **more: Any) -> Progress:
    """The last of the streams, which are told apart by `+`, has these offsets."""
    first, *others = streams.split("+")
    reached = {name: Reached() for name in (first, *others)} | {
        (first, *others)[-1]: Reached(offsets=offsets, **more)
    }
    return Progress(
        query=query, stream=first, state=QueryState.RUNNING, reached=reached, updated_at=5
    )


VIEW = AckView(
    token="1.7",
    device="d",
    stream="s",
    epoch=1,
    first_frame=1,
    frame=1,
    received_at=0,
    state="sequenced",
    partition=1,
    offset=10,
)


def states(*found: Progress, registered_at: int = 1) -> list[QueryPosition]:
    registered = {
        one.query: Registration(name=one.query, text="…", registered_at=registered_at)
        for one in found
    }
    return acks.with_queries(VIEW, registered, found).queries


def test_a_query_has_computed_a_frame_when_its_offset_is_past_it() -> None:
    found = states(
        progress("b", "s", {1: 10}),
        progress("a", "s", {0: 99, 1: 11}),
        progress("c", "other", {}),
        progress("d", "s", {}),
    )
    assert found == [
        QueryPosition(query="a", state="computed", offsets_behind=0),
        QueryPosition(query="b", state="pending", offsets_behind=1),
        QueryPosition(query="d", state="pending", offsets_behind=11),
    ]


@pytest.mark.parametrize(("joined_at_offsets", "expected"), [(11, "not_asked"), (10, "computed")])
def test_a_query_that_joined_after_the_frame_was_never_asked(
    joined_at_offsets: int, expected: str
) -> None:
    """Its lane's offsets are past the frame all the same: the lane computed it for other
    queries.
    """
    assert [
        one.state
        for one in states(progress("q", "s", {1: 50}, joined_at_offsets={1: joined_at_offsets}))
    ] == [expected]


def test_a_query_of_several_streams_has_come_so_far_in_each_of_them() -> None:
    found = states(
        progress("of_others", "a+b", {1: 99}),
        progress("pairs", "a+s", {1: 11}),
        progress("union", "a+b+s", {1: 10}),
    )
    assert [(one.query, one.state) for one in found] == [
        ("pairs", "computed"),
        ("union", "pending"),
    ]


def test_progress_of_an_earlier_query_of_the_same_name_is_left_out() -> None:
    assert states(progress("q", "s", {1: 50}), registered_at=6) == []
