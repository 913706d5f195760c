"""Resuming: exactly where it stopped, on any server, and a gap said where that cannot be."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import orjson
import pytest

from edgewake.cloud.kafka import clients, metadata
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.cursor import Cursor, CursorCodec, CursorKeys, _read
from tests.access.world import Server, Stream, numbers, open_stream, server
from tests.feeds import DEADLINE_S, NOW_MS, Feed, QueryFeed, eventually
from tests.services import PATIENCE_S


async def test_every_event_carries_the_cursor_after_it(
    access_a: Server, access_b: Server, feed: Feed
) -> None:
    """From each id the other server goes on with the very next event, inside a frame too."""
    feed.send(n=5)
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        events = await stream.take(5)
    for i, event in enumerate(events[:-1]):
        async with open_stream(access_b.url, feed.name, cursor=event.id) as stream:
            assert stream.headers["edgewake-start"] == "resumed"
            assert numbers(await stream.take(4 - i)) == numbers(events[i + 1 :])


async def test_a_client_that_saw_no_event_yet_has_a_cursor_already(
    access_a: Server, access_b: Server, feed: Feed
) -> None:
    feed.send(n=3)
    async with open_stream(access_a.url, feed.name) as stream:
        cursor = await stream.until_cursor()
    feed.send(n=2)
    async with open_stream(access_b.url, feed.name, cursor=cursor) as stream:
        assert numbers(await stream.take(2)) == [("dev-1", 4), ("dev-1", 5)]


@pytest.mark.parametrize("parameter", ["last_event_id", "lastEventId", "lastEventID"])
async def test_the_cursor_may_come_in_the_query_and_the_header_wins(
    access_a: Server, feed: Feed, parameter: str
) -> None:
    feed.send(n=4)
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        events = await stream.take(4)
    async with open_stream(access_a.url, feed.name, **{parameter: events[1].id}) as stream:
        assert numbers(await stream.take(1)) == [("dev-1", 3)]
    async with open_stream(
        access_a.url, feed.name, cursor=events[2].id, **{parameter: events[0].id}
    ) as stream:
        assert numbers(await stream.take(1)) == [("dev-1", 4)]


async def test_a_stream_can_begin_at_a_time(access_a: Server, feed: Feed) -> None:
    feed.send(n=2)
    time.sleep(0.05)  # the border between two Kafka times, which count in ms
    border = int(time.time() * 1000)
    feed.send(n=2)
    async with open_stream(access_a.url, feed.name, from_=border) as stream:
        assert stream.headers["edgewake-start"] == "time"
        assert numbers(await stream.take(2)) == [("dev-1", 3), ("dev-1", 4)]
    async with open_stream(access_a.url, feed.name, from_=border + 3_600_000) as stream:
        await stream.until_cursor()
        feed.send(n=1)
        assert numbers(await stream.take(1)) == [("dev-1", 5)]


async def test_aborted_transactions_and_markers_are_never_seen(
    access_a: Server, feed: Feed
) -> None:
    feed.send(n=1)
    feed.abort()
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        first = await stream.take(1)
        feed.abort()
        feed.send(n=1)
        assert numbers(first + await stream.take(1)) == [("dev-1", 1), ("dev-1", 2)]


async def test_filtered_out_events_advance_the_cursor(
    access_a: Server, access_b: Server, feed: Feed
) -> None:
    where = "n > 100"
    async with open_stream(access_a.url, feed.name, where=where) as stream:
        before = await stream.until_cursor()
        feed.send(n=50)
        await eventually_advances(stream, before)
        after = stream.parser.last_event_id
    codec_positions = positions_of(after)
    assert sum(offset for offset, _ in codec_positions) > sum(
        offset for offset, _ in positions_of(before)
    )
    feed.send(n=60)
    async with open_stream(access_b.url, feed.name, cursor=after, where=where) as stream:
        assert numbers(await stream.take(10)) == [("dev-1", n) for n in range(101, 111)]


async def test_the_first_block_and_all_progress_are_events_that_no_client_overlooks(
    access_a: Server, feed: Feed
) -> None:
    async with open_stream(access_a.url, feed.name, where="n > 100") as stream:
        feed.send(n=5)
        checkpoints = await stream.take(2, kinds=frozenset({"checkpoint"}))
    assert [orjson.loads(event.data) for event in checkpoints] == [
        {"cursor": event.id} for event in checkpoints
    ]
    assert bytes(stream.raw).count(b"id: ") == 2


async def test_progress_can_be_an_id_alone(access_a: Server, feed: Feed) -> None:
    async with open_stream(access_a.url, feed.name, where="n > 100", checkpoint="id") as stream:
        before = await stream.until_cursor()
        feed.send(n=5)
        await eventually_advances(stream, before)
    assert b"checkpoint" not in stream.raw


async def test_where_and_select_choose_and_shape(access_a: Server, feed: Feed) -> None:
    feed.send(n=6)
    query = {"where": "n % 2 = 0", "select": "n * 10 AS tens, device, missing", "from_": "earliest"}
    async with open_stream(access_a.url, feed.name, **query) as stream:
        events = await stream.take(3)
    assert [orjson.loads(e.data) for e in events] == [
        {"tens": 10.0 * n, "device": "dev-1", "missing": None} for n in (2, 4, 6)
    ]


async def test_a_device_s_loss_is_a_gap_event_also_through_a_filter(
    access_a: Server, feed: Feed
) -> None:
    async with open_stream(access_a.url, feed.name, where="n > 1000") as stream:
        await stream.until_cursor()
        feed.gap("dev-1", 7)
        (gap,) = await stream.take(1, kinds=frozenset({"gap"}))
    fields = orjson.loads(gap.data)
    assert (fields["scope"], fields["device"], fields["lost"], fields["reason"]) == (
        "device",
        "dev-1",
        7,
        "quota",
    )


async def test_a_filter_on_a_device_hides_the_losses_of_others(
    access_a: Server, feed: Feed
) -> None:
    async with open_stream(
        access_a.url, feed.name, where="device = 'dev-1' AND n > 1000"
    ) as stream:
        await stream.until_cursor()
        feed.gap("dev-2", 7)
        feed.gap("dev-1", 3)
        (gap,) = await stream.take(1, kinds=frozenset({"gap"}))
    assert orjson.loads(gap.data)["device"] == "dev-1"


async def test_results_come_with_their_watermarks_in_order(
    access_a: Server, query_feed: QueryFeed
) -> None:
    query_feed.batch(7, [{"device": "d", "mean": 1.5}], NOW_MS)
    async with open_stream(access_a.url, query_feed.name, from_="earliest") as stream:
        events = await stream.take(2, kinds=frozenset({"message", "watermark"}))
    assert [event.type for event in events] == ["message", "watermark"]
    assert orjson.loads(events[0].data) == {
        "query": query_feed.name,
        "revision": 7,
        "final": False,
        "device": "d",
        "mean": 1.5,
    }
    assert orjson.loads(events[1].data) == {
        "query": query_feed.name,
        "watermark": NOW_MS,
        "revision": 7,
    }


async def test_strings_arrive_as_they_were_sent(access_a: Server, feed: Feed) -> None:
    odd = [
        "a\nb",
        "\r",
        "\r\n\r\ndata: forged\n\n",
        "\u2028\u2029\x85",
        "\x01\x1f",
        "naïve 日本 🚗",
        'quote " \\ ',
        "id: x",
        "",
    ]
    feed.send(n=len(odd), fields={"text": odd})
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        events = await stream.take(len(odd))
    assert [orjson.loads(event.data)["text"] for event in events] == odd


# What cannot be resumed.


async def test_retention_that_passed_a_cursor_is_a_gap_with_the_count(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=1)
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        cursor = (await stream.take(1))[0].id
    for _ in range(10):
        feed.send(n=1)  # a record and a marker each: offsets 2, 4, … 20
    feed.trim(0, 12)
    async with open_stream(access_a.url, feed.name, cursor=cursor) as stream:
        # It still has in memory what Kafka has no more.
        assert stream.headers["edgewake-start"] == "resumed"
        assert numbers(await stream.take(10)) == [("dev-1", n) for n in range(2, 12)]
    async with open_stream(access_b.url, feed.name, cursor=cursor) as stream:
        assert stream.headers["edgewake-start"] == "gap"
        gap, *rest = await stream.take(6, kinds=frozenset({"gap", "message"}))
    fields = orjson.loads(gap.data)
    assert (fields["reason"], fields["from"], fields["earliest"], fields["lost"]) == (
        "retention",
        1,
        12,
        11,
    )
    assert numbers(rest) == [("dev-1", n) for n in range(7, 12)]
    async with open_stream(access_b.url, feed.name, cursor=gap.id) as stream:
        assert stream.headers["edgewake-start"] == "resumed"


async def test_a_topic_that_was_made_anew_is_a_gap_for_old_cursors(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=3)
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        cursor = (await stream.take(3))[-1].id
        await delete_topic(feed)
        again = new_feed(partitions=1, name=feed.name)
        again.send(device="reborn", n=2)
        async for _ in stream.events():
            pass
    assert stream.ended
    async with open_stream(access_a.url, feed.name, cursor=cursor) as stream:
        gap, *rest = await stream.take(3, kinds=frozenset({"gap", "message"}))
    assert orjson.loads(gap.data)["reason"] == "epoch"
    assert numbers(rest) == [("reborn", 1), ("reborn", 2)]


async def test_a_topic_made_anew_leaves_the_other_streams_where_they_were(
    access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    steady, mortal = new_feed(partitions=1), new_feed(partitions=1)
    steady.send(n=3)
    mortal.send(n=1)
    async with open_stream(access_b.url, steady.name, mortal.name, from_="earliest") as stream:
        cursor = (await stream.take(4))[-1].id
        await delete_topic(mortal)
        new_feed(partitions=1, name=mortal.name).send(device="reborn", n=1)
        async for _ in stream.events():  # until the server sees that the topic is another one
            pass
    steady.send(n=1)
    async with open_stream(access_b.url, steady.name, mortal.name, cursor=cursor) as stream:
        events = await stream.take(3, kinds=frozenset({"gap", "message"}))
    assert [
        (orjson.loads(e.data)["reason"], orjson.loads(e.data)["stream"])
        for e in events
        if e.type == "gap"
    ] == [("epoch", mortal.name)]
    assert sorted(numbers([e for e in events if e.type == "message"])) == [
        ("dev-1", 4),
        ("reborn", 1),
    ]


async def test_a_changed_filter_goes_on_where_it_was(
    access_a: Server, access_b: Server, feed: Feed
) -> None:
    feed.send(n=4)
    async with open_stream(access_a.url, feed.name, from_="earliest", where="n < 3") as stream:
        cursor = (await stream.take(2))[-1].id
    async with open_stream(access_b.url, feed.name, cursor=cursor, select="n, device") as stream:
        gap, *rest = await stream.take(3, kinds=frozenset({"gap", "message"}))
    fields = orjson.loads(gap.data)
    assert (fields["reason"], fields["continues"], fields["lost"]) == ("filter_changed", "here", 0)
    assert numbers(rest) == [("dev-1", 3), ("dev-1", 4)]


async def test_a_stream_more_leaves_the_one_before_where_it_was(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    first, second = new_feed(), new_feed()
    first.send(n=2)
    second.send(n=5)
    async with open_stream(access_a.url, first.name, from_="earliest") as stream:
        cursor = (await stream.take(1))[-1].id
    async with open_stream(access_a.url, first.name, second.name, cursor=cursor) as stream:
        gap, event = await stream.take(2, kinds=frozenset({"gap", "message"}))
        assert (orjson.loads(gap.data)["reason"], orjson.loads(gap.data)["stream"]) == (
            "stream_added",
            second.name,
        )
        assert numbers([event]) == [("dev-1", 2)]
        second.send(n=1)
        assert numbers(await stream.take(1)) == [("dev-1", 6)]


@pytest.fixture
async def two_gaps(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> tuple[Feed, str]:
    """A stream of which both partitions were trimmed, and a cursor of before, for `access_b`, which
    has none of it in memory.
    """
    feed = new_feed(partitions=2)
    for i in range(20):
        feed.send(f"dev-{i}", n=2)
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        cursor = (await stream.take(1))[0].id
    feed.trim(0, 10)
    feed.trim(1, 10)
    return feed, cursor


async def test_of_two_gaps_the_second_is_told_also_after_a_cut_between_them(
    access_b: Server, two_gaps: tuple[Feed, str]
) -> None:
    feed, cursor = two_gaps
    async with open_stream(access_b.url, feed.name, cursor=cursor) as stream:
        first, second = await stream.take(2, kinds=frozenset({"gap"}))
    async with open_stream(access_b.url, feed.name, cursor=first.id) as stream:
        (again,) = await stream.take(1, kinds=frozenset({"gap"}))
    assert [orjson.loads(e.data)["partition"] for e in (first, second, again)] == [0, 1, 1]
    assert orjson.loads(again.data) == orjson.loads(second.data)
    async with open_stream(access_b.url, feed.name, cursor=second.id) as stream:
        assert stream.headers["edgewake-start"] == "resumed"


async def test_a_client_that_asked_to_stop_at_a_gap_is_stopped_for_good(
    access_b: Server, two_gaps: tuple[Feed, str]
) -> None:
    """Its next request, which a browser makes by itself, is answered 204; one with another policy
    goes on with the gaps it was told.
    """
    feed, cursor = two_gaps
    async with open_stream(access_b.url, feed.name, cursor=cursor, on_gap="stop") as stream:
        events = [event async for event in stream.events()]
    assert [event.type for event in events] == ["gap", "gap"]
    for event in events:
        async with open_stream(access_b.url, feed.name, cursor=event.id, on_gap="stop") as stream:
            assert (stream.status, stream.headers["edgewake-start"]) == (204, "stopped")
    async with open_stream(access_b.url, feed.name, cursor=events[0].id, on_gap="latest") as stream:
        assert [
            e.data.replace("latest", "stop") for e in await stream.take(2, kinds=frozenset({"gap"}))
        ]


@pytest.mark.parametrize(("on_gap", "expected"), [("earliest", [1, 2]), ("latest", [3])])
async def test_a_cursor_that_cannot_be_verified_is_a_gap_and_the_policy_goes_on(
    access_a: Server, feed: Feed, on_gap: str, expected: list[int]
) -> None:
    """Signed by a key that was retired, damaged on its way, or of a version to come: nothing that
    should end a browser's stream.
    """
    feed.send(n=2)
    async with open_stream(access_a.url, feed.name) as stream:
        cursor = await stream.until_cursor()
    retired = CursorCodec(CursorKeys({1: b"x" * 32}, 1)).encode(decode_unsigned(cursor))
    damaged = cursor[:-2] + ("AA" if not cursor.endswith("AA") else "BB")
    for text in (retired, damaged, "v3" + cursor[2:]):
        async with open_stream(access_a.url, feed.name, cursor=text, on_gap=on_gap) as stream:
            assert stream.status == 200
            (gap,) = await stream.take(1, kinds=frozenset({"gap"}))
            fields = orjson.loads(gap.data)
            assert (fields["reason"], fields["continues"], fields["streams"]) == (
                "unverifiable",
                on_gap,
                [feed.name],
            )
            if on_gap == "latest":
                feed.send(n=1)
            assert [n for _, n in numbers(await stream.take(len(expected)))] == expected
        expected = [expected[0] + 1] if on_gap == "latest" else expected


async def test_a_restart_without_a_configured_key_file_continues_every_cursor(
    access_directory: Path,
    kafka_config: KafkaConfig,
    feed: Feed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    feed.send(n=2)
    with server(access_directory, kafka_config, None) as first:
        async with open_stream(first.url, feed.name, from_="earliest") as stream:
            cursor = (await stream.take(1))[0].id
    with server(access_directory, kafka_config, None) as second:
        async with open_stream(second.url, feed.name, cursor=cursor) as stream:
            assert numbers(await stream.take(1)) == [("dev-1", 2)]
            assert stream.headers["edgewake-start"] == "resumed"


async def test_keys_are_rotated_in_a_running_server(
    access_directory: Path, kafka_config: KafkaConfig, feed: Feed, tmp_path: Path
) -> None:
    """The old key verifies until it is taken out; nobody is told a gap before, and a retired one is
    a gap and no refusal.
    """
    first, second, keys = f"1 {'aa' * 32}", f"2 {'bb' * 32}", tmp_path / "keys"

    def replace_keys(*lines: str) -> None:
        (tmp_path / "new").write_text("\n".join(lines))
        (tmp_path / "new").replace(keys)

    async def how(cursor: str) -> tuple[str, str]:
        """How a stream begins with a cursor, and its first id."""
        async with open_stream(running.url, feed.name, cursor=cursor) as stream:
            return stream.headers["edgewake-start"], await stream.until_cursor()

    async def until(key_id: int) -> str:
        while base64.urlsafe_b64decode((found := (await how(""))[1])[3:7])[0] != key_id:
            await asyncio.sleep(0.05)
        return found

    replace_keys(first)
    with server(access_directory, kafka_config, keys) as running:
        old = await until(1)
        replace_keys(f"{first} verify", f"{second} sign")
        new = await until(2)
        assert [(await how(cursor))[0] for cursor in (old, new)] == ["resumed", "resumed"]
        replace_keys(second)
        async with asyncio.timeout(DEADLINE_S):
            while (await how(old))[0] != "gap":
                await asyncio.sleep(0.05)
        assert (await how(new))[0] == "resumed"


async def test_a_stream_that_is_away_for_a_moment_ends_nobody_who_has_its_cursor(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    """404 ends a browser's stream for good; who has a cursor of the stream did not misspell its
    name.
    """
    feed = new_feed(partitions=1)
    async with open_stream(access_a.url, feed.name) as stream:
        cursor = await stream.until_cursor()
    await delete_topic(feed)
    statuses = {404}
    while statuses != {404, 503}:  # the catalogue believes a topic's absence after some looks only
        statuses = set()
        for cursor_or_none in ("", cursor):
            async with open_stream(access_a.url, feed.name, cursor=cursor_or_none) as stream:
                statuses.add(stream.status)
        await asyncio.sleep(0.1)


# Helpers of this file.


async def eventually_advances(stream: Stream, before: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while stream.parser.last_event_id == before:
            piece = await stream.chunk()
            assert piece is not None
            stream.parser.feed(piece)


def decode_unsigned(text: str) -> Cursor:
    """Read a cursor without its key: the test is a forger."""
    body = base64.urlsafe_b64decode(text[3:] + "=" * (-len(text[3:]) % 4))
    return _read(body[:-10])


def positions_of(text: str) -> list[tuple[int, int]]:
    return [position for stream in decode_unsigned(text).streams for position in stream.partitions]


async def delete_topic(feed: Feed) -> None:
    client = clients.admin(feed.config)
    for future in client.delete_topics([feed.topic]).values():
        future.result(30)
    await eventually(lambda: metadata.partition_count(client, feed.topic) == 0, "the topic is gone")


async def test_the_first_answer_has_all_that_there_is_of_a_stream_that_nobody_read_before(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    feeds = [new_feed() for _ in range(3)]
    for i, feed in enumerate(feeds):
        for device in range(4 + i):
            feed.send(f"dev-{device}", 3)
    async with httpx.AsyncClient(base_url=access_a.url, timeout=PATIENCE_S) as client:
        for i, feed in enumerate(feeds):
            snapshot = (await client.get(f"/v1/latest/{feed.name}")).json()
            assert {row["device"]: row["n"] for row in snapshot["rows"]} == {
                f"dev-{device}": 3 for device in range(4 + i)
            }


async def test_a_snapshot_goes_on_as_a_stream_without_hole_or_repeat_while_writing_goes_on(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    """The control is the same without the cursor: who opens the stream after the snapshot misses
    what came between.
    """
    feed = new_feed()
    writing = asyncio.create_task(
        asyncio.to_thread(lambda: [feed.send(f"dev-{i % 3}", 2) for i in range(60)])
    )
    async with httpx.AsyncClient(base_url=access_a.url, timeout=PATIENCE_S) as client:
        snapshot = (await client.get(f"/v1/latest/{feed.name}")).json()
        while not snapshot["rows"]:
            snapshot = (await client.get(f"/v1/latest/{feed.name}")).json()
        await writing
        written = snapshot
        while sum(row["n"] for row in written["rows"]) < 3 * 40:
            written = (await client.get(f"/v1/latest/{feed.name}")).json()
    async with open_stream(access_a.url, feed.name) as control:
        await control.until_cursor()
        async with open_stream(access_a.url, feed.name, cursor=snapshot["cursor"]) as stream:
            feed.send("dev-0", 1)
            feed.send("dev-1", 1)
            feed.send("dev-2", 1)
            last = {row["device"]: int(row["n"]) for row in snapshot["rows"]}
            missing = 3 * 41 - sum(last.values())
            followed = numbers(await stream.take(missing))
        behind = dict(numbers(await control.take(3)))
    for device in ("dev-0", "dev-1", "dev-2"):
        assert [n for of, n in followed if of == device] == list(range(last.get(device, 0) + 1, 42))
    assert behind == dict.fromkeys(("dev-0", "dev-1", "dev-2"), 41)
    assert missing > 3, "the snapshot was taken while writing went on, so the control has holes"
