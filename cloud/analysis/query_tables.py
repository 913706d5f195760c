"""What is registered, and the streams that it may ask: read from Kafka and followed.

The queries that are shipped are registered here, once in the life of what is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import orjson
from confluent_kafka import Producer

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.table_reader import TableReader, read_once
from edgewake.cloud.queries.registry import Registry, built_in
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import NameKind, Stream
from edgewake.protocol.ops.query import Registration, claim_of

log = logging.getLogger("edgewake.analysis")

FLUSH_S: Final = 10.0
OnRow: TypeAlias = Callable[[str, bytes | None], None]
"""Gets each change of a table's row: its key, and its value or None where it was removed."""
_WRITTEN: Final = (
    topics.QUERIES,
    topics.STREAMS,
    topics.PROGRESS,
    topics.REPAIRS,
    topics.PREVIEWS,
    topics.LANES,
    topics.WINDOWS,
    topics.ERASURES,
    topics.LATE,
    topics.SHED,
    *topics.SUMMARIES,
)
"""Topics that an analysis needs beside those of streams and results."""


class QueryTables:
    """`read`, then `poll` or `wait` each turn of the main loop."""

    def __init__(
        self,
        config: AnalysisConfig,
        producer: Producer,
        clock: Clock,
        *,
        on_repair: OnRow,
        on_preview: OnRow,
        on_erasure: OnRow,
        on_progress: OnRow,
    ) -> None:
        """`on_progress`: of what was said of queries before, only by `read`."""
        self._config, self._producer, self._clock = config, producer, clock
        self._others = {
            topics.REPAIRS: on_repair,
            topics.PREVIEWS: on_preview,
            topics.ERASURES: on_erasure,
        }
        self._on_progress = on_progress
        self._readers: list[TableReader] = []
        self.registry = Registry()

    def read(self) -> None:
        """All there is, from the beginning; registers the queries that are shipped.

        Raises Unavailable.
        """
        kafka = self._config.kafka
        topic_admin.ensure_topics(kafka, _WRITTEN)
        for reader in self._readers:
            reader.close()
        others = {topics.STREAMS: self.registry.on_stream, **self._others}
        self._readers = [  # the first one wakes the main loop
            TableReader(kafka, "analysis-queries", {topics.QUERIES: self.registry.on_query}),
            TableReader(kafka, "analysis-tables", others),
        ]
        for reader in self._readers:
            reader.read_all()
        read_once(kafka, "analysis-progress", {topics.PROGRESS: self._on_progress})
        self._register_built_in()

    def poll(self) -> None:
        """Take what changed."""
        for reader in self._readers:
            reader.poll(0)

    def wait(self, seconds: float) -> bool:
        """Wait so long for a query that is registered, paused or removed; did one come?"""
        return bool(self._readers[0].poll(seconds))

    def types(self) -> dict[str, dict[str, FieldType]]:
        """Stream → field → type."""
        return {
            name: {field: info.type for field, info in stream.fields.items()}
            for name, stream in self.registry.streams.items()
        }

    def _register_built_in(self) -> None:
        """Register the built-in queries once per data folder.

        A user who removes one does not get it back.
        """
        known = self._config.kept_dir / "built_in_queries.json"
        done = names_in(known)
        now_ms = self._clock.now_ms()
        wanted = [
            Registration(
                name=name, text=text, registered_at=now_ms, claim=claim_of(now_ms, "analysis")
            )
            for name, text in built_in().items()
            if name not in done and name not in self.registry.registrations
        ]
        for registration in self._claimed(wanted):
            self.registry.registrations[registration.name] = registration
            self._producer.produce(
                topics.QUERIES, registration.model_dump_json().encode(), registration.name
            )
        if self._producer.flush(FLUSH_S) > 0:
            raise Unavailable("the built-in queries could not be registered")
        if not done.issuperset(built_in()):
            write_names(known, done.union(built_in()))

    def _claimed(self, wanted: Sequence[Registration]) -> list[Registration]:
        """Return the registrations that got their names. Raises Unavailable.

        On `ew.streams` the first claim has a name, of a stream or of a query.
        """
        for one in wanted:
            row = Stream(name=one.name, kind=NameKind.QUERY, claim=one.claim)
            self._producer.produce(topics.STREAMS, row.model_dump_json().encode(), one.name)
        if self._producer.flush(FLUSH_S) > 0:
            raise Unavailable("the names of the built-in queries could not be claimed")
        for reader in self._readers:
            reader.read_all()
        names = self.registry.names
        for one in wanted:
            if names[one.name].claim != one.claim:
                log.warning(
                    "built-in query %s: its name is taken",
                    one.name,
                    extra={"event": "query.name_taken"},
                )
        return [one for one in wanted if names[one.name].claim == one.claim]


def names_in(path: Path) -> frozenset[str]:
    """The names in a file; none where it is missing, or a power cut has torn it."""
    try:
        found = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return frozenset()
    except ValueError:
        log.warning(
            "%s: cannot be read, and is written again", path, extra={"event": "query.names"}
        )
        return frozenset()
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def write_names(path: Path, names: Collection[str]) -> None:
    """Write them whole or not at all: a process that is killed leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(orjson.dumps(sorted(names)))
    new.replace(path)
