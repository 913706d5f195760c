"""Archives of loaded classes for the JVMs of a test run: Kafka and Spark start dozens of times, and
most of a start is loading classes.

`python -m tests.class_archives` makes them (`make test` does, unless they are there),
`environment()` lets every JVM below this process use them: those of tests, and those that `edgewake
up` starts. A JVM takes an archive only for the very class path it was made for, and goes without it
otherwise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy.programs import jars, java
from edgewake.protocol import topics
from tests.services import run_kafka, wait_until

FOLDER: Final = Path(__file__).parents[1] / "build" / "class-archives"
KAFKA: Final = FOLDER / "kafka.jsa"
SPARK: Final = FOLDER / "spark.jsa"
SPARK_CLASSES: Final = SPARK.with_suffix(".classpath")
"""The class path that its launcher made for it."""
JAVA_OPTIONS: Final = "JDK_JAVA_OPTIONS"
"""Read by every JVM; what stands on its command line goes before."""
SPARK_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Put on the command line of Spark's driver."""
JAVA_CLASSES: Final = FOLDER.with_name("java-classes")
"""Our own Java classes, compiled once for all tests."""
FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""No JVM of a test lives long enough to earn back what the second compiler costs: a file of Spark
tests takes half the CPU without it."""
SPARK_HEAP: Final = ("-Xmn96m", "-XX:MetaspaceSize=160m", "-XX:MinHeapDeltaBytes=192m")
"""Most of the heap that a JVM starts with is for young objects, and it grows to 250 MiB at once.
The analysis's own settings keep it small: it grows and shrinks by a little, and collects all of it
each time, a sixth of the processor. Its bounds stay as they are."""
QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""What a JVM says of an archive that does not fit, or of its heap, it says on standard output,
which Spark's launcher reads."""
WRITE_S: Final = 900.0
"""Until a JVM has ended and written its archive, on a busy machine."""


def environment() -> Mapping[str, str]:
    """Variables for all JVMs."""
    variables = {
        JAVA_OPTIONS: (FIRST_COMPILER, *_use(KAFKA)),
        SPARK_OPTIONS: (*QUIET, *SPARK_HEAP, *_use(SPARK)),
    }
    return {name: " ".join(options) for name, options in variables.items()}


def ensure() -> None:
    """Make those that are not there, or were made by another Java or from other jars."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ[JAVA_OPTIONS] = FIRST_COMPILER
    with ThreadPoolExecutor(2) as pool:  # neither uses more than a processor
        for made in [pool.submit(_ensure_kafka), pool.submit(_ensure_spark)]:
            made.result()


def _ensure_kafka() -> None:
    if not fits(KAFKA, f"{jars.ensure('kafka')}/*"):
        make_kafka(KAFKA)


def _ensure_spark() -> None:
    if not (SPARK_CLASSES.exists() and fits(SPARK, SPARK_CLASSES.read_text())):
        make_spark(SPARK, SPARK_CLASSES)


def fits(archive: Path, class_path: str) -> bool:
    """Does this machine's Java take it for a class path as it is now?"""
    command = [
        str(java.ensure()),
        "-Xshare:on",
        f"-XX:SharedArchiveFile={archive}",
        "-cp",
        class_path,
        "-version",
    ]
    return (
        archive.exists()
        and subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    )


def make_kafka(archive: Path) -> None:
    """Run a Kafka, use it a little, and keep the classes that it had loaded when it ended."""
    written = archive.with_suffix(".new")
    with (
        tempfile.TemporaryDirectory() as folder,
        run_kafka(Path(folder), java_options=_write(written)) as kafka,
    ):
        use_kafka(KafkaConfig(bootstrap=kafka.bootstrap))
        kafka.process.signal(signal.SIGTERM)
        wait_until(
            lambda: not kafka.process.is_running(),
            "Kafka has written its archive",
            timeout_s=WRITE_S,
        )
        written.rename(archive)


def make_spark(archive: Path, class_path: Path) -> None:
    """Run a Spark session of the analysis, and keep the classes that it had loaded when it
    ended.
    """
    written = archive.with_suffix(".new")
    options = {SPARK_OPTIONS: " ".join(_write(written))}
    command = [sys.executable, "-m", "tests.class_archives", "use-spark", str(class_path)]
    subprocess.run(command, env={**os.environ, **options}, check=True, timeout=WRITE_S)
    written.rename(archive)


def use_kafka(config: KafkaConfig) -> None:
    """Make a topic, write to it in a transaction, and read it as a member of a group."""
    topic_admin.ensure_topics(config, [topics.DEAD])
    producer = clients.transactional_producer(config, "class-archives")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topics.DEAD, b"x")
    producer.commit_transaction()
    consumer = clients.consumer(config, "class-archives", group="class-archives")
    consumer.subscribe([topics.DEAD])
    wait_until(lambda: consumer.poll(0.1), "the record is read")
    consumer.close()


def use_spark(class_path: Path) -> None:
    """Run a stateful streaming query for two batches, write down the JVM's class path, and wait
    until it has ended.
    """
    from edgewake.cloud.analysis.spark.session import start_session

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        session = start_session(
            jars_dir=jars.ensure("spark"),
            classes_dir=JAVA_CLASSES,
            work_dir=work,
            master="local[2]",
            driver_memory="512m",
            state_partitions=1,
            state_memory="64m",
            state_store="memory",
            maintenance_s=2,
        )
        jvm = session.sparkContext._gateway.proc
        rate = session.readStream.format("rate").load().withWatermark("timestamp", "1 second")
        counts = rate.groupBy("timestamp", (rate.value % 3).alias("key")).count()
        query = counts.writeStream.format("memory").queryName("counts").outputMode("append").start()
        wait_until(lambda: len(query.recentProgress) >= 2, "two batches")
        query.stop()
        class_path.write_text(session.sparkContext._jvm.System.getProperty("java.class.path"))
        session.stop()
        jvm.stdin.close()
        jvm.wait(WRITE_S)


def _use(archive: Path) -> tuple[str, ...]:
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.exists() else ()


def _write(archive: Path) -> tuple[str, ...]:
    archive.unlink(missing_ok=True)
    return (f"-XX:ArchiveClassesAtExit={archive}", *QUIET)


if __name__ == "__main__":
    use_spark(Path(sys.argv[2])) if sys.argv[1:2] == ["use-spark"] else ensure()
