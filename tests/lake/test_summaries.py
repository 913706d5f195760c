"""Hours and days in the lake: one row of each summary, the last that Kafka was told, whatever kills
the writer or is merged.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.lake.answer import bind, engine
from edgewake.cloud.lake.files import Disk
from edgewake.cloud.lake.gather import Foreign, Gathered
from edgewake.cloud.lake.manifest import File, contents
from edgewake.cloud.lake.present import Present
from edgewake.cloud.lake.shape import Kind
from edgewake.cloud.lake.sources import Source, source_of, sources_of
from edgewake.cloud.summaries.summary import DAY_MS, HOUR_MS, Record, Series, Step, Summary
from edgewake.protocol import topics
from edgewake.protocol.sketches.sketch import Numbers
from tests.feeds import unique
from tests.lake.test_lake import Lake
from tests.services import wait_until
from tests.summaries.made import SERIES, summary

MIDNIGHT = 1_790_000_000_000 // DAY_MS * DAY_MS
HOURS = Source(topics.HOURS, Kind.SUMMARY, "summaries.hour")
SKETCHES = ("hll", "theta", "kll", "top", "count_min", "bloom", "sample")


def hour(
    start_ms: int, values: list[float | str], *, series: Series = SERIES, maker: str = ""
) -> Record:
    return Record(series, start_ms, start_ms + HOUR_MS, summary(values), maker)


def plain(record: Record) -> dict[str, Any]:
    """As SQL shows it: what Kafka has, and bytes as hexadecimal digits."""
    row = orjson.loads(record.encode())
    return {
        **{
            name: row[name]
            for name in (
                "stream",
                "field",
                "devices",
                "maker",
                "readings",
                "count",
                "sum",
                "min",
                "max",
                "variance",
            )
        },
        **{name: base64.b64decode(row[name]).hex() if name in row else None for name in SKETCHES},
        "start": row["start"],
        "end": row["end"],
    }


SHOWN = """* EXCLUDE (window_start, window_end, mean, seen, "@partition", "@offset"),
    epoch_ms(window_start) AS start, epoch_ms(window_end) AS "end\""""


class Topics:
    """`ew.summaries.hour` and `.day`, which others write, too; what is said here is of a stream of
    its own.
    """

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self.stream = unique("summed")
        topic_admin.ensure_topics(kafka, topics.SUMMARIES)
        self._producer = clients.producer(kafka, "test-summaries")

    def tell(self, step: Step, *records: Record) -> None:
        """Once the call returns, Kafka has them."""
        for record in records:
            self._producer.produce(topics.SUMMARIES_PREFIX + step, record.encode(), record.key)
        assert self._producer.flush(60) == 0

    def said(self, step: Step) -> list[dict[str, Any]]:
        """The last that Kafka was told of each summary of the stream."""
        reader = clients.consumer(self._kafka, "test-summaries", **{"enable.partition.eof": True})
        last: dict[bytes, Record] = {}
        try:
            reader.assign([TopicPartition(topics.SUMMARIES_PREFIX + step, 0, OFFSET_BEGINNING)])
            while (message := reader.poll(60)) is not None and message.error() is None:
                if message.key().startswith(f"{self.stream}|".encode()):
                    last[message.key()] = Record.decode(message.value())
        finally:
            reader.close()
        assert message is not None
        assert message.error().code() == KafkaError._PARTITION_EOF
        return sorted(map(plain, last.values()), key=order)


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["field"], row["start"], row["maker"]


class Summaries(Lake):
    """A lake of hours and days alone."""

    def __init__(self, kafka: KafkaConfig, folder: Path, stream: str) -> None:
        super().__init__(kafka, folder, stream)
        self.config.write_text(
            self.config.read_text().replace(f'"{stream}"', '"summaries.hour", "summaries.day"')
        )

    def reached(self, step: Step) -> bool:
        """Is all of it in files?"""
        topic = topics.SUMMARIES_PREFIX + step
        reader = clients.consumer(self.kafka, "test-summaries")
        try:
            _, end = watermarks(reader, topic, 0)
        finally:
            reader.close()
        place = contents(self.folder / "lake", [topic]).places.get((topic, 0))
        return place is not None and place.next == end

    async def shown(self, step: Step) -> list[dict[str, Any]]:
        found = await self.ask(f"SELECT {SHOWN} FROM summaries.{step} WHERE stream = 'STREAM'")
        assert found["past"]["lost_records"] == 0
        names = [column["name"] for column in found["columns"]]
        return sorted((dict(zip(names, row, strict=True)) for row in found["rows"]), key=order)


@pytest.mark.long
async def test_the_lake_has_the_last_revision_of_every_hour_and_day_whatever_kills_the_writer(
    kafka_config: KafkaConfig, tmp_path: Path
) -> None:
    said = Topics(kafka_config)
    lake = Summaries(kafka_config, tmp_path, said.stream)
    speed, name = Series(said.stream, "speed"), Series(said.stream, "name")
    said.tell(
        Step.HOUR, *(hour(MIDNIGHT + i * HOUR_MS, [float(i)], series=speed) for i in range(4))
    )
    said.tell(Step.DAY, Record(name, MIDNIGHT, MIDNIGHT + DAY_MS, summary(["a"])))
    lake.killed_at("lake.written:1")
    assert list((tmp_path / "lake").glob("summary=*/*/*.parquet")), (
        "a file is there that the manifest does not name"
    )
    assert not lake.reached(Step.HOUR)
    assert await lake.shown(Step.HOUR) == said.said(Step.HOUR)
    said.tell(
        Step.HOUR, *(hour(MIDNIGHT + i * HOUR_MS, [float(i), 0.5], series=speed) for i in range(3))
    )
    said.tell(
        Step.HOUR,
        hour(MIDNIGHT, [7.0], series=speed, maker="late:3"),
        hour(MIDNIGHT, [8.0], series=speed, maker="car-1|9|kll"),
    )
    lake.killed_at("lake.committed:1")
    assert await lake.shown(Step.HOUR) == said.said(Step.HOUR)
    said.tell(
        Step.HOUR,
        hour(MIDNIGHT, [float(0), 0.5, 2.0], series=speed),
        hour(MIDNIGHT, [8.0, 9.0], series=speed, maker="car-1|9|kll"),
    )
    said.tell(Step.DAY, Record(name, MIDNIGHT, MIDNIGHT + DAY_MS, summary(["a", "b", "c"])))
    with lake.writer():
        wait_until(lambda: lake.reached(Step.HOUR) and lake.reached(Step.DAY), "all is in the lake")
    assert [row["readings"] for row in await lake.shown(Step.HOUR)] == [3, 2, 1, 2, 2, 1]
    assert await lake.shown(Step.HOUR) == said.said(Step.HOUR)
    assert await lake.shown(Step.DAY) == said.said(Step.DAY)
    raw = duckdb.sql(
        f"SELECT count(*) FROM read_parquet('{tmp_path}/lake/summary=*/*/*.parquet') WHERE stream "
        f"= '{said.stream}'"
    )
    assert raw.fetchall()[0][0] > 8, (
        "the control: who reads all files counts revisions, and files that do not count"
    )


def files_of(disk: Disk, revisions: list[Record], sizes: Iterator[int]) -> list[File]:
    """As a writer makes them that is asked now and then."""
    found, offset = [], 0
    while offset < len(revisions):
        gathered = Gathered(Kind.SUMMARY)
        for record in revisions[offset : offset + next(sizes)]:
            gathered.add(record.encode(), key=record.key, partition=0, offset=offset)
            offset += 1
        (rows,) = gathered
        found.append(disk.write(rows.table(), HOURS, "2026-11-22", rows.fields, now_ms=len(found)))
    return found


def in_sql(files: list[File], folder: Path) -> list[dict[str, Any]]:
    with engine() as db:
        bind(db, HOURS.name, HOURS, files, Present(), folder)
        rows = db.sql(f"SELECT {SHOWN} FROM summaries.hour").to_arrow_table()
    hexed = [
        {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]
    return sorted(hexed, key=order)


def test_merged_files_have_one_row_of_each_summary_and_it_is_the_one_that_sql_showed_before(
    tmp_path: Path,
) -> None:
    rng = random.Random(7)
    makers = ("", "", "late:1", "car|1|hll")
    revisions = [
        hour(
            MIDNIGHT + rng.randrange(5) * HOUR_MS,
            [float(i)] * rng.randint(1, 5),
            maker=rng.choice(makers),
        )
        for i in range(90)
    ]
    truth: dict[bytes, Record] = {}
    for record in revisions:
        before = truth.get(record.key)
        if before is None or record.maker or record.summary.readings >= before.summary.readings:
            truth[record.key] = record
    expected = sorted(map(plain, truth.values()), key=order)
    disk = Disk(tmp_path)
    files = files_of(disk, revisions, iter(lambda: rng.randint(1, 12), 0))
    assert in_sql(files, tmp_path) == expected
    half = len(files) // 2
    first = disk.merge(files[:half], now_ms=99)
    assert first.rows < sum(file.rows for file in files[:half])
    assert in_sql([*files[half:], first], tmp_path) == expected, (
        "files and merged ones in one question"
    )
    merged = disk.merge([first, *files[half:]], now_ms=100)
    assert (merged.rows, in_sql([merged], tmp_path)) == (len(truth), expected)


def test_hours_and_days_are_tables_and_minutes_are_none() -> None:
    found = sources_of([*topics.SUMMARIES, "ew.s.summaries", "ew.lanes"])
    assert {source.name: source.kind for source in found.values()} == {
        "summaries.hour": Kind.SUMMARY, "summaries.day": Kind.SUMMARY, "summaries": Kind.STREAM,
    }  # fmt: skip
    assert source_of(topics.MINUTES) is None
    assert not sources_of(topics.SUMMARIES, leave_out=["summaries.hour", "summaries.day"])


def test_figures_that_a_summary_has_not_are_null() -> None:
    gathered = Gathered(Kind.SUMMARY)
    gathered.add(hour(MIDNIGHT, ["a"]).encode(), key=b"", partition=0, offset=5)
    gathered.add(
        Record(SERIES, MIDNIGHT, MIDNIGHT + HOUR_MS, Summary(3, Numbers.of([1.0]))).encode(),
        key=b"",
        partition=0,
        offset=6,
    )
    rows = gathered.tables[0].table().to_pylist()
    assert [
        (row["readings"], row["count"], row["sum"], row["kll"], row["hll"] is None) for row in rows
    ] == [
        (1, 0, None, None, False),
        (3, 1, 1.0, None, True),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"start": -1},
        {"end": MIDNIGHT},
        {"end": 1 << 62},
        {"readings": -1},
        {"readings": 1 << 60},
        {"count": 9},
        {"hll": "é"},
        {"sum": "x"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_no_summary_is_foreign(change: dict[str, Any]) -> None:
    value = orjson.dumps(orjson.loads(hour(MIDNIGHT, [1.0]).encode()) | change)
    with pytest.raises(Foreign):
        Gathered(Kind.SUMMARY).add(value, key=b"", partition=0, offset=0)


@pytest.mark.parametrize("old", [(0,), (0, 1, 2)], ids=["one of them", "all"])
def test_files_of_before_there_was_a_kind_of_sketch_are_shown_without_it(
    tmp_path: Path, old: tuple[int, ...]
) -> None:
    disk = Disk(tmp_path)
    records = [hour(MIDNIGHT + i * HOUR_MS, [float(i)]) for i in range(6)]
    files = files_of(disk, records, iter([2, 2, 2]))
    before = in_sql(files, tmp_path)
    for number in old:
        path = tmp_path / files[number].path
        pq.write_table(pq.read_table(path).drop_columns(["bloom"]), path)
    assert in_sql(files, tmp_path) == before
    merged = disk.merge(files, now_ms=9)
    assert in_sql([merged], tmp_path) == before
