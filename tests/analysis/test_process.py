"""`edgewake analysis` as a process: it registers, starts, refuses, dies, comes back and stops."""

from __future__ import annotations

import os
import signal
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psutil
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.registry import built_in
from edgewake.cloud.summaries.summary import DAY_MS, Step
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.folds.test_patterns import episodes
from tests.analysis.support import (
    T0,
    Feed,
    declare,
    left_out,
    minutes,
    read,
    register,
    remove,
    results,
    sql,
    totals,
    truth,
    unique,
    windows,
)
from tests.services import Process, free_ports, part, wait_until, words_of

READY = '"event":"part.ready"'
LEADS = '"event":"analysis.leads"'
STANDS_BY = '"standby":true'
FEW_AT_ONCE = 40
"""Frames of a batch. A query that may leave readings out lags after two of four batches, and leaves
them out of the others."""
MINUTES = "window(event_time, '1 minute')"
PAIRS = """-- name: {name}
SELECT v.device AS vehicle, d.door FROM {stream} v LEFT JOIN {other} d
ON v.device = d.device
AND d.event_time BETWEEN v.event_time - INTERVAL 1 SECOND AND v.event_time + INTERVAL 1 SECOND
"""
READY_TO_COMPUTE = '"event":"lane.started"'
NewFeed = Callable[[Mapping[str, FieldType]], Feed]


def analysis_in(
    folder: Path,
    kafka: KafkaConfig,
    jars: Path,
    *,
    summary_interval_s: int = 0,
    trigger_ms: int = 100,
    records_max: int = 20_000,
) -> Process:
    """The analysis as a process, not started."""
    folder.mkdir(exist_ok=True)
    config = folder / "analysis.toml"
    (port,) = free_ports(1)
    config.write_text(
        f'data_dir = "{folder}/data"\njars_dir = "{jars}"\ntrigger_ms = '
        f"{trigger_ms}\nstate_partitions = 1\nsession_s = 4\n"
        f'metrics_port = {port}\ndriver_memory = "512m"\nsummary_interval_s = '
        f"{summary_interval_s}\nbatch_records_max = {records_max}\n"
        f'[kafka]\nbootstrap = "{kafka.bootstrap}"\n'
    )
    return part("analysis", config, folder / "analysis.log")


def why_not_ready(folder: Path) -> str:
    """What the analysis of this folder says to /readyz; `not there` where nobody answers."""
    port = tomllib.loads((folder / "analysis.toml").read_text())["metrics_port"]
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5)
    except httpx.HTTPError:
        return "not there"
    return "" if answer.status_code == 200 else str(answer.json()["detail"])


@pytest.fixture
def process(kafka_config: KafkaConfig, spark_jars: Path, tmp_path: Path) -> Iterator[Process]:
    """The analysis, not started; stopped at the end."""
    found = analysis_in(tmp_path, kafka_config, spark_jars)
    yield found
    if found.is_running():
        found.stop()


@pytest.fixture
def pair(kafka_config: KafkaConfig, spark_jars: Path, tmp_path: Path) -> Iterator[list[Process]]:
    """Two that sum up, with folders of their own."""
    more = {"summary_interval_s": 2, "trigger_ms": 1000, "records_max": FEW_AT_ONCE}
    found = [
        analysis_in(tmp_path / name, kafka_config, spark_jars, **more)
        for name in ("leader", "standby")
    ]
    yield found
    for each in found:
        if each.is_running():
            each.stop()


def progress(config: KafkaConfig, query: str) -> dict[str, Any]:
    """What the analysis last said of a query."""
    rows = [row.value for row in read(config, topics.PROGRESS) if row.key == query.encode()]
    return rows[-1] if rows else {}


def jvm_of(process: Process) -> psutil.Process:
    """Spark's JVM; on a slow machine another one makes the archive of its classes meanwhile."""
    (jvm,) = [
        child
        for child in psutil.Process(process.pid).children()
        if "org.apache.spark.deploy.SparkSubmit" in words_of(child)
    ]
    return jvm


def is_gone(process: psutil.Process) -> bool:
    """Has it ended? Whoever inherits an orphan may take its time to bury it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def total_by_minute(feed: Feed, name: str) -> str:
    return sql(
        feed.name,
        "device, sum(speed) AS total",
        "window(event_time, '1 minute'), device",
        name=name,
    )


@pytest.mark.long
def test_queries_come_run_fail_and_go_while_the_analysis_runs(
    process: Process, new_feed: NewFeed, tmp_path: Path
) -> None:
    """Built-in ones wait for their streams; one is added while they run; a bad one disturbs nobody;
    SIGTERM ends all.
    """
    feed = new_feed({"speed": FieldType.NUMBER})
    declare(feed)
    first, second, bad = unique("first"), unique("second"), unique("bad")
    register(feed, total_by_minute(feed, first), name=first)
    feed.send([T0], speed=[1.0])
    feed.flush()
    with process:
        wait_until(lambda: why_not_ready(tmp_path) != "not there", "its health can be asked for")
        assert why_not_ready(tmp_path), "it is ready before it knows whether it leads"
        wait_until(lambda: "starting, and" in why_not_ready(tmp_path), "it says that it starts")
        process.wait_for(READY)
        wait_until(lambda: totals(feed, first) == {(T0, "d1"): 1.0}, "the first result")
        wait_until(lambda: "starting" not in why_not_ready(tmp_path), "it has started")
        assert set(built_in()) <= {row.key.decode() for row in read(feed.config, topics.QUERIES)}
        waiting = "waits for stream 'vehicle_position'"
        wait_until(
            lambda: progress(feed.config, "top_streets").get("detail", "").startswith(waiting),
            "a built-in query waits",
        )

        register(feed, total_by_minute(feed, second), name=second)
        register(feed, total_by_minute(feed, bad).replace("speed", "sped"), name=bad)

        def answered() -> object:
            feed.send([T0 + 1_000], speed=[1.0])
            feed.flush()
            return totals(feed, second)

        wait_until(answered, "the first result of the new query")
        wait_until(
            lambda: progress(feed.config, bad).get("state") == "refused", "the bad query is refused"
        )
        assert "did you mean 'speed'" in progress(feed.config, bad)["detail"]
        wait_until(
            lambda: totals(feed, first) == {(T0, "d1"): float(len(feed.sent))},
            "the first query kept its state",
        )

        remove(feed, second)
        remove(feed, bad)
        wait_until(lambda: '"lane.stopped"' in process.output(), "the lane is restarted without it")
        feed.send([T0 + 2_000], speed=[1.0])
        feed.flush()
        wait_until(
            lambda: totals(feed, first) == {(T0, "d1"): float(len(feed.sent))},
            "the first query goes on alone",
        )

        jvm = jvm_of(process)
        assert process.stop() == 0
        assert is_gone(jvm)


def hot_spells(feed: Feed) -> dict[tuple[Any, ...], tuple[int, bool]]:
    """The oracle: (start, device) → how many readings the threshold has, and is it over."""
    found = {}
    for device in {reading["device"] for reading in feed.sent}:
        mine = [
            (reading["t"], {"speed": reading["speed"]})
            for reading in feed.sent
            if reading["device"] == device
        ]
        for places in episodes(mine, lambda speed: speed > 80, lambda speed: speed < 60, 0):
            found[mine[places[0]][0], device] = len(places), places[-1] + 1 < len(mine)
    return found


@pytest.mark.long
def test_after_kill_9_a_standby_goes_on_with_every_kind_of_query_and_who_comes_back_stands_by(
    pair: list[Process], new_feed: NewFeed, tmp_path: Path
) -> None:
    """The leader dies between Kafka's commit of a pattern's batch and Spark's, while the pattern is
    open, readings wait for partners in another stream, and a query that lags leaves some out;
    nobody takes turns after it.

    The summaries of a third stream get late readings all the time.
    """
    process, standby = pair
    feed, doors, calm = (
        new_feed({field: FieldType.NUMBER}) for field in ("speed", "door", "speed")
    )
    for one in (feed, doors, calm):
        declare(one)
    name, hot, thin, pairs = unique("killed"), unique("hot"), unique("thin"), unique("pairs")
    register(feed, total_by_minute(feed, name), name=name)
    register(
        feed,
        sql(
            feed.name,
            "device, count(*) AS n",
            "threshold_window(speed > 80, speed < 60), device",
            name=hot,
        ),
        name=hot,
    )
    counted = sql(
        feed.name,
        "device, count(*) AS n",
        f"{MINUTES}, device",
        name=thin,
        lateness="1 day",
        shed="random above 1 second",
    )
    register(feed, counted, name=thin, at_ms=T0 - DAY_MS)
    register(feed, PAIRS.format(name=pairs, stream=feed.name, other=doors.name), name=pairs)
    dies = tmp_path / "dies"
    process._env = {**os.environ, "EDGEWAKE_FAILPOINT": f"analysis.committed.sequence@{dies}"}
    process.start()
    process.wait_for(READY)
    jvm = jvm_of(process)
    standby.start()
    standby.wait_for(STANDS_BY)
    for t in (T0, T0 + DAY_MS, T0 + DAY_MS):  # what comes for the first minute after it is late
        calm.send([t], speed=[1.0])
        calm.flush()
        wait_until(lambda: summed_up(calm) == of_minutes(calm), "it is summed up")
    i = 0

    def send(count: int) -> None:
        nonlocal i
        for _ in range(count):
            feed.send([T0 + i * 500], device=f"d{i % 2}", speed=[85.0 + i % 10])
            if i % 5 == 0:
                doors.send([T0 + i * 500 + 700], device=f"d{i % 2}", door=[float(i)])
            calm.send([T0 + i], speed=[1.0])
            i += 1
        for one in (feed, doors, calm):
            one.flush()

    # No more while it computes them: each frame that comes later is one more batch of each lane.
    send(4 * FEW_AT_ONCE)
    wait_until(lambda: progress(feed.config, thin).get("shed"), "readings are left out")
    wait_until(lambda: spells(feed, hot), "a pattern is open")
    wait_until(lambda: results(feed.config, pairs), "pairs are told")
    dies.touch()
    send(1)
    wait_until(lambda: not process.is_running(), "the failpoint is reached")
    assert process.stop() == -signal.SIGKILL
    wait_until(lambda: is_gone(jvm), "the JVM is gone with its driver")
    assert not any(is_over for _, is_over in spells(feed, hot).values())
    left_out_before = sum(left_out(feed.config, thin).values())
    assert left_out_before

    standby.wait_for(READY_TO_COMPUTE)
    process._env = None
    process.start()
    wait_until(lambda: STANDS_BY in process.output(), "the one that died stands by")
    for device in ("d0", "d1"):
        feed.send(
            [T0 + i * 500, T0 + i * 500 + 1, T0 + i * 500 + 2],
            device=device,
            speed=[90.0, 50.0, 99.0],
        )
    end = T0 + i * 500 + 120_000
    for one in (feed, doors):  # so that no partner of the others can come any more
        values: dict[str, Any] = {field: [0.0] for field in one.types}
        one.send([end], device="clock", **values)
        one.flush()
    expected = {
        place: sum(v)
        for place, v in windows(
            feed.sent, 60_000, 60_000, lambda r: (r["device"],), "speed"
        ).items()
    }
    wait_until(lambda: totals(feed, name) == expected, "the sums of all that was sent")
    wait_until(
        lambda: spells(feed, hot) == hot_spells(feed), "the pattern's windows of all that was sent"
    )
    whole = pairs_in_duckdb(feed, doors, end)
    wait_until(lambda: paired(feed, pairs, end) == whole, "the pairs of all that was sent")
    sent = Counter(reading["t"] // 60_000 * 60_000 for reading in feed.sent)
    wait_until(
        lambda: taken(feed, thin) + Counter(left_out(feed.config, thin)) == sent,
        "what was taken and what was left out is what was sent",
    )
    calm.send([T0 + DAY_MS], speed=[1.0])
    calm.flush()
    wait_until(
        lambda: summed_up(calm) == of_minutes(calm),
        "the summaries of all that was sent, late or not",
    )
    assert process.stop() == standby.stop() == 0
    for query in (name, hot, thin, pairs):
        rows = [
            (
                row["window_start"],
                row["device"],
                row.get("partner"),
                row.get("reading"),
                row["revision"],
            )
            for row in results(feed.config, query)
        ]
        assert len(rows) == len(set(rows))
    assert any(row["maker"] for row in minutes(calm).values()), "some were late"
    assert "lane.failed" not in standby.output()
    assert "summaries.failed" not in standby.output()
    assert process.output().count(LEADS) == 1


def taken(feed: Feed, query: str) -> Counter[int]:
    """Window's start → readings that its rows are made of."""
    found: Counter[int] = Counter()
    for row in truth(results(feed.config, query), "device").values():
        found[row["window_start"]] += round(row["n"] * row.get("kept", 1))
    return found


def paired(feed: Feed, query: str, end: int) -> list[tuple[Any, ...]]:
    """Time, device and door of each pair that was told of readings before `end`."""
    return sorted(
        (
            (row["window_start"], row["device"], row["door"])
            for row in results(feed.config, query)
            if row["window_start"] < end
        ),
        key=str,
    )


def pairs_in_duckdb(feed: Feed, doors: Feed, end: int) -> list[tuple[Any, ...]]:
    """What a database gives for the same JOIN."""
    with duckdb.connect() as database:
        for table, readings, column in (("v", feed.sent, "speed"), ("d", doors.sent, "door")):
            database.execute(f"CREATE TABLE {table} (t BIGINT, device TEXT, {column} DOUBLE)")
            database.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?)",
                [[one["t"], one["device"], one[column]] for one in readings],
            )
        join = "v LEFT JOIN d ON v.device = d.device AND d.t BETWEEN v.t - 1000 AND v.t + 1000"
        return sorted(
            database.execute(
                f"SELECT v.t, v.device, d.door FROM {join} WHERE v.t < {end}"
            ).fetchall(),
            key=str,
        )


def summed_up(feed: Feed) -> Counter[int]:
    """Begin of the minute → readings."""
    found: Counter[int] = Counter()
    for row in minutes(feed).values():
        found[row["start"]] += row["readings"]
    return found


def of_minutes(feed: Feed) -> Counter[int]:
    """The same, as they were sent."""
    return Counter(Step.MINUTE.floor(reading["t"]) for reading in feed.sent)


def spells(feed: Feed, query: str) -> dict[tuple[Any, ...], tuple[int, bool]]:
    """(start, device) → readings, and is it over, as was told last."""
    return {
        place: (row["n"], row["final"])
        for place, row in truth(results(feed.config, query), "device").items()
    }


def test_without_the_connector_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "analysis.toml"
    config.write_text(f'data_dir = "{tmp_path}"\njars_dir = "{tmp_path}/nothing"\n')
    with part("analysis", config, tmp_path / "log") as process:
        wait_until(lambda: not process.is_running(), "it ends")
    assert process.stop() == 2
    assert "no spark-sql-kafka-*.jar in it" in process.output()
