"""`edgewake analysis` as a process: it registers, starts, refuses, dies, comes back and stops."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgewake.cloud.analysis.registry import built_in
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.summaries.summary import DAY_MS, Step
from edgewake.protocol import topics
from edgewake.protocol.field_type import FieldType
from tests.analysis.support import T0, Feed, declare, minutes, read, register, remove, results, sql, totals, truth, unique, windows
from tests.analysis.test_patterns import episodes
from tests.services import Process, free_ports, part, wait_until

READY = '"event":"part.ready"'
LEADS = '"event":"analysis.leads"'
STANDS_BY = '"standby":true'
READY_TO_COMPUTE = '"event":"lane.started"'
NewFeed = Callable[[Mapping[str, FieldType]], Feed]


def analysis_in(folder: Path, kafka: KafkaConfig, jars: Path, *, summary_interval_s: int = 0) -> Process:
    """The analysis as a process, not started."""
    folder.mkdir(exist_ok=True)
    config = folder / "analysis.toml"
    (port,) = free_ports(1)
    config.write_text(
        f'data_dir = "{folder}/data"\njars_dir = "{jars}"\ntrigger_ms = 100\nstate_partitions = 1\nsession_s = 4\nmetrics_port = {port}\n'
        f'driver_memory = "512m"\nsummary_interval_s = {summary_interval_s}\n[kafka]\nbootstrap = "{kafka.bootstrap}"\n'
    )
    return part("analysis", config, folder / "analysis.log")


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
    found = [analysis_in(tmp_path / name, kafka_config, spark_jars, summary_interval_s=1) for name in ("leader", "standby")]
    yield found
    for each in found:
        if each.is_running():
            each.stop()


def progress(config: KafkaConfig, query: str) -> dict[str, Any]:
    """What the analysis last said of a query."""
    rows = [row.value for row in read(config, topics.PROGRESS) if row.key == query.encode()]
    return rows[-1] if rows else {}


def jvm_of(process: Process) -> psutil.Process:
    (jvm,) = [child for child in psutil.Process(process.pid).children() if "java" in child.name()]
    return jvm


def is_gone(process: psutil.Process) -> bool:
    """Has it ended? Whoever inherits an orphan may take its time to bury it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def total_by_minute(feed: Feed, name: str) -> str:
    return sql(feed.name, "device, sum(speed) AS total", "window(event_time, '1 minute'), device", name=name)


def test_queries_come_run_fail_and_go_while_the_analysis_runs(process: Process, new_feed: NewFeed, tmp_path: Path) -> None:
    """Built-in ones wait for their streams; one is added while they run; a bad one disturbs nobody; SIGTERM ends all."""
    feed = new_feed({"speed": FieldType.NUMBER})
    declare(feed)
    first, second, bad = unique("first"), unique("second"), unique("bad")
    register(feed, total_by_minute(feed, first), name=first)
    feed.send([T0], speed=[1.0])
    feed.flush()
    with process:
        process.wait_for(READY, timeout_s=120)
        wait_until(lambda: totals(feed, first) == {(T0, "d1"): 1.0}, "the first result")
        assert set(built_in()) <= {row.key.decode() for row in read(feed.config, topics.QUERIES)}
        assert progress(feed.config, "top_streets")["detail"].startswith("waits for stream 'vehicle_position'")

        register(feed, total_by_minute(feed, second), name=second)
        register(feed, total_by_minute(feed, bad).replace("speed", "sped"), name=bad)

        def answered() -> object:
            feed.send([T0 + 1_000], speed=[1.0])
            feed.flush()
            return totals(feed, second)

        wait_until(answered, "the first result of the new query")
        wait_until(lambda: progress(feed.config, bad).get("state") == "refused", "the bad query is refused")
        assert "did you mean 'speed'" in progress(feed.config, bad)["detail"]
        wait_until(lambda: totals(feed, first) == {(T0, "d1"): float(len(feed.sent))}, "the first query kept its state")

        remove(feed, second)
        remove(feed, bad)
        wait_until(lambda: '"lane.stopped"' in process.output(), "the lane is restarted without it")
        feed.send([T0 + 2_000], speed=[1.0])
        feed.flush()
        wait_until(lambda: totals(feed, first) == {(T0, "d1"): float(len(feed.sent))}, "the first query goes on alone")

        jvm = jvm_of(process)
        assert process.stop() == 0
        assert is_gone(jvm)
    # What the JVM unpacks it leaves: it must lie where the next start removes it, not in /tmp.
    assert list((tmp_path / "data" / "spark" / "tmp").glob("librocksdbjni*.so"))


def hot_spells(feed: Feed) -> dict[tuple[Any, ...], tuple[int, bool]]:
    """The oracle: (start, device) → how many readings the threshold has, and is it over."""
    found = {}
    for device in {reading["device"] for reading in feed.sent}:
        mine = [(reading["t"], {"speed": reading["speed"]}) for reading in feed.sent if reading["device"] == device]
        for places in episodes(mine, lambda speed: speed > 80, lambda speed: speed < 60, 0):
            found[mine[places[0]][0], device] = len(places), places[-1] + 1 < len(mine)
    return found


def test_after_kill_9_a_standby_goes_on_with_sums_patterns_and_summaries_and_who_comes_back_stands_by(
    pair: list[Process], new_feed: NewFeed
) -> None:
    """The leader dies between Kafka's commit of a pattern's batch and Spark's, while the pattern is open; nobody takes turns after it.

    The summaries of another stream get late readings all the time.
    """
    process, standby = pair
    feed, calm = new_feed({"speed": FieldType.NUMBER}), new_feed({"speed": FieldType.NUMBER})
    declare(feed)
    declare(calm)
    name, hot = unique("killed"), unique("hot")
    register(feed, total_by_minute(feed, name), name=name)
    register(feed, sql(feed.name, "device, count(*) AS n", "threshold_window(speed > 80, speed < 60), device", name=hot), name=hot)
    process._env = {**os.environ, "EDGEWAKE_FAILPOINT": "analysis.committed.sequence:3"}
    process.start()
    process.wait_for(READY, timeout_s=120)
    jvm = jvm_of(process)
    standby.start()
    standby.wait_for(STANDS_BY)
    for t in (T0, T0 + DAY_MS, T0 + DAY_MS):  # what comes for the first minute after it is late
        calm.send([t], speed=[1.0])
        calm.flush()
        wait_until(lambda: summed_up(calm) == of_minutes(calm), "it is summed up")
    i = 0
    while process.is_running():
        feed.send([T0 + i * 500], device=f"d{i % 2}", speed=[85.0 + i % 10])
        calm.send([T0 + i], speed=[1.0])
        feed.flush()
        calm.flush()
        i += 1
        time.sleep(0.01)
        assert i < 10_000, "the failpoint was never reached"
    assert process.stop() == -signal.SIGKILL
    wait_until(lambda: is_gone(jvm), "the JVM is gone with its driver")
    before = spells(feed, hot)
    assert before
    assert not any(is_over for _, is_over in before.values())

    standby.wait_for(READY_TO_COMPUTE)
    process._env = None
    process.start()
    wait_until(lambda: STANDS_BY in process.output(), "the one that died stands by")
    for device in ("d0", "d1"):
        feed.send([T0 + i * 500, T0 + i * 500 + 1, T0 + i * 500 + 2], device=device, speed=[90.0, 50.0, 99.0])
    feed.flush()
    expected = {place: sum(v) for place, v in windows(feed.sent, 60_000, 60_000, lambda r: (r["device"],), "speed").items()}
    wait_until(lambda: totals(feed, name) == expected, "the sums of all that was sent")
    wait_until(lambda: spells(feed, hot) == hot_spells(feed), "the pattern's windows of all that was sent")
    calm.send([T0 + DAY_MS], speed=[1.0])
    calm.flush()
    wait_until(lambda: summed_up(calm) == of_minutes(calm), "the summaries of all that was sent, late or not")
    assert process.stop() == standby.stop() == 0
    for query in (name, hot):
        rows = [(row["window_start"], row["device"], row["revision"]) for row in results(feed.config, query)]
        assert len(rows) == len(set(rows))
    assert any(row["maker"] for row in minutes(calm).values()), "some were late"
    assert "lane.failed" not in standby.output()
    assert "summaries.failed" not in standby.output()
    assert process.output().count(LEADS) == 1


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
    return {place: (row["n"], row["final"]) for place, row in truth(results(feed.config, query), "device").items()}


def test_without_the_connector_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "analysis.toml"
    config.write_text(f'data_dir = "{tmp_path}"\njars_dir = "{tmp_path}/nothing"\n')
    with part("analysis", config, tmp_path / "log") as process:
        wait_until(lambda: not process.is_running(), "it ends")
    assert process.stop() == 2
    assert "no spark-sql-kafka-*.jar in it" in process.output()
