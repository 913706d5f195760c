"""The lake's part of erasures: which rows of which files go, and the table that says so.

Files are rewritten without these rows, and named in place of the old ones together with the
erasure's id, in one transaction of the manifest; so a kill leaves a file that nobody names, or a
report that is sent again. The old files are deleted at once: a question that has not opened them
yet fails, and is asked again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.lake.files import Disk
from edgewake.cloud.lake.manifest import File, Manifest, Partition, Place
from edgewake.cloud.lake.shape import Kind
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.erasure import NO_NAMES, TELLING, Erasure, Report, Step, report_key
from edgewake.protocol.sketches.sketch import DeviceSketch

PART = "lake"
REPORT_S = 10.0
"""How long Kafka may take to confirm a report."""
IsGone: TypeAlias = Callable[[pa.Table], pa.Array]


class Erasures:
    """Follows `ew.erasures`. Not for several threads."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        """Raises Unavailable."""
        self._clock = clock
        self._rows: dict[str, Erasure] = {}
        self._reported: set[str] = set()
        topic_admin.ensure_topics(config, [topics.ERASURES])
        self._reader = TableReader(config, "lake-erasures", {topics.ERASURES: self._on_row})
        self._producer: Producer = clients.producer(config, "lake-erasures")
        self._reader.read_all()

    def _on_row(self, key: str, value: bytes | None) -> None:
        id_, _, part = key.partition("|")
        if part:
            self._reported |= {id_} if part == PART else set()
        elif value is None:
            self._rows.pop(id_, None)
        else:
            self._rows[id_] = Erasure.model_validate_json(value)

    def due(self, places: Mapping[Partition, Place]) -> list[Erasure]:
        """Those that wait for us now, the oldest first.

        Of a device: once others' readings that leave Kafka with its own are in the lake.
        """
        self._reader.poll(0)
        waiting = (
            row
            for row in self._rows.values()
            if row.step is Step.LAKE and row.id not in self._reported
        )
        return sorted((row for row in waiting if _is_in(row, places)), key=lambda row: row.asked_at)

    def erase(self, row: Erasure, manifest: Manifest, disk: Disk) -> tuple[int, int]:
        """Do it, and say so; files and rows. Raises OSError, Damaged, Fenced or Unavailable."""
        now_ms = self._clock.now_ms()
        if row.id not in manifest.erased():
            changed: list[tuple[File, File | None]] = []
            rows = 0
            for file in manifest.files():
                is_gone = gone_of(row, file)
                if is_gone is None:
                    continue
                after, count = disk.without(file, is_gone, now_ms=now_ms)
                if count:
                    changed.append((file, after))
                    rows += count
            manifest.erase(row.id, changed, rows, now_ms=now_ms)
        old = manifest.old(now_ms + 1)
        disk.delete(old)
        manifest.deleted(old)
        disk.delete_orphans(manifest.known(), older_than_ms=None)
        files, rows = manifest.erased()[row.id]
        self._report(row, Report(files=files, rows=rows, at=now_ms))
        return files, rows

    def _report(self, row: Erasure, report: Report) -> None:
        reports = DeliveryReports()
        self._producer.produce(
            topics.ERASURES,
            report.model_dump_json().encode(),
            report_key(row.id, PART),
            0,
            on_delivery=reports,
        )
        if self._producer.flush(REPORT_S) or reports.errors:
            why = reports.why(f"no answer within {REPORT_S:g} s")
            raise Unavailable(f"erasure {row.id} is done, but Kafka has no report of it: {why}")
        self._reported.add(row.id)

    def close(self) -> None:
        """Close the table reader and the producer."""
        self._reader.close()
        self._producer.close()


def _is_in(row: Erasure, places: Mapping[Partition, Place]) -> bool:
    if row.what == "stream":
        return True
    for cut in row.cuts:
        place = places.get((cut.topic, cut.partition))
        is_ours = place is not None and place.topic_id == cut.topic_id
        if is_ours and place is not None and place.next < cut.through:
            return False
    return True


def gone_of(row: Erasure, file: File) -> IsGone | None:
    """Which rows of a file go; None where the file holds none that could."""
    is_telling = file.topic in TELLING
    if file.kind is Kind.QUERY:
        return _all if file.name in row.queries and _is_before(row, file) else None
    if file.kind is Kind.SUMMARY:
        return lambda table: _of_summaries(row, table)
    if row.what == "device":
        words = {row.name}
        return lambda table: pc.and_(
            pc.or_(pc.equal(table["device"], row.name), _tells(table, words, is_telling)),
            _until(table["received_at"], row.asked_at),
        )
    if file.name == row.name:
        end = row.deleted_at or row.asked_at
        return lambda table: _until(table["received_at"], end)
    if is_telling:
        names = {row.name, *row.queries}
        return lambda table: pc.and_(
            _tells(table, names, True),
            _until(table["received_at"], row.deleted_at or row.asked_at),
        )
    return None


def _is_before(row: Erasure, file: File) -> bool:
    """Are these results of a registration that there was when it was asked for?"""
    registration = topics.parse_query_topic(file.topic)
    return registration is None or registration[1] <= row.asked_at


def _all(table: pa.Table) -> pa.Array:
    return pa.array([True] * table.num_rows, pa.bool_())


def _until(times: pa.ChunkedArray, at_ms: int) -> pa.Array:
    at = pa.scalar(dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC), pa.timestamp("us", "UTC"))
    return pc.fill_null(
        pc.less_equal(times.cast(pa.timestamp("us")), at.cast(pa.timestamp("us"))), True
    )


def _tells(table: pa.Table, words: set[str], is_telling: bool) -> pa.Array:
    """Rows in which one of these names is a value."""
    found = pa.chunked_array([pa.array([False] * table.num_rows, pa.bool_())])
    told = [name for name in table.column_names if name not in NO_NAMES] if is_telling else []
    for name in told:
        if pa.types.is_string(table.schema.field(name).type):
            is_in = pc.is_in(table[name], value_set=pa.array(sorted(words), pa.string()))
            found = pc.or_(found, is_in)
    return found


def _of_summaries(row: Erasure, table: pa.Table) -> pa.Array:
    is_before = _until(table["window_start"], row.asked_at - 1)
    if row.what == "stream":
        return pc.and_(pc.equal(table["stream"], row.name), is_before)
    is_made = pc.or_(
        pc.starts_with(table["maker"], f"{row.name}|"),
        pc.starts_with(table["maker"], f"late:{row.name}|"),
    )
    of_set = pc.equal(table["devices"], DeviceSketch.set_of(row.name))
    return pc.and_(pc.or_(is_made, of_set), is_before)
