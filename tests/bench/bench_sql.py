"""How long SQL over the lake takes, in DuckDB and in Spark, on the same files with the same sums.

Two million readings, a day of 1000 devices, lie in files of 200,000, as the lake writes them. Asked
are: three figures of each device over all of it; windows of a minute of one device; the last ten
readings. Each by DuckDB as `POST /v1/sql` asks it (files bound, closed against the rest), by a
child process with its start, and by Spark on local[2], warm and with the start of its session.
Checked: every row counted, both engines' sums equal. `python -m tests.bench.bench_sql [--runs 5]
[--json FILE]`
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from edgewake.cloud.lake.answer import bind, close
from edgewake.cloud.lake.files import Disk
from edgewake.cloud.lake.gather import Gathered
from edgewake.cloud.lake.manifest import File, Manifest, Place
from edgewake.cloud.lake.present import Present
from edgewake.cloud.lake.shape import ColumnType, Kind
from edgewake.cloud.lake.sources import Source
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode
from tests.bench.figures import Found, run

ROWS: Final = 2_000_000
FILE_ROWS: Final = 200_000
DEVICES: Final = 1000
STEP_MS: Final = 86_400_000 // ROWS
T0: Final = 1_790_000_000_000
SOURCE: Final = Source("ew.s.bench", Kind.STREAM, "bench")
FIELDS: Final = {
    "speed": ColumnType.NUMBER,
    "level": ColumnType.NUMBER,
    "on_road": ColumnType.BOOLEAN,
}
QUESTIONS: Final = {
    "figures of each device": (
        "SELECT device, count(*) AS n, avg(speed), max(level) FROM bench GROUP BY device"
    ),
    "minutes of one device": (
        "SELECT date_trunc('minute', t) AS minute, count(*) AS n FROM bench WHERE device = "
        "'dev-7' GROUP BY 1"
    ),
    "the last ten readings": "SELECT device, t, 1 AS n FROM bench ORDER BY t DESC LIMIT 10",
}
COUNTS: Final = {
    "figures of each device": ROWS,
    "minutes of one device": ROWS // DEVICES,
    "the last ten readings": 10,
}
RIVALS: Final[dict[str, list[float]]] = {}
LIMITS: Final = (
    "A question alone is ruled by the start of its process and its libraries; from a hundred "
    "million readings on by reading Parquet."
)


def filled(folder: Path) -> list[File]:
    """The lake."""
    rng, disk, files = np.random.default_rng(1), Disk(folder), []
    for first in range(0, ROWS, FILE_ROWS):
        at = np.arange(first, first + FILE_ROWS)
        times = pa.array(T0 + at * STEP_MS, pa.timestamp("ms"))
        table = pa.table(
            {
                "device": pa.array([f"dev-{i % DEVICES}" for i in at]),
                "t": times,
                "received_at": times,
                "epoch": pa.array(np.ones(FILE_ROWS, np.int64)),
                "seq": pa.array(at // DEVICES),
                "@partition": pa.array((at % 2).astype(np.int32)),
                "@offset": pa.array(at // 100),
                "speed": pa.array(rng.normal(50, 10, FILE_ROWS).round(1)),
                "level": pa.array(rng.random(FILE_ROWS)),
                "on_road": pa.array(at % 3 == 0),
            }
        )
        files.append(disk.write(table, SOURCE, "2026-11-22", FIELDS, now_ms=first))
    manifest = Manifest(folder)
    manifest.commit(files, {}, {(SOURCE.topic, 0): Place("id", ROWS)}, now_ms=1)
    manifest.close()
    return files


def by_duckdb(folder: Path, files: Sequence[File]) -> Callable[[str], list[dict[str, Any]]]:
    """Asks as a child does."""

    def ask(sql: str) -> list[dict[str, Any]]:
        db = duckdb.connect(config={"memory_limit": "512MiB", "threads": 2})
        bind(db, "bench", SOURCE, files, Present(), folder)
        close(db, [str(folder / file.path) for file in files])
        shown = db.execute(sql)
        names = [column[0] for column in shown.description or ()]
        return [dict(zip(names, row, strict=True)) for row in shown.fetchall()]

    return ask


def child_s(folder: Path) -> float:
    """Seconds of a whole child that answers a question about nothing: what each question pays
    beside its work.
    """
    job = {"question": {"sql": "SELECT 1"}, "lake_dir": str(folder), "kafka": {}}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "edgewake.cloud.lake.child"],
        input=orjson.dumps(job),
        capture_output=True,
        check=True,
    )
    assert orjson.loads(done.stdout)["rows"] == [[1]]
    return time.perf_counter() - began


def by_spark(
    folder: Path, files: Sequence[File]
) -> tuple[Callable[[str], list[dict[str, Any]]], float]:
    """Asks Spark; and the seconds that its session took to start."""
    began = time.perf_counter()
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
    )
    spark = (
        session.config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.parquet(*[str(folder / file.path) for file in files]).createOrReplaceTempView(
        "bench"
    )
    return lambda sql: [
        row.asDict() for row in spark.sql(sql).collect()
    ], time.perf_counter() - began


def timed(ask: Callable[[str], list[dict[str, Any]]], question: str, runs: int) -> list[float]:
    """Milliseconds of each run."""
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        rows = ask(QUESTIONS[question])
        found.append((time.perf_counter() - began) * 1000)
        assert sum(row["n"] for row in rows) == COUNTS[question]
    return found


def gathered_rows_s() -> float:
    """Readings a second from Kafka's bytes to a durable file: frames of 100."""
    body = encode(
        Frame(
            1,
            1,
            1,
            list(range(T0, T0 + 100)),
            {"speed": [50.5] * 100, "level": [0.25] * 100, "on_road": [True] * 100},
        )
    )
    value = records.encode(
        device="dev-1",
        stream="bench",
        mode=Mode.ACK,
        sent_at=None,
        received_at=T0,
        frame_bytes=body,
    )
    with tempfile.TemporaryDirectory() as folder:
        gathered, began = Gathered(Kind.STREAM), time.perf_counter()
        for offset in range(FILE_ROWS // 100):
            gathered.add(value, key=b"dev-1", partition=0, offset=offset)
        (rows,) = gathered
        file = Disk(Path(folder)).write(rows.table(), SOURCE, "2026-11-22", rows.fields, now_ms=1)
        assert file.rows == FILE_ROWS
        return FILE_ROWS / (time.perf_counter() - began)


def measure(folder: Path, runs: int) -> Found:
    """See the module."""
    files = filled(folder)
    found: Found = {}
    duck, (spark, start_s) = by_duckdb(folder, files), by_spark(folder, files)
    for question in QUESTIONS:
        name = f"SQL: 2 M readings, {question} (rival: Spark, warm)"
        found[name, "ms", None] = timed(duck, question, runs)
        timed(spark, question, 1)
        RIVALS[name] = timed(spark, question, runs)
    name = "SQL: start of a question's process (rival: a Spark session)"
    found[name, "ms", None] = [child_s(folder) * 1000 for _ in range(runs)]
    RIVALS[name] = [start_s * 1000]
    figures = found["SQL: 2 M readings, figures of each device (rival: Spark, warm)", "ms", None]
    whole = [start + asked for start, asked in zip(found[name, "ms", None], figures, strict=True)]
    found[
        "SQL: a day of 1000 devices, figures of each, with the start of its process", "ms", 1000
    ] = whole
    found["lake: from records to a durable file", "readings/s", None] = [
        gathered_rows_s() for _ in range(runs)
    ]
    found["lake: size of a reading with three fields", "bytes/reading", None] = [
        sum(file.bytes for file in files) / ROWS
    ]
    return found


if __name__ == "__main__":
    run(measure, __doc__, RIVALS)
