"""The Spark session, with the reasons of its settings beside them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from edgewake.cloud.kafka.security import SPARK_REDACTED
from edgewake.protocol.errors import ConfigError

_STREAMING: Final = "spark.sql.streaming"
_STATE: Final = f"{_STREAMING}.stateStore"

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without a page nobody reads what Spark keeps of past jobs; by default it keeps a thousand of each, with their plans as text.
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
    # The sketch aggregates fall back to sorting at 128 groups by default, which is ten times slower.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The place of each expression in our source: as slow as the whole rest of building a plan, and a new query waits for it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch writes its changes, not a snapshot; the snapshot follows in the background.
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": "96",
    f"{_STATE}.rocksdb.writeBufferSizeMB": "16",
    # Windows are evicted with the next batch that has data; an empty batch for it would cost as much as a full one.
    f"{_STREAMING}.noDataMicroBatches.enabled": "false",
    f"{_STREAMING}.minBatchesToRetain": "10",
    f"{_STREAMING}.numRecentProgressUpdates": "5",
    f"{_STREAMING}.metricsEnabled": "false",
    # Through FileContext, the default, every file of a local checkpoint costs more `chmod` processes.
    f"{_STREAMING}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STREAMING}.checkpoint.fileChecksum.enabled": "false",
    # A long batch of one stream must not hold up the short ones of the others.
    "spark.scheduler.mode": "FAIR",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.sql.codegen.cache.maxEntries": "400",
}

_JVM: Final = (
    # The heap is made no larger than its use asks for, up to driver_memory.
    "-Xms64m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20",
    # Of buffers outside of the heap one pool, not one or two for each core: each of them keeps chunks of 4 MiB.
    "-Dio.netty.allocator.numDirectArenas=1 -Dio.netty.allocator.numHeapArenas=1",
    # What RocksDB and the compiler gave back goes back to the system.
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=60000",
    "-XX:MaxMetaspaceSize=256m -XX:ReservedCodeCacheSize=96m -Xss4m",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
SMALL_HEAP_MIB: Final = 1024
"""Up to it one thread collects garbage; the threads of the parallel collector keep a heap that is half empty."""
_MALLOC_ARENAS: Final = "2"
"""Of glibc for the JVM, whose hundreds of threads would have sixteen otherwise, each with memory that it keeps."""


def start_session(
    *, jars_dir: Path, work_dir: Path, master: str, driver_memory: str, state_partitions: int, maintenance_s: int
) -> SparkSession:
    """Start the JVM and the session; raises ConfigError where the connector's jars are missing.

    `work_dir` is Spark's own: it is emptied first. `maintenance_s`: see AnalysisConfig.
    """
    jars = jars_in(jars_dir)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it tells of every connection, and of a JVM that we ended ourselves
    # The JVM is ended with a kill: what it unpacked there (RocksDB, 15 MiB) it never removes itself.
    shutil.rmtree(work_dir, ignore_errors=True)
    temporary = work_dir / "tmp"
    temporary.mkdir(parents=True)
    log4j = work_dir / "log4j2.properties"
    log4j.write_text(_LOG4J)
    os.environ.setdefault("MALLOC_ARENA_MAX", _MALLOC_ARENAS)  # the JVM inherits it
    builder = SparkSession.builder.appName("edgewake").master(master)
    settings = _SETTINGS | {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": driver_memory,
        "spark.driver.host": "127.0.0.1" if master.startswith("local") else _own_host(),
        "spark.driver.extraJavaOptions": " ".join(
            (_collector(driver_memory), *_JVM, f'"-Djava.io.tmpdir={temporary}"', f"-Dlog4j2.configurationFile={log4j.as_uri()}")
        ),
        "spark.local.dir": str(work_dir),
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
        "spark.sql.shuffle.partitions": str(state_partitions),
        f"{_STATE}.maintenanceInterval": f"{maintenance_s}s",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _write_no_checksum_files(session)
    return session


def jars_in(jars_dir: Path) -> list[str]:
    """Spark's Kafka connector; raises ConfigError where it is missing."""
    jars = sorted(str(path) for path in jars_dir.glob("*.jar"))
    if not any("spark-sql-kafka" in jar for jar in jars):
        raise ConfigError(f"jars_dir = {str(jars_dir)!r}: no spark-sql-kafka-*.jar in it; `edgewake up` fetches the connector")
    return jars


def _write_no_checksum_files(session: SparkSession) -> None:
    """A `.crc` file beside each checkpoint file doubles their number, and nobody reads it: RocksDB's files carry checksums of their own.

    The local file system must stay the checksummed class (uploads of RocksDB snapshots need it by type). Hadoop keeps one instance
    per scheme, so Spark uses the one that is set here.
    """
    java: Any = session.sparkContext._jvm
    local = java.org.apache.hadoop.fs.FileSystem.getLocal(session.sparkContext._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)


def _collector(driver_memory: str) -> str:
    heap_mib = int(driver_memory[:-1]) * (1024 if driver_memory.endswith("g") else 1)
    return "-XX:+UseSerialGC" if heap_mib <= SMALL_HEAP_MIB else "-XX:+UseParallelGC"


def _own_host() -> str:
    import socket

    return socket.gethostname()


def jvm_pid(session: SparkSession) -> int:
    """Process id of the driver's JVM."""
    return int(session.sparkContext._gateway.proc.pid)


def kill_jvm(session: SparkSession) -> None:
    """End the JVM at once; what it had not finished is done again from the checkpoint."""
    jvm: subprocess.Popen[bytes] = session.sparkContext._gateway.proc
    jvm.kill()
    jvm.wait()


_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%throwable{5}
logger.query.name = org.apache.spark.sql.execution.streaming
logger.query.level = off
logger.state.name = org.apache.spark.sql.execution.streaming.state
logger.state.level = warn
"""
