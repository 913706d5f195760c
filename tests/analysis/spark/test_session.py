"""How Spark is set up: what a batch may keep in the heap, and how its files are written."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.spark.session import GROUP_BYTES, HASHED_SHARE, hashed_groups, jvm_pid
from edgewake.cloud.analysis.spark.settings import UNUSED_RULES
from edgewake.protocol.errors import ConfigError

THRESHOLD = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"


def fell_back(session: SparkSession, groups: int) -> bool:
    """Did a task that sketches so many groups go on by sorting them?"""
    table = F.count_min_sketch(F.col("id").cast("string"), F.lit(0.01), F.lit(0.9), F.lit(1))
    frame = (
        session.range(groups, numPartitions=1)
        .groupBy("id")
        .agg(table.alias("table"))
        .selectExpr("max(length(table))")
    )
    frame.collect()
    plans: list[Any] = [frame._jdf.queryExecution().executedPlan()]
    tasks = 0
    while plans:
        plan = plans.pop()
        metric = plan.metrics().get("numTasksFallBacked")
        tasks += metric.get().value() if metric.isDefined() else 0
        children = plan.children()
        plans += [children.apply(i) for i in range(children.size())]
    return tasks > 0


def test_groups_that_do_not_fit_into_the_heap_are_sorted_on_disk(spark: SparkSession) -> None:
    """Control: with a hundred thousand groups as the bound, 5,000 tables are in the heap at
    once.
    """
    bound = int(spark.conf.get(THRESHOLD) or 0)
    assert bound == hashed_groups("1g")
    assert bound * GROUP_BYTES * HASHED_SHARE == 1 << 30
    assert fell_back(spark, bound + 1)
    spark.conf.set(THRESHOLD, 100_000)
    try:
        assert not fell_back(spark, bound + 1)
    finally:
        spark.conf.set(THRESHOLD, bound)


def rules_of(session: SparkSession) -> set[str]:
    """What the optimizer tries on each plan."""
    batches = session._jsparkSession.sessionState().optimizer().batches()
    rules = [batches.apply(i).rules() for i in range(batches.size())]
    return {
        each.apply(i).ruleName().rpartition(".")[2] for each in rules for i in range(each.size())
    }


def test_rules_that_find_nothing_in_our_plans_are_left_out(spark: SparkSession) -> None:
    """Control: with Spark's own setting each of them is there.

    One that Spark needs, or that has another name now, stays silently.
    """
    name = "spark.sql.optimizer.excludedRules"
    ours = spark.conf.get(name)
    assert set(UNUSED_RULES) & rules_of(spark) == set()
    spark.conf.unset(name)
    try:
        assert set(UNUSED_RULES) <= rules_of(spark)
    finally:
        spark.conf.set(name, ours)


def test_a_file_of_a_checkpoint_has_its_mode_and_no_process_is_started_for_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Control: what Spark would write with starts one for each file."""
    java: Any = spark.sparkContext._jvm
    hadoop = java.org.apache.hadoop
    files = hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    raw = hadoop.fs.RawLocalFileSystem()
    raw.initialize(files.getUri(), files.getConf())
    faults = []
    for system, name in ((files, "ours"), (raw, "raw")):
        before = faults_of_children(jvm_pid(spark))
        path = hadoop.fs.Path(str(tmp_path / name))
        mode = hadoop.fs.permission.FsPermission("640")
        system.create(path, mode, True, 4096, 1, 1 << 20, None).close()
        faults.append(faults_of_children(jvm_pid(spark)) - before)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640
    assert faults[0] == 0, "none"
    assert faults[1] > 0


def test_tasks_get_no_defaults_of_what_is_not_used_here_and_what_somebody_set_stays(
    spark: SparkSession,
) -> None:
    """Control: Hadoop as it comes has them."""
    java: Any = spark.sparkContext._jvm
    ours, hadoops = (
        spark._jsparkSession.sessionState().newHadoopConf(),
        java.org.apache.hadoop.conf.Configuration(),
    )
    names = "yarn.resourcemanager.address", "mapreduce.map.memory.mb", "ipc.ping.interval"
    assert None not in {hadoops.get(name) for name in names}
    assert {ours.get(name) for name in names} == {None}
    kept = "fs.defaultFS", "fs.permissions.umask-mode", "hadoop.security.authentication"
    assert [ours.get(name) for name in kept] == [hadoops.get(name) for name in kept]
    assert ours.get("mapreduce.fileoutputcommitter.algorithm.version") is not None, "Spark sets it"
    assert ours.size() < 600 < hadoops.size()


def faults_of_children(pid: int) -> int:
    """Page faults of the processes that this one started and saw ending: any has some."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])


def test_a_larger_heap_holds_more_however_its_size_is_written() -> None:
    assert [hashed_groups(memory) for memory in ("512m", "1g", "4g")] == [2048, 4096, 16384]
    assert {
        hashed_groups(memory)
        for memory in ("1G", "1gb", "1024M", "1024", "1048576k", "1073741824b")
    } == {4096}


def test_what_is_no_size_of_a_heap_is_refused() -> None:
    for memory in ("", "g", "1.5g", "1x", "-1g"):
        with pytest.raises(ConfigError, match="expected a whole number and a unit"):
            hashed_groups(memory)


def test_a_stranger_on_this_machine_is_not_heard_by_the_driver(spark: SparkSession) -> None:
    """Without a secret it would unpack, as an object of Java's, whatever anybody sends to its
    port.
    """
    body, request = b"hello", struct.pack(">bqi", 3, 7, 5)
    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
        stranger.sendall(struct.pack(">q", 8 + len(request) + len(body)) + request + body)
        answer = stranger.recv(65_536)
    failure, number = struct.unpack(">bq", answer[8:17])
    assert (failure, number) == (5, 7)
    assert b"SASL" in answer
