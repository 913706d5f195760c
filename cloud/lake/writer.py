"""Writes the lake: follows streams, results and summaries, and writes Parquet periodically.

Order: files durable, then named in the manifest together with the places that they reach
(manifest.py). What is gathered and not yet written is in memory only, and is read from Kafka again
after a crash. At a full disk nothing is lost: it says so, forgets what it gathered and tries again
from the manifest's places, for as long as Kafka keeps the records.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from edgewake.cloud.failpoint import reach
from edgewake.cloud.health import Health
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.metadata import partition_counts, topic_ids
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.lake import upkeep
from edgewake.cloud.lake.config import LakeConfig
from edgewake.cloud.lake.erasing import Erasures
from edgewake.cloud.lake.files import Damaged, Disk
from edgewake.cloud.lake.gather import Foreign
from edgewake.cloud.lake.manifest import GRACE_S, Fenced, File, Gap, Manifest, Partition, Place
from edgewake.cloud.lake.metrics import LakeMetrics
from edgewake.cloud.lake.pending import Pending
from edgewake.cloud.lake.sources import Source, is_row, sources_of
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.ops.erasure import Erasure

log = logging.getLogger("edgewake.lake")

POLL_S: Final = 0.5
"""The longest wait for Kafka, so that the part gives signs of life and ends when it is told to."""
BATCH: Final = 500
"""Records taken from Kafka's client at once."""
LOOK_EVERY_S: Final = 10.0
"""Between looks for new streams and queries."""
UPKEEP_EVERY_S: Final = 60.0
"""Between two looks for what is to be merged and deleted."""
UPKEEP_SHARE: Final = 4
"""While groups of files wait, one is merged in a turn, and reading goes on between: merging takes
one part in this many of the time."""
ORPHANS_EVERY_S: Final = 3600.0
_CONSUMER: Final[dict[str, Any]] = {
    # Nobody waits for what is gathered: Kafka is asked twice a second, and not once for each
    # record.
    "fetch.wait.max.ms": 500,
    "fetch.min.bytes": 1 << 20,
    "queued.max.messages.kbytes": 8_192,
}


class _Erasing(Exception):
    """Something is to be erased: what is gathered may be of it, and is read again after it."""


class Writer:
    """Runs until `stop`."""

    def __init__(
        self,
        config: LakeConfig,
        *,
        clock: Clock,
        rng: random.Random,
        stop: threading.Event,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._clock, self._stop, self._on_turn = config, clock, stop, on_turn
        self._backoff = Backoff(rng, first_s=0.5, max_s=15.0)
        self.metrics = LakeMetrics()
        self.health = Health(clock.monotonic_s)
        self._unable: set[str] = set()
        """Erasures that a damaged file keeps from being done, while this process runs."""

    def run(self) -> None:
        """Raises LocalError where the manifest cannot be used."""
        manifest = Manifest(self._config.data_dir)
        try:
            while not self._stop.is_set():
                try:
                    _Turns(
                        self._config,
                        manifest,
                        self._clock,
                        self.metrics,
                        self._on_turn,
                        self._went_well,
                        self._unable,
                    ).run(self._stop)
                except _Erasing:
                    log.debug("starts again, to erase")
                except (
                    Unavailable,
                    Fenced,
                    KafkaException,
                    sqlite3.OperationalError,
                    OSError,
                ) as error:
                    self.metrics.failures += 1
                    what = "disk" if isinstance(error, OSError) else "wait"
                    self.health.note(what, f"the lake waits, nothing is lost: {error}")
                    event = f"lake.{what}"
                    log.warning(
                        "the lake waits, nothing is lost: %s", error, extra={"event": event}
                    )
                    self._wait(self._backoff.next_s())
        finally:
            manifest.close()

    def _went_well(self, *, is_written: bool) -> None:
        """Kafka said what there is; `is_written`: and the disk took it."""
        self.health.note("wait", None)
        if is_written:
            self.health.note("disk", None)
            self._backoff.reset()

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic_s() + seconds
        while self._clock.monotonic_s() < until and not self._stop.wait(0.5):
            self._on_turn()


class _Turns:
    """One life with Kafka: from the manifest's places until something is away."""

    def __init__(
        self,
        config: LakeConfig,
        manifest: Manifest,
        clock: Clock,
        metrics: LakeMetrics,
        on_turn: Callable[[], None],
        on_well: Callable[..., None],
        unable: set[str],
    ) -> None:
        self._config, self._manifest, self._clock, self._metrics = config, manifest, clock, metrics
        self._on_turn, self._on_well, self._unable = on_turn, on_well, unable
        self._disk = Disk(config.data_dir)
        self._consumer: Consumer = clients.consumer(config.kafka, "lake", **_CONSUMER)
        self._admin: Admin = clients.admin(config.kafka)
        self._sources: dict[str, Source] = {}
        self._assigned: set[Partition] = set()
        self._ids: dict[str, str] = {}
        self._places: dict[Partition, Place] = {}
        self._gaps: list[Gap] = []
        self._damaged: set[str] = set()
        """Files that could not be merged in this life."""
        self._forget()

    def _forget(self) -> None:
        self._pending = Pending()
        self._next: dict[Partition, int] = {}

    def run(self, stop: threading.Event) -> None:
        """Raises what is away, and _Erasing."""
        erasures: Erasures | None = None
        try:
            self._places = self._manifest.places()
            erasures = Erasures(self._config.kafka, self._clock)
            self._erase(erasures)
            now_s = self._clock.monotonic_s()
            look_at = upkeep_at = orphans_at = now_s
            write_at = now_s + self._config.every_s
            while not stop.is_set():
                self._on_turn()
                now_s = self._clock.monotonic_s()
                if now_s >= look_at:
                    if self._to_erase(erasures):
                        raise _Erasing
                    self._look()
                    self._on_well(is_written=False)
                    look_at = now_s + LOOK_EVERY_S
                self._take(min(POLL_S, max(0.0, write_at - now_s)) if self._next else POLL_S)
                if now_s >= write_at or self._pending.is_full:
                    self._write()
                    write_at = now_s + self._config.every_s
                if now_s >= upkeep_at:
                    is_more = self._keep()
                    took_s = self._clock.monotonic_s() - now_s
                    upkeep_at = now_s + (UPKEEP_SHARE * took_s if is_more else UPKEEP_EVERY_S)
                if now_s >= orphans_at:
                    self._disk.delete_orphans(
                        self._manifest.known(), older_than_ms=self._clock.now_ms()
                    )
                    orphans_at = now_s + ORPHANS_EVERY_S
            self._write()
        finally:
            self._consumer.close()
            if erasures is not None:
                erasures.close()

    def _to_erase(self, erasures: Erasures) -> list[Erasure]:
        return [row for row in erasures.due(self._places) if row.id not in self._unable]

    def _erase(self, erasures: Erasures) -> None:
        """Before anything is gathered."""
        for row in self._to_erase(erasures):
            try:
                files, rows = erasures.erase(row, self._manifest, self._disk)
            except Damaged as error:
                self._unable.add(row.id)
                log.error(
                    "%s: mend or delete it, and start the lake again; until then %s %s is not "
                    "erased here", error, row.what, row.name,
                    extra={"event": "lake.damaged"},
                )  # fmt: skip
            else:
                log.info(
                    "erased %s %s: %d rows in %d files", row.what, row.name, rows, files,
                    extra={"event": "lake.erased", "erasure": row.id},
                )  # fmt: skip

    def _look(self) -> None:
        counts = partition_counts(self._consumer)
        found = sources_of(counts, only=self._config.only, leave_out=self._config.leave_out)
        if gone := self._sources.keys() - found.keys():
            # What was read of others is read again from the manifest's places.
            raise Unavailable(f"{min(gone)} was deleted")
        new = {
            (topic, number) for topic in found for number in range(counts[topic])
        } - self._assigned
        if new:
            self._sources = found
            self._ids |= topic_ids(self._admin, {topic for topic, _ in new})
            self._consumer.incremental_assign(
                [TopicPartition(*partition, self._begin(*partition)) for partition in sorted(new)]
            )
            self._assigned |= new

    def _begin(self, topic: str, partition: int) -> int:
        low, high = watermarks(self._consumer, topic, partition)
        known = self._places.get((topic, partition))
        at = (
            known.next
            if known is not None and known.topic_id == self._ids[topic] and known.next <= high
            else None
        )
        if at is not None and at < low:
            self._gaps.append(Gap(topic, partition, at, low))
            self._metrics.overtaken += low - at
            log.error(
                "%s, partition %d: Kafka deleted %d records before the lake had them", topic,
                partition, low - at,
                extra={"event": "lake.gap"},
            )  # fmt: skip
        return low if at is None else max(at, low)

    def _take(self, wait_s: float) -> None:
        first = self._consumer.poll(wait_s)
        for message in [] if first is None else [first, *self._consumer.consume(BATCH - 1, 0)]:
            if message.error() is not None:
                raise KafkaException(message.error())
            self._add(message)

    def _add(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self._next[topic, partition] = offset + 1
        value = message.value()
        if value is None or not is_row(message):
            return
        date = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC).date().isoformat()
        try:
            self._pending.add(
                self._sources[topic],
                date,
                value,
                key=message.key(),
                partition=partition,
                offset=offset,
            )
        except Foreign as error:
            self._metrics.foreign += 1
            log.debug("%s, partition %d, offset %d: %s", topic, partition, offset, error)

    def _write(self) -> None:
        if not self._next and not self._gaps:
            return
        now_ms = self._clock.now_ms()
        self._check_ids()
        files = [
            self._disk.write(rows.table(), source, date, rows.fields, now_ms=now_ms)
            for source, date, rows in self._pending
        ]
        after = {
            partition: Place(self._ids[partition[0]], next_)
            for partition, next_ in self._next.items()
        }
        before = {partition: self._places.get(partition) for partition in after}
        self._commit(files, before, after, now_ms)
        self._places |= after
        self._metrics.rows += self._pending.rows
        self._gaps.clear()
        self._forget()
        self._on_well(is_written=True)

    def _commit(
        self,
        files: list[File],
        before: dict[Partition, Place | None],
        after: dict[Partition, Place],
        now_ms: int,
    ) -> None:
        try:
            self._manifest.commit(files, before, after, self._gaps, now_ms=now_ms)
        except Fenced:
            self._disk.delete(file.path for file in files)
            raise
        reach("lake.committed")

    def _check_ids(self) -> None:
        """Raise Unavailable when a topic was recreated meanwhile: its records must not be mixed."""
        names = {topic for topic, _ in self._next}
        if names and any(
            self._ids[name] != id_ for name, id_ in topic_ids(self._admin, names).items()
        ):
            raise Unavailable("a topic was recreated")

    def _keep(self) -> bool:
        """Merge one group, give up what is too old, delete what nobody reads any more.

        Is more to be merged?
        """
        now_ms = self._clock.now_ms()
        today = datetime.fromtimestamp(now_ms / 1000, UTC).date().isoformat()
        files = self._manifest.files()
        groups = upkeep.to_merge(
            (file for file in files if file.path not in self._damaged), today=today
        )
        is_merged = bool(groups) and self._merge(groups[0], now_ms)
        if is_merged:
            files = self._manifest.files()
        if dropped := upkeep.to_drop(
            files, today=today, days=self._config.keep_days, bytes_max=self._config.bytes_max
        ):
            self._manifest.replace(dropped, None, now_ms=now_ms)
            log.info(
                "%d files are older than they are kept",
                len(dropped),
                extra={"event": "lake.dropped"},
            )
            files = self._manifest.files()
        if old := self._manifest.old(now_ms - GRACE_S * 1000):
            self._disk.delete(old)
            self._manifest.deleted(old)
        self._metrics.files, self._metrics.bytes = len(files), sum(file.bytes for file in files)
        return is_merged and len(groups) > 1

    def _merge(self, group: Sequence[File], now_ms: int) -> bool:
        """Merge a group of files; was it merged?

        A file that cannot be read, or a disk without room for both, does not stop the writing.
        """
        try:
            merged = self._disk.merge(group, now_ms=now_ms)
        except Damaged as error:
            self._damaged.add(error.file.path)
            self._metrics.damaged += 1
            log.error(
                "%s; questions that need it fail, the rest goes on",
                error,
                extra={"event": "lake.damaged"},
            )
            return False
        except OSError as error:
            self._metrics.failures += 1
            log.warning("files are not merged now: %s", error, extra={"event": "lake.disk"})
            return False
        try:
            self._manifest.replace(group, merged, now_ms=now_ms)
        except Fenced:
            self._disk.delete([merged.path])
            raise
        return True
