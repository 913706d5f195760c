"""The Spark session: its virtual machine, how it is started and ended."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.spark import java_classes
from edgewake.cloud.analysis.spark.settings import (
    SETTINGS,
    STATE,
    StateStore,
    is_local,
    state_settings,
)
from edgewake.protocol.errors import ConfigError, Unavailable

_HUGE_METHODS: Final = "-XX:-DontCompileHugeMethods"
"""Spark makes one method of all queries of a lane; from 8,000 bytes of code on the JVM would always
interpret it, ten times as slow."""
_JVM: Final = (
    "-Xms128m",
    _HUGE_METHODS,
    # One pool of buffers outside the heap, not one or two for each core: each pool keeps chunks
    # of 4 MiB.
    "-Dio.netty.allocator.numDirectArenas=1 -Dio.netty.allocator.numHeapArenas=1",
    # What the state and the compiler gave back goes back to the system.
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=60000",
    "-XX:MaxMetaspaceSize=256m -XX:ReservedCodeCacheSize=96m -Xss4m",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
SMALL_HEAP_MIB: Final = 1024
"""Up to this heap size one thread collects garbage; the threads of the parallel collector keep a
heap that is half empty."""
_SMALL_COLLECTOR: Final = (
    "-XX:+UseSerialGC -XX:NewSize=64m -XX:NewRatio=4 -XX:MinHeapFreeRatio=25 "
    "-XX:MaxHeapFreeRatio=35"
)
"""The heap is made hardly larger than its use asks for, up to driver_memory, and what is young has
a fifth of it and not a third, but at least 64 MiB. A batch of a small stream makes 80 MiB of
objects: in a fifth alone, 27 MiB, it was held up by four collections, and every fourth one by a
collection of the whole heap, because what it still used did not fit and was taken for old. With
half as much of the heap free every twelfth batch was, by 0.2 s; now every thirtieth is."""
_LARGE_COLLECTOR: Final = "-XX:+UseParallelGC"
"""With the two ratios it would collect the whole heap each time, which took half of the processor's
time at full load."""
_EXECUTOR_JVM: Final = f"-XX:+UseSerialGC {_HUGE_METHODS} -Djava.io.tmpdir=."
"""On a worker an executor has a folder of its own, where files that libraries unpack are found and
removed with it."""
GROUP_BYTES: Final = 64 * 1024
"""What the sketches of one group take in the heap at most: 40 KiB Count-Min, 16 KiB HLL, the rest
KLL, theta and frequent items."""
HASHED_SHARE: Final = 4
"""A quarter of the heap holds the groups that a batch sketches; what is more is sorted on disk,
group by group, which is slower. A device that returns with a week brings 10,000 minutes of each
field at once: all in the heap they were gigabytes, and ended the process each time that it read
them. Spark's own bound is 128 groups, whatever the heap."""
_EXECUTOR_MEMORY: Final = "1g"
"""Spark's default."""
_MALLOC_ARENAS: Final = "2"
"""Malloc arenas of glibc for the JVM, whose hundreds of threads would have sixteen otherwise, each
with memory that it keeps."""


def start_session(
    *,
    jars_dir: Path,
    classes_dir: Path,
    work_dir: Path,
    master: str,
    driver_memory: str,
    state_partitions: int,
    state_memory: str,
    state_store: StateStore,
    maintenance_s: int,
    more: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] = (),
) -> SparkSession:
    """Start the JVM and the session.

    `classes_dir` keeps our compiled classes from one start to the next. `work_dir` is Spark's own:
    it is emptied first. `state_store`, `maintenance_s`, and `more` as `spark`: see AnalysisConfig.
    `jvm_options` are added to ours.

    Raises ConfigError where jars are missing, LocalError where our classes cannot be compiled,
    Unavailable where no cluster answers.
    """
    jars = [*jars_in(jars_dir), str(java_classes.jar_of(classes_dir, jars_dir))]
    # It tells of every connection, and of a JVM that we ended ourselves.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    jvm = _made_ready(work_dir)
    os.environ.setdefault("MALLOC_ARENA_MAX", _MALLOC_ARENAS)  # the JVM inherits it
    builder = SparkSession.builder.appName("edgewake").master(master)
    settings = SETTINGS | {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": driver_memory,
        "spark.driver.host": "127.0.0.1" if is_local(master) else _own_host(),
        "spark.executor.extraJavaOptions": _EXECUTOR_JVM,
        "spark.driver.extraJavaOptions": " ".join(
            (_collector(driver_memory), *_JVM, *jvm_options, *jvm)
        ),
        "spark.local.dir": str(work_dir),
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(
            hashed_groups(
                driver_memory
                if is_local(master)
                else (more or {}).get("spark.executor.memory", _EXECUTOR_MEMORY)
            )
        ),
        f"{STATE}.maintenanceInterval": f"{maintenance_s}s",
    }
    settings |= state_settings(state_store, _mib(state_memory))
    if is_local(master):
        # Its ports are open to all users of the machine, and who speaks to them without the secret,
        # which Spark makes here by itself, would be believed. On a cluster `spark` has the secret.
        settings["spark.authenticate"] = "true"
    for name, value in (settings | dict(more or {})).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Py4JJavaError as error:
        raise Unavailable(
            f"master = {master!r}: {str(error.java_exception.toString()).splitlines()[0][:300]}"
        ) from error
    _write_plain_files(session)
    _drop_defaults(session)
    return session


def _made_ready(work_dir: Path) -> list[str]:
    """Empty Spark's folder and put there what the JVM needs; its options that say where."""
    # The JVM is ended with a kill: what it unpacked there it never removes itself.
    shutil.rmtree(work_dir, ignore_errors=True)
    temporary = work_dir / "tmp"
    temporary.mkdir(parents=True)
    log4j = work_dir / "log4j2.properties"
    log4j.write_text(_LOG4J)
    return [
        f'"-Djava.io.tmpdir={temporary}"',
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
    ]


def jars_in(jars_dir: Path) -> list[str]:
    """List Spark's Kafka connector without the compiler beside it.

    Raises ConfigError where either is missing.
    """
    compilers = set(jars_dir.glob(java_classes.COMPILER))
    jars = sorted(str(path) for path in jars_dir.glob("*.jar") if path not in compilers)
    if not any("spark-sql-kafka" in jar for jar in jars):
        raise ConfigError(
            f"jars_dir = {str(jars_dir)!r}: no spark-sql-kafka-*.jar in it; `edgewake up` fetches "
            "the connector"
        )
    java_classes.compiler_in(jars_dir)
    return jars


def _write_plain_files(session: SparkSession) -> None:
    """Write files of the checkpoints without `.crc` files and without a process for each.

    The state's files carry checksums of their own; a `.crc` file beside each doubles their number.
    To give a file its mode Hadoop starts `chmod` where its native library is missing, as in Spark's
    wheel: three times in each batch, a sixth of the time that a small one takes. Hadoop keeps one
    instance per scheme, so Spark uses the one that is changed here; its underlying file system has
    no setter.
    """
    java: Any = session.sparkContext._jvm
    local = java.org.apache.hadoop.fs.FileSystem.getLocal(
        session.sparkContext._jsc.hadoopConfiguration()
    )
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)
    plain = java_classes.new(session, "PlainFiles")
    plain.initialize(local.getUri(), local.getConf())
    below = java.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField(
        "fs"
    )
    below.setAccessible(True)
    below.set(local, plain)


def _drop_defaults(session: SparkSession) -> None:
    """Hadoop's settings without the defaults of what is not used here.

    Spark copies them all and sends them to its tasks, twice in each batch that has a state. Two
    thirds of some 1,100 are defaults of YARN and MapReduce: with them that takes 13 ms of processor
    each time, without them 5.
    """
    java_classes.new(session, "Defaults").drop(session.sparkContext._jsc.hadoopConfiguration())


def hashed_groups(memory: str) -> int:
    """How many groups of sketches a task holds in a heap of this size."""
    return (_mib(memory) << 20) // HASHED_SHARE // GROUP_BYTES


def _mib(memory: str) -> int:
    """Return the MiB of a size as Spark takes it: `512m`, `1g`, `2GB`; a number alone is MiB.

    Raises ConfigError.
    """
    found = re.fullmatch(r"(\d+)(b|[kmgtp]b?)?", memory.strip().lower())
    if not found:
        raise ConfigError(f"memory {memory!r}: expected a whole number and a unit, as 512m or 2g")
    return int(found[1]) << 10 * "bkmgtp".index((found[2] or "m")[0]) >> 20


def _collector(driver_memory: str) -> str:
    return _SMALL_COLLECTOR if _mib(driver_memory) <= SMALL_HEAP_MIB else _LARGE_COLLECTOR


def _own_host() -> str:
    import socket

    return socket.gethostname()


def has_ended(session: SparkSession) -> bool:
    """Is the session of no use any more, because a cluster's master removed it or Spark gave up?"""
    context: Any = session.sparkContext._jsc
    return bool(context.sc().isStopped())


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
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
"""
