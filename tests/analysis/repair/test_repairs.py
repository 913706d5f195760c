"""Windows computed again from the log while the analysis runs: late readings are folded in, older
windows filled, nobody else is told.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs import aggregate_job, placed_rows
from edgewake.cloud.analysis.plan import shed_policy
from edgewake.cloud.analysis.plan.decode import readings
from edgewake.cloud.analysis.repair import past, repairs
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.lake.config import LakeConfig
from edgewake.cloud.lake.manifest import contents
from edgewake.cloud.lake.writer import Writer
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.preview import Preview
from edgewake.protocol.ops.repair import Repair, RepairKind
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    declare,
    late_readings,
    left_out,
    read,
    register,
    results,
    sql,
    topic_ends,
    truth,
    unique,
    windows,
)
from tests.analysis.test_process import progress
from tests.analysis.test_run import _no_query_stays, delete_first_records, running  # noqa: F401
from tests.services import wait_until

MINUTE = 60_000
HOUR = 60 * MINUTE


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def ask(
    feed: Feed,
    query: str,
    begin: int,
    end: int | None = None,
    *,
    kind: RepairKind = RepairKind.REPAIR,
    lossy: bool = False,
) -> str:
    """Ask for a repair, as the operations API does."""
    topic_admin.ensure_topics(feed.config, [topics.REPAIRS])
    registered_at = [
        row.value["registered_at"]
        for row in read(feed.config, topics.QUERIES)
        if row.key == query.encode()
    ][-1]
    asked = Repair(
        id=unique("repair"),
        query=query,
        registered_at=registered_at,
        kind=kind,
        begin=begin,
        end=end,
        lossy=lossy,
        asked_at=now_ms(),
        asked_by="test",
        updated_at=now_ms(),
    )
    feed.producer.produce(topics.REPAIRS, asked.model_dump_json().encode(), asked.id)
    feed.flush()
    return asked.id


def history(feed: Feed, repair: str) -> list[dict[str, Any]]:
    return [row.value for row in read(feed.config, topics.REPAIRS) if row.key == repair.encode()]


def until(feed: Feed, repair: str, state: str) -> dict[str, Any]:
    wait_until(
        lambda: history(feed, repair)[-1]["state"] == state,
        f"the repair is {state}: {history(feed, repair)[-1]}",
    )
    return history(feed, repair)[-1]


def counts(feed: Feed, query: str) -> dict[tuple[Any, ...], int]:
    return {place: row["n"] for place, row in truth(results(feed.config, query), "device").items()}


def expected(feed: Feed) -> dict[tuple[Any, ...], int]:
    found = windows(feed.sent, MINUTE, MINUTE, lambda reading: (reading["device"],), "speed")
    return {place: len(values) for place, values in found.items()}


def close_all(feed: Feed, queries: list[str], after_ms: int) -> None:
    """Let event time go on until every window that there is was closed."""
    feed.send([after_ms + HOUR], device="clock", speed=[0.0])
    feed.flush()
    for query in queries:
        wait_until(
            lambda query=query: (progress(feed.config, query).get("watermark") or 0) >= after_ms,  # type: ignore[misc]
            "closed",
        )


def test_late_readings_are_folded_in_once_and_what_changed_is_recorded(
    analysis: Analysis, feed: Feed
) -> None:
    """Counts, distinct values, and rows that HAVING lets through no more; another query of the
    stream is told nothing.
    """
    select = "device, count(*) AS n, sum(speed) AS total"
    group = "window(event_time, '1 minute'), device"
    plain, few, quantile, other = (
        unique("plain"),
        unique("few"),
        unique("quantile"),
        unique("other"),
    )
    declare(feed)
    register(feed, sql(feed.name, select, group, name=plain, lateness="0 seconds"), name=plain)
    register(
        feed,
        sql(feed.name, select, f"{group} HAVING count(*) < 3", name=few, lateness="0 seconds"),
        name=few,
    )
    median = "device, count(*) AS n, approx_percentile(speed, 0.5) AS median"
    register(
        feed, sql(feed.name, median, group, name=quantile, lateness="0 seconds"), name=quantile
    )
    register(feed, sql(feed.name, select, group, name=other, lateness="0 seconds"), name=other)
    for minute in range(3):
        feed.send(
            [T0 + minute * MINUTE + 1, T0 + minute * MINUTE + 2], device="a", speed=[1.0, 2.0]
        )
    with running(analysis):
        close_all(feed, [plain, few, quantile, other], T0 + 3 * MINUTE)
        feed.send([T0 + 5, T0 + MINUTE + 5], device="a", received_at=T0 + HOUR, speed=[10.0, 20.0])
        feed.send([T0 + 7], device="returned", received_at=T0 + HOUR, speed=[3.0])
        feed.flush()
        wait_until(
            lambda: sum(one["readings"] for one in late_readings(feed.config, plain)) == 3,
            "they are late",
        )
        assert counts(feed, plain)[T0, "a"] == 2
        untouched = results(feed.config, other)

        asked = {query: ask(feed, query, T0, T0 + 3 * MINUTE) for query in (plain, few, quantile)}
        done = {query: until(feed, one, "done") for query, one in asked.items()}
        again = {
            query: until(feed, ask(feed, query, T0, T0 + 3 * MINUTE), "done") for query in asked
        }

    assert counts(feed, plain) == counts(feed, quantile) == expected(feed)
    rows = [
        row
        for row in results(feed.config, plain)
        if (row["window_start"], row["device"]) == (T0, "a")
    ]
    assert (rows[-1]["total"], rows[-1]["final"]) == (13.0, True)
    assert [row["revision"] for row in rows] == sorted({row["revision"] for row in rows})
    what = ("added", "changed", "withdrawn", "unchanged", "unknown")
    assert [done[plain][name] for name in what] == [1, 2, 0, 1, 0]
    assert [done[few][name] for name in what] == [1, 0, 2, 1, 0]
    assert [
        truth(results(feed.config, few), "device")[T0 + i * MINUTE, "a"].get("withdrawn")
        for i in range(3)
    ] == [True, True, None]
    assert {tuple(one[name] for name in what[:3]) for one in again.values()} == {(0, 0, 0)}, (
        "asked again it changes nothing"
    )
    assert (done[plain]["asked_by"], done[plain]["begin"], done[plain]["end"]) == (
        "test",
        T0,
        T0 + 3 * MINUTE,
    )
    assert results(feed.config, other) == untouched
    assert sum(one["readings"] for one in late_readings(feed.config, other)) == 3


@pytest.mark.long
def test_a_query_gets_the_windows_of_before_it_was_registered_even_more_than_a_step_may_have(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "ROWS_MAX", 3)
    first, later = unique("first"), unique("later")
    text = "device, count(*) AS n", "window(event_time, '1 minute'), device"
    declare(feed)
    register(feed, sql(feed.name, *text, name=first, lateness="0 seconds"), name=first)
    for minute in range(10):
        feed.send([T0 + minute * MINUTE], device="a", speed=[1.0])
    with running(analysis):
        wait_until(lambda: len(counts(feed, first)) == 10, "the first query has them")
        register(feed, sql(feed.name, *text, name=later, lateness="0 seconds"), name=later)
        repair = ask(feed, later, T0 + 2 * MINUTE + 30_000, kind=RepairKind.BACKFILL)
        wait_until(
            lambda: history(feed, repair)[-1]["detail"].startswith("windows that begin before"),
            "the closed ones are done",
        )
        close_all(feed, [later], now_ms() + MINUTE)
        done = until(feed, repair, "done")
    rows = truth(results(feed.config, later), "device")
    assert {place: row["n"] for place, row in rows.items() if place[1] == "a"} == {
        (T0 + i * MINUTE, "a"): 1 for i in range(2, 10)
    }
    assert all(row.get("complete", True) for place, row in rows.items() if place[1] == "a")
    assert done["added"] == 8
    assert sum(row["state"] == "running" for row in history(feed, repair)) > 1, (
        "it took several steps"
    )


@pytest.mark.long
def test_a_query_that_may_leaves_readings_out_while_it_lags_says_so_and_a_repair_gives_the_truth(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of an hour, read a few frames at a time.

    The query beside it lags as much, and may leave out nothing.
    """
    monkeypatch.setattr(shed_policy, "STEP_MS", 0)
    monkeypatch.setattr(shed_policy, "CALM_MS", 200)
    thin, whole = unique("thin"), unique("whole")
    text = (
        "device, count(*) AS n, sum(speed) AS total, max(speed) AS most",
        "window(event_time, '1 minute'), device",
    )
    declare(feed)
    register(feed, sql(feed.name, *text, name=whole, lateness="10 minutes"), name=whole)
    shed = "random above 60 seconds except where speed > 900"
    register(
        feed,
        sql(feed.name, *text, name=thin, lateness="10 minutes", shed=shed),
        name=thin,
        at_ms=now_ms() - 2 * HOUR,
    )
    for i in range(32):
        at = T0 + i // 8 * MINUTE + i % 8 * 7_000
        speeds = [999.0 if j == i else 10.0 + (i + j) % 7 for j in range(50)]
        feed.send(
            [at + j for j in range(50)],
            device=f"d{i % 2}",
            received_at=now_ms() - HOUR,
            speed=speeds,
        )
    feed.flush()

    with running(analysis.with_config(batch_records_max=4)):
        wait_until(
            lambda: progress(feed.config, thin).get("kept", 1.0) < 1, "readings are left out"
        )
        assert "behind" in progress(feed.config, thin)["detail"]

        def is_whole_again() -> bool:
            found = progress(feed.config, thin)
            if found["lag"] == 0 and found["kept"] < 1:
                feed.send(
                    [T0 + 3 * MINUTE + 59_000], device="d0", received_at=now_ms(), speed=[12.0]
                )
                feed.flush()
            return bool(found["kept"] == 1)

        wait_until(is_whole_again, "all readings are taken again")
        close_all(feed, [thin, whole], T0 + 4 * MINUTE)
        sent = windows(feed.sent, MINUTE, MINUTE, lambda reading: (reading["device"],), "speed")
        rows = truth(results(feed.config, thin), "device")
        lacking = left_out(feed.config, thin)
        repair = until(feed, ask(feed, thin, T0, T0 + 4 * MINUTE), "done")

    assert {row["kept"] for row in read_progress(feed, whole)} == {1.0}
    assert totals_of(feed, whole) == {
        place: (len(values), sum(values)) for place, values in sent.items()
    }
    thinned = {place: row for place, row in rows.items() if "kept" in row}
    assert thinned
    assert all(row["most"] == 999 for row in rows.values() if row["device"] != "clock"), (
        "what matters is never left out"
    )
    for row in thinned.values():
        assert (
            abs(row["n"] - len(sent[row["window_start"], row["device"]])) <= 3 * row["margins"]["n"]
        )
        assert (
            abs(row["total"] - sum(sent[row["window_start"], row["device"]]))
            <= 3 * row["margins"]["total"]
        )
        assert row["of_kept"] == ["most"]
    for minute in range(4):
        mine = [row for (start, _), row in rows.items() if start == T0 + minute * MINUTE]
        taken = sum(round(row["n"] * row.get("kept", 1)) for row in mine)
        assert taken + lacking.get(T0 + minute * MINUTE, 0) == sum(
            len(values) for (start, _), values in sent.items() if start == T0 + minute * MINUTE
        )
    assert read_progress(feed, thin)[-1]["shed"] == sum(lacking.values())
    assert repair["changed"] == len(thinned)
    assert totals_of(feed, thin) == totals_of(feed, whole)
    assert all("kept" not in row for row in truth(results(feed.config, thin), "device").values())


def read_progress(feed: Feed, query: str) -> list[dict[str, Any]]:
    return [row.value for row in read(feed.config, topics.PROGRESS) if row.key == query.encode()]


def totals_of(feed: Feed, query: str) -> dict[tuple[Any, ...], tuple[int, float]]:
    return {
        place: (row["n"], row["total"])
        for place, row in truth(results(feed.config, query), "device").items()
    }


def preview(feed: Feed, text: str, *, rows_max: int = 100, asked_at: int | None = None) -> str:
    """Ask for a preview, as the operations API does."""
    topic_admin.ensure_topics(feed.config, [topics.PREVIEWS])
    asked = Preview(
        id=unique("preview"),
        text=text,
        since=now_ms() - HOUR,
        rows_max=rows_max,
        asked_at=asked_at or now_ms(),
    )
    feed.producer.produce(topics.PREVIEWS, asked.model_dump_json().encode(), asked.id)
    feed.flush()
    return asked.id


def answered(feed: Feed, asked: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []

    def is_answered() -> bool:
        rows[:] = [
            row.value for row in read(feed.config, topics.PREVIEWS) if row.key == asked.encode()
        ]
        return rows[-1]["rows"] is not None or bool(rows[-1]["error"])

    wait_until(is_answered, "the preview is answered")
    return rows[-1]


def test_previews_are_answered_beside_the_lanes_and_register_nothing(
    analysis: Analysis, feed: Feed
) -> None:
    """One that failed harms none after it; one that nobody waits for any more is left out."""
    text = sql(
        feed.name,
        "device, count(*) AS n",
        "window(event_time, '1 minute'), device",
        name=unique("seen"),
    )
    declare(feed)
    for minute in range(3):
        feed.send([T0 + minute * MINUTE, T0 + minute * MINUTE + 1], device="a", speed=[1.0, 2.0])
    feed.flush()
    with running(analysis):
        old = preview(feed, text, asked_at=now_ms() - HOUR)
        failed, whole, cut = (
            preview(feed, text.replace(feed.name, "nowhere")),
            preview(feed, text),
            preview(feed, text, rows_max=2),
        )
        assert "nowhere" in answered(feed, failed)["error"]
        found = answered(feed, whole)
        assert {(row["window_start"], row["n"]) for row in map(json.loads, found["rows"])} == {
            (T0 + i * MINUTE, 2) for i in range(3)
        }
        assert (
            len(answered(feed, cut)["rows"]),
            answered(feed, cut)["is_cut"],
            found["is_cut"],
        ) == (2, True, False)
    assert [
        row.value["rows"] for row in read(feed.config, topics.PREVIEWS) if row.key == old.encode()
    ] == [None]


@pytest.mark.long
def test_what_cannot_be_computed_again_is_refused_with_the_time_from_which_it_can(
    analysis: Analysis, feed: Feed
) -> None:
    cut, rows = unique("cut"), unique("rows")
    declare(feed)
    register(
        feed,
        sql(feed.name, "device, count(*) AS n", "window(event_time, '1 minute'), device", name=cut),
        name=cut,
    )
    register(
        feed, f"-- name: {rows}\nSELECT device, speed FROM {feed.name} WHERE speed > 0", name=rows
    )
    for minute in range(5):
        feed.send([T0 + minute * MINUTE], device="a", speed=[1.0])
    with running(analysis):
        close_all(feed, [cut], T0 + 5 * MINUTE)
        delete_first_records(feed)
        asked = [ask(feed, cut, T0), ask(feed, rows, T0)]
        refused = [until(feed, one, "refused")["detail"] for one in asked]
        before = results(feed.config, cut)
    assert "retention deleted readings" in refused[0]
    assert "or later can be computed" in refused[0]
    assert "read its stream from an earlier time" in refused[1]
    assert results(feed.config, cut) == before


def without_device_b(of_frames: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """A fault in our code, that was mended since."""
    return lambda *arguments, **more: of_frames(*arguments, **more).where(F.col("device") != "b")


@pytest.mark.long
def test_a_rebuild_tells_what_a_wrong_state_made_wrong_and_nothing_else(
    analysis: Analysis, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed windows, open ones, sessions; another query of the lane is told nothing, though its
    state is mended, too.
    """
    minutes, sessions, other = unique("minutes"), unique("sessions"), unique("other")
    select, minute = "device, count(*) AS n", "window(event_time, '1 minute'), device"
    declare(feed)
    register(feed, sql(feed.name, select, minute, name=minutes, lateness="0 seconds"), name=minutes)
    register(feed, sql(feed.name, select, minute, name=other, lateness="0 seconds"), name=other)
    group = "session_window(event_time, '10 minutes'), device"
    register(
        feed, sql(feed.name, select, group, name=sessions, lateness="0 seconds"), name=sessions
    )
    for device in ("a", "b"):
        feed.send([T0 + i * MINUTE // 2 for i in range(6)], device=device, speed=[1.0] * 6)
        feed.send(
            [T0 + HOUR, T0 + HOUR + 1], device=device, speed=[1.0, 1.0], received_at=T0 + HOUR + 1
        )

    def of_sessions() -> dict[tuple[Any, ...], int]:
        rows = truth(results(feed.config, sessions), "device")
        return {place: row["n"] for place, row in rows.items() if not row.get("withdrawn")}

    feed.flush()
    with monkeypatch.context() as fault:
        fault.setattr(aggregate_job, "readings", without_device_b(readings))
        fault.setattr(placed_rows, "readings", without_device_b(readings))
        with running(analysis):
            wait_until(
                lambda: counts(feed, minutes).get((T0 + HOUR, "a")) == 2, "the open window is told"
            )
            wait_until(lambda: of_sessions().get((T0 + HOUR, "a")) == 2, "the open session is told")
    with running(analysis):
        feed.send([T0 + HOUR + 2], device="b", speed=[1.0])
        wait_until(
            lambda: counts(feed, other).get((T0 + HOUR, "b")) == 1,
            "control: the state stays as wrong as it was",
        )
        wait_until(
            lambda: of_sessions().get((T0 + HOUR + 2, "b")) == 1, "control: of sessions, too"
        )
        untouched = results(feed.config, other)
        done = {
            query: until(feed, ask(feed, query, 0, kind=RepairKind.REBUILD), "done")
            for query in (minutes, sessions)
        }
        again = {
            query: until(feed, ask(feed, query, 0, kind=RepairKind.REBUILD), "done")
            for query in (minutes, sessions)
        }
        assert counts(feed, minutes) == expected(feed)
        assert results(feed.config, other) == untouched
        feed.send([T0 + HOUR + 3], device="b", speed=[1.0])
        wait_until(
            lambda: counts(feed, other).get((T0 + HOUR, "b")) == 4,
            "the other query's state is mended with it",
        )
        wait_until(lambda: of_sessions().get((T0 + HOUR, "b")) == 4, "the session goes on")
        wait_until(lambda: counts(feed, minutes) == expected(feed), "the window goes on")
    what = ("added", "changed", "unchanged", "kept_from", "asked_by")
    assert [done[minutes][name] for name in what] == [3, 1, 4, None, "test"]
    assert of_sessions() == {(T0, "a"): 6, (T0, "b"): 6, (T0 + HOUR, "a"): 2, (T0 + HOUR, "b"): 4}
    assert done[sessions]["withdrawn"] == 1, "the one that began in the middle"
    assert {tuple(one[name] for name in what[:2]) for one in again.values()} == {(0, 0)}, (
        "asked again it tells nothing"
    )
    assert results(feed.config, minutes)[-1].get("complete", True)


@pytest.mark.long
def test_a_rebuild_that_would_lose_what_retention_took_is_refused_unless_that_is_wanted(
    analysis: Analysis, feed: Feed
) -> None:
    cut, sessions = unique("cut"), unique("sessions")
    declare(feed)
    register(
        feed,
        sql(feed.name, "device, count(*) AS n", "window(event_time, '1 hour'), device", name=cut),
        name=cut,
    )
    group = "session_window(event_time, '1 hour'), device"
    register(feed, sql(feed.name, "device, count(*) AS n", group, name=sessions), name=sessions)

    def send_and_wait(n: int) -> dict[str, Any]:
        feed.send([T0 + len(feed.sent)], device="a", speed=[1.0])
        feed.flush()
        wait_until(
            lambda: all(
                results(feed.config, query)[-1:] and results(feed.config, query)[-1]["n"] == n
                for query in (cut, sessions)
            ),
            "told",
        )
        return results(feed.config, cut)[-1]

    with running(analysis):
        for i in range(3):
            send_and_wait(i + 1)
        delete_first_records(feed)
        refused = [
            until(feed, ask(feed, query, 0, kind=RepairKind.REBUILD), "refused")["detail"]
            for query in (cut, sessions)
        ]
        assert all(
            "retention deleted readings of before" in one and "--lossy" in one for one in refused
        )
        assert cut in refused[0]
        assert send_and_wait(4).get("complete", True), "nothing was lost by asking"
        lossy = [
            until(feed, ask(feed, query, 0, kind=RepairKind.REBUILD, lossy=True), "done")
            for query in (cut, sessions)
        ]
        assert all(one["kept_from"] > T0 + HOUR for one in lossy)
        last = send_and_wait(3)
    assert last["complete"] is False
    assert results(feed.config, sessions)[-1]["complete"] is False


@contextmanager
def lake_of(feed: Feed, folder: Path) -> Iterator[Callable[[], int]]:
    """A lake of the stream while it is written; gives how many rows it has."""
    stop = threading.Event()
    writer = Writer(
        LakeConfig(data_dir=folder, every_s=0.2, only=(feed.name,), kafka=feed.config),
        clock=SystemClock(),
        rng=random.Random(1),
        stop=stop,
    )
    thread = threading.Thread(target=writer.run, name="lake")
    thread.start()
    try:
        yield lambda: sum(
            file.rows for file in contents(folder, [topics.stream_topic(feed.name)]).files
        )
    finally:
        stop.set()
        thread.join()


@pytest.mark.long
def test_a_repair_goes_on_in_the_lake_where_the_log_keeps_no_more_and_takes_each_reading_once(
    analysis: Analysis, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake has what Kafka deleted and more, and Kafka has what the lake has not.

    The first frame waited for three minutes in its device, and was under way when a minute ended.
    """
    folder, minutes = tmp_path / "lake", unique("minutes")
    declare(feed)
    by = {"event_time": minutes, "sent_at": unique("sent"), "received_at": unique("received")}
    for column, name in by.items():
        text = sql(
            feed.name,
            "device, count(*) AS n",
            f"window({column}, '1 minute'), device",
            name=name,
            lateness="0 seconds",
        )
        register(feed, text, name=name)
    for minute in range(4):
        waited: dict[str, Any] = (
            {"sent_at": T0 + 3 * MINUTE - 2_000, "received_at": T0 + 3 * MINUTE + 3_000}
            if minute == 0
            else {}
        )
        feed.send(
            [T0 + minute * MINUTE, T0 + minute * MINUTE + 1],
            device="a",
            speed=[1.0, 2.0],
            load=[None, 3.0],
            **waited,
        )
    with running(analysis.with_config(lake_dir=folder)):
        close_all(feed, list(by.values()), T0 + 4 * MINUTE)
        feed.send([T0 + MINUTE + 7], device="a", received_at=T0 + HOUR, speed=[5.0])
        feed.flush()
        with lake_of(feed, folder) as rows:
            wait_until(lambda: rows() == len(feed.sent), "the lake has all of it")
        topic = topics.stream_topic(feed.name)
        (partition,) = [
            partition for partition, end in topic_ends(feed.config, topic).items() if end >= 5
        ]
        client = clients.admin(feed.config)
        for future in client.delete_records([TopicPartition(topic, partition, 2)]).values():
            future.result(30)
        feed.send([T0 + 2 * MINUTE + 7], device="a", received_at=T0 + HOUR, speed=[5.0])
        feed.flush()
        wait_until(
            lambda: sum(one["readings"] for one in late_readings(feed.config, minutes)) == 2,
            "both are late",
        )
        done = until(feed, ask(feed, minutes, T0, T0 + 4 * MINUTE), "done")
        assert {place: n for place, n in counts(feed, minutes).items() if place[0] < T0 + HOUR} == {
            (T0 + i * MINUTE, "a"): n for i, n in enumerate((2, 3, 3, 2))
        }
        assert [done[name] for name in ("added", "changed", "unchanged", "unknown")] == [0, 2, 2, 0]
        for column, places in {
            "sent_at": {1: 2, 2: 4, 3: 2},
            "received_at": {1: 2, 2: 2, 3: 4},
        }.items():
            asked = until(feed, ask(feed, by[column], T0 + MINUTE, T0 + 4 * MINUTE), "done")
            assert [
                asked[name] for name in ("added", "changed", "withdrawn", "unchanged", "unknown")
            ] == [0, 0, 0, 3, 0], column
            found = {
                place[0]: n
                for place, n in counts(feed, by[column]).items()
                if place[0] < T0 + 4 * MINUTE
            }
            assert found == {T0 + i * MINUTE: n for i, n in places.items()}, column

        seam, frames = past.seam, past.frames
        monkeypatch.setattr(past, "seam", lambda *of: seam(*of) | {partition: 2})
        monkeypatch.setattr(
            past,
            "frames",
            lambda *of: frames(of[0], of[1], of[2], of[3], dict.fromkeys(of[4], 1 << 60), of[5]),
        )
        until(feed, ask(feed, minutes, T0, T0 + 4 * MINUTE), "done")
        assert counts(feed, minutes)[T0 + 2 * MINUTE, "a"] == 5, (
            "control: without the seam what both have is there twice"
        )
