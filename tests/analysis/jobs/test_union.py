"""A query of several streams is repaired, back-filled and rebuilt like one of one stream; an oracle
in plain Python says what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from edgewake.cloud.analysis.jobs import aggregate_job, placed_rows
from edgewake.cloud.kafka import clients
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops.repair import RepairKind
from tests.analysis.recomputed import recomputed
from tests.analysis.repair.test_repairs import HOUR, MINUTE, lake_of, now_ms, without_device_b
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    registered,
    results,
    topic_ends,
    truth,
    unique,
    windows,
)
from tests.services import wait_until

NewFeed = Callable[[Mapping[str, FieldType]], Feed]
SUMS = (
    "SELECT device, count(*) AS n, sum(speed) AS total, max(load) AS most FROM {} GROUP BY "
    "window(event_time, '1 minute'), device"
)
SESSIONS = (
    "SELECT device, count(*) AS n, sum(speed) AS total FROM {} GROUP BY "
    "session_window(event_time, '30 seconds'), device"
)


@pytest.fixture
def feeds(new_feed: NewFeed) -> tuple[Feed, Feed]:
    """Vans, and trucks that say their load, too."""
    return new_feed({"speed": FieldType.NUMBER}), new_feed(
        {"speed": FieldType.NUMBER, "load": FieldType.NUMBER}
    )


def files(feeds: Sequence[Feed], *selects: str) -> list[Registered]:
    both = f"({' UNION ALL '.join(f'SELECT * FROM {feed.name}' for feed in feeds)})"
    texts = [
        f"-- name: {unique('q')}\n-- lateness: 0 seconds\n{select.format(both)}"
        for select in selects
    ]
    return registered(*texts, streams=[feed.stream for feed in feeds])


def told(feeds: Sequence[Feed], query: Registered, *columns: str) -> dict[tuple[Any, ...], Any]:
    """Rows of before the hour, as each was told last."""
    latest = truth(results(feeds[0].config, query.query.name), "device")
    return {
        place: tuple(row[name] for name in columns)
        for place, row in latest.items()
        if place[0] < T0 + HOUR
    }


def expected(feeds: Sequence[Feed]) -> dict[tuple[Any, ...], Any]:
    sent = [reading for feed in feeds for reading in feed.sent if reading["t"] < T0 + HOUR]
    speeds, loads = (
        windows(sent, MINUTE, MINUTE, lambda reading: (reading["device"],), field)
        for field in ("speed", "load")
    )
    return {
        place: (len(found), sum(found), max(loads[place]) if place in loads else None)
        for place, found in speeds.items()
    }


def send_minutes(feeds: Sequence[Feed]) -> None:
    """Three minutes of both, the same device in each, and then event time goes on an hour."""
    vans, trucks = feeds
    for minute in range(3):
        at = T0 + minute * MINUTE
        vans.send([at + 1, at + 2], device="a", speed=[1.0, 2.0])
        trucks.send([at + 3], device="a", speed=[4.0], load=[7.0 + minute])
        trucks.send([at + 4], device="b", speed=[8.0], load=[1.0])
    for feed in feeds:
        feed.send([T0 + HOUR], device="clock", speed=[0.0])


def test_closed_windows_of_several_streams_are_repaired_and_back_filled_exactly(
    analysis: Analysis, feeds: tuple[Feed, Feed], tmp_path: Path
) -> None:
    first, second = files(feeds, SUMS, SUMS)
    vans, trucks = feeds
    send_minutes(feeds)
    analysis.run([first], *feeds)
    vans.send([T0 + MINUTE + 9], device="a", received_at=T0 + HOUR, speed=[16.0])
    trucks.send([T0 + 9], device="b", received_at=T0 + HOUR, speed=[32.0], load=[99.0])
    for (
        feed
    ) in feeds:  # a back-fill waits until windows of before the query's registration are closed
        feed.send([now_ms() + HOUR], device="clock", speed=[0.0])
    lane = analysis.run([first, second], *feeds)
    columns = ("n", "total", "most")
    assert told(feeds, first, *columns) != expected(feeds), "control: they are late"
    assert told(feeds, second, *columns) == {}, "and nobody asked the other one then"

    done = recomputed(analysis, lane, first, [first, second], feeds, RepairKind.REPAIR)
    assert (done.state, done.added, done.changed, done.unchanged) == ("done", 0, 2, 5)
    filled = recomputed(analysis, lane, second, [first, second], feeds, RepairKind.BACKFILL)
    assert (filled.state, filled.added) == ("done", 7)
    assert told(feeds, first, *columns) == told(feeds, second, *columns) == expected(feeds)
    again = recomputed(analysis, lane, first, [first, second], feeds, RepairKind.REPAIR)
    assert (again.added, again.changed, again.withdrawn) == (0, 0, 0)

    lake, topic = tmp_path / "lake", topics.stream_topic(trucks.name)
    with lake_of(trucks, lake) as rows:
        wait_until(lambda: rows() == len(trucks.sent), "the lake has all of the trucks")
    first_two = [
        TopicPartition(topic, partition, 2)
        for partition, end in topic_ends(trucks.config, topic).items()
        if end >= 2
    ]
    client = clients.admin(trucks.config)
    for future in client.delete_records(first_two).values():
        future.result(30)
    refused = recomputed(analysis, lane, first, [first, second], feeds, RepairKind.REPAIR)
    assert (refused.state, f"retention deleted readings of {topic}" in refused.detail) == (
        "refused",
        True,
    ), "control: without the lake"
    one_of_both = recomputed(
        analysis.with_config(lake_dir=lake), lane, first, [first, second], feeds, RepairKind.REPAIR
    )
    assert (one_of_both.state, one_of_both.changed, one_of_both.unchanged) == ("done", 0, 7), (
        "trucks from the lake, vans from the log"
    )


@pytest.mark.long
def test_a_rebuild_of_several_streams_makes_right_what_a_wrong_state_told(
    analysis: Analysis, feeds: tuple[Feed, Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reading of one device was passed over, in windows that are closed and in open ones;
    sessions too.
    """
    sums, sessions = files(feeds, SUMS, SESSIONS)
    send_minutes(feeds)
    vans, trucks = feeds
    with monkeypatch.context() as wrong:
        for module in (aggregate_job, placed_rows):
            wrong.setattr(module, "readings", without_device_b(module.readings))
        lanes = {one.label: analysis.run([one], *feeds) for one in (sums, sessions)}
        trucks.send([T0 + HOUR + 1], device="b", speed=[3.0], load=[2.0])
        lanes = {one.label: analysis.run([one], *feeds) for one in (sums, sessions)}
    assert {place[1] for place in told(feeds, sums, "n")} == {"a"}, "control"
    for one in (sums, sessions):
        done = recomputed(analysis, lanes[one.label], one, [one], feeds, RepairKind.REBUILD)
        assert done.state == "done", done.detail
    vans.send([T0 + HOUR + 2], device="b", speed=[5.0])
    for one in (sums, sessions):
        analysis.run([one], *feeds)

    assert told(feeds, sums, "n", "total", "most") == expected(feeds)
    latest = truth(results(vans.config, sums.query.name), "device")
    assert (latest[T0 + HOUR, "b"]["n"], latest[T0 + HOUR, "b"]["total"]) == (2, 8.0), (
        "an open window has what both streams brought"
    )
    found = {
        place: row
        for place, row in truth(results(vans.config, sessions.query.name), "device").items()
        if "withdrawn" not in row
    }
    assert {place: (row["n"], row["total"]) for place, row in found.items()} == {
        **{(T0 + i * MINUTE + 1, "a"): (3, 7.0) for i in range(3)},
        **{(T0 + i * MINUTE + 4, "b"): (1, 8.0) for i in range(3)},
        (T0 + HOUR, "clock"): (2, 0.0),
        (T0 + HOUR + 1, "b"): (2, 8.0),
    }
