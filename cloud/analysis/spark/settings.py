"""The settings of Spark that the analysis depends on, each with its reason.

And what a configuration may add. Pure: no Spark is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from edgewake.cloud.kafka.security import SPARK_REDACTED

STREAMING: Final = "spark.sql.streaming"
STATE: Final = f"{STREAMING}.stateStore"
STATE_MEMORY: Final = "spark.edgewake.stateMemory"
"""Read by our state store (java/edgewake/TableStores.java)."""
StateStore: TypeAlias = Literal["memory", "rocksdb"]
_TABLE: Final = "edgewake.TableStores"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ROCKSDB_WRITE_BUFFER_MIB: Final = 16
"""MiB of changes that RocksDB keeps in memory before it writes them to its files, within
state_memory."""

UNUSED_RULES: Final = (
    "PruneFilters",
    "RemoveRedundantAliases",
    "OptimizeCsvJsonExprs",
    "OptimizeOneRowRelationSubquery",
    "GenerateOptimization",
    "RemoveRedundantAggregates",
    "MergeSubplans",
)
"""Rules of Spark's optimizer that are turned off: our plans have nothing for them, and each batch
is planned again. With the constraints, which only filters and joins of tables need, they are a
tenth of what a small batch costs: their own time, its garbage, and the compiler's."""

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without a page nobody reads what Spark keeps of past jobs; by default it keeps a thousand of
    # each, with their plans as text.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    "spark.redaction.regex": SPARK_REDACTED,
    "spark.sql.session.timeZone": "UTC",
    # Fields are JSON names: `Speed` is not `speed`.
    "spark.sql.caseSensitive": "true",
    # A null where a division or cast fails; an exception would stop the stream for everybody.
    "spark.sql.ansi.enabled": "false",
    # Plans of micro-batches are fixed: re-planning between stages costs more than it finds.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in UNUSED_RULES
    ),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The place of each expression in our source: as slow as the whole rest of building a plan, and
    # a new query waits for it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Windows are evicted with the next batch that has data; an empty batch for it would cost as
    # much as a full one.
    f"{STREAMING}.noDataMicroBatches.enabled": "false",
    f"{STREAMING}.minBatchesToRetain": "10",
    f"{STREAMING}.numRecentProgressUpdates": "5",
    f"{STREAMING}.metricsEnabled": "false",
    # Through FileContext, the default, every file of a local checkpoint costs more `chmod`
    # processes.
    f"{STREAMING}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{STREAMING}.checkpoint.fileChecksum.enabled": "false",
    # A long batch of one stream must not hold up the short ones of the others.
    "spark.scheduler.mode": "FAIR",
    "spark.cleaner.periodicGC.interval": "5min",
    # What a batch sends to its tasks, three times some 100 KiB, is written into a buffer of this
    # size: 4 MiB each by default, more than a tenth of all the garbage that a small batch makes.
    "spark.broadcast.blockSize": "256k",
    "spark.sql.codegen.cache.maxEntries": "400",
}
_FROM_KEYS: Final = frozenset(
    {
        "spark.jars",
        "spark.master",
        "spark.driver.memory",
        "spark.driver.extraJavaOptions",
        "spark.local.dir",
        "spark.sql.shuffle.partitions",
        STATE_MEMORY,
    }
)
"""Made of other keys of the configuration."""


def state_settings(store: StateStore, memory_mib: int) -> dict[str, str]:
    """Return the settings of the state store, with `memory_mib` in each process."""
    memory = {STATE_MEMORY: f"{memory_mib}m"}
    if store == "memory":
        return memory | {f"{STATE}.providerClass": _TABLE}
    rocksdb = f"{STATE}.rocksdb"
    return memory | {
        f"{STATE}.providerClass": _ROCKSDB,
        # A batch writes what it changed; a snapshot of all follows in the background.
        f"{rocksdb}.changelogCheckpointing.enabled": "true",
        f"{rocksdb}.boundedMemoryUsage": "true",
        f"{rocksdb}.maxMemoryUsageMB": str(memory_mib),
        f"{rocksdb}.writeBufferSizeMB": str(ROCKSDB_WRITE_BUFFER_MIB),
        # To count its rows Spark would look up each before it writes or removes it.
        f"{rocksdb}.trackTotalNumberOfRows": "false",
    }


def is_local(master: str) -> bool:
    """Does everything run in the driver's JVM?"""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def refused_settings(names: Iterable[str]) -> list[str]:
    """Return the names that are not settings of Spark, or that the analysis sets itself."""
    own = SETTINGS.keys() | _FROM_KEYS
    return sorted(
        name
        for name in names
        if not name.startswith("spark.") or name in own or name.startswith(STREAMING)
    )
