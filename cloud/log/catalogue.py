"""Which streams and queries there are: Kafka's topics, and what the compacted tables say of them.

Each registration of a query has a topic of its own; a query's name stands for the topic of its
present registration, and after it was removed for that of its last one, until that is deleted.

Refreshed every REFRESH_S and at once when somebody asks for an unknown name, so a query that was
just added is found within a second. The tables are followed; all topics are listed seldom while
nothing changes (is_list_due).
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import orjson
from confluent_kafka import KafkaException

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.log.named import Named, UnknownPublication
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import FilterError, RemoteError, Unavailable
from edgewake.protocol.names import SYSTEM_STREAMS, is_stream
from edgewake.protocol.ops.publication import Publication
from edgewake.protocol.ops.query import units_of
from edgewake.protocol.sketches import sketch

log = logging.getLogger("edgewake.hub")

REFRESH_S: Final = 1.0
LIST_S: Final = 5.0
"""Seconds from one list of Kafka's topics to the next while nothing changes: it names each topic
and partition there is, and is the most expensive question of a small system. It tells what no table
does (who deleted a topic by hand, whether Kafka is there)."""
CHANGED_S: Final = 15.0
"""Seconds after a change of the streams or queries in which topics are listed with each look:
theirs are made by others, later."""
ASK_TIMEOUT_S: Final = 3.0
"""How long a request for an unknown name waits for a fresh answer."""
STALE_S: Final = 15.0
"""Without a successful look for so long Kafka counts as away."""
CLOSE_S: Final = 1.0
VANISH_LOOKS: Final = 5
"""Looks in a row that must miss a topic before it is taken for deleted."""
RETRY_MAX_S: Final = 5.0
NOT_OF_USERS: Final = SYSTEM_STREAMS | {sketch.STREAM}
"""Streams that parts and agents write about themselves: pages do not list them."""
NEAR_MAX: Final = 3
"""Near matches told for an unknown name."""
_NAMES: Final = (topics.STREAMS, topics.QUERIES)
"""Tables of which a change means that a topic comes, or goes."""
_TABLES: Final = (*_NAMES, topics.PROGRESS, topics.ENDINGS)


class UnknownStream(RemoteError, LookupError):
    """No stream or query has this name; `near` are names like it."""

    def __init__(self, name: str, near: list[str]) -> None:
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        super().__init__(f"no stream or query is named {name[:80]!r}{hint}")
        self.name = name
        self.near = near


@dataclass(frozen=True, slots=True)
class Topic:
    """A stream or a query that has a topic."""

    name: str
    topic: str
    is_query: bool
    partitions: int


class Catalogue:
    """What there is. `topics` maps names to Topics; one task runs `run`."""

    def __init__(
        self, config: KafkaConfig, client_id: str, clock: Clock, *, has_named: bool = False
    ) -> None:
        """`has_named`: does it read named sets, publications and boards, too?"""
        self.topics: Mapping[str, Topic] = {}
        self.named: Named | None = Named() if has_named else None
        """Sets and publications."""
        self.generation = 0
        """Grows with every successful look."""
        self.on_ending: Callable[[str, bytes], None] | None = None
        """Gets each word that ends a client, with the client's id; called in the reading
        thread."""
        self._config = config
        self._client_id = client_id
        self._clock = clock
        self._admin: Admin = clients.admin(config)
        self._tables: TableReader | None = None
        self._rows: dict[str, dict[str, dict[str, Any]]] = {table: {} for table in _TABLES}
        self.looked = asyncio.Event()
        """Set after the first successful look."""
        self._reading = threading.Lock()
        self._missing: dict[str, int] = {}
        self._looking = False
        self._asked = asyncio.Event()
        self._looked = asyncio.Condition()
        self._partitions: Mapping[str, int] = {}
        """The partitions of each topic when they were listed last."""
        self._listed_s = self._changed_s = float("-inf")
        self._is_asked = False
        self._failed_by = ""
        """What the last look failed by, if it did."""

    @property
    def is_reachable(self) -> bool:
        """Did Kafka answer lately?"""
        return self._clock.monotonic_s() - self._listed_s < STALE_S

    @property
    def why_unreachable(self) -> str:
        """For people; empty while Kafka is reachable."""
        if self.is_reachable:
            return ""
        lasts_s = self._clock.monotonic_s() - self._listed_s
        since = "since the start" if lasts_s == float("inf") else f"for {lasts_s:.0f} s"
        return f"Kafka does not answer, {since}: {self._failed_by or 'asked for the first time'}"

    async def run(self) -> None:
        """Look again and again; that Kafka is away is logged once, and waited for."""
        delay = 0.2
        away = False
        while True:
            try:
                await self._look()
            except Unavailable as error:
                if not away:
                    log.warning("Kafka is away: %s", error, extra={"event": "kafka.away"})
                self._failed_by = str(error)
                away, delay = True, min(RETRY_MAX_S, delay * 2)
                await self._clock.sleep(delay)
                continue
            if away:
                log.info("Kafka is back", extra={"event": "kafka.back"})
            away, delay, self._failed_by = False, 0.2, ""
            await self._pause()

    def seen_by(self, reader: Principal, action: Action = Action.READ) -> Mapping[str, Topic]:
        """Return the streams and queries whose names a reader may know."""
        return {name: topic for name, topic in self.topics.items() if reader.may(action, name)}

    async def find(
        self, names: tuple[str, ...], reader: Principal, action: Action = Action.READ
    ) -> list[Topic]:
        """The topics of names, after a fresh look if one is unknown.

        Raises UnknownStream or Unavailable.
        """
        if any(name not in self.seen_by(reader, action) for name in names):
            await self._ask()
        seen = self.seen_by(reader, action)
        return [_found(seen, name) for name in names]

    async def present(self, names: tuple[str, ...], reader: Principal) -> tuple[str, ...]:
        """Which of these are there, after a fresh look if one is unknown; raises Unavailable."""
        if any(name not in self.seen_by(reader) for name in names):
            await self._ask()
        seen = self.seen_by(reader)
        return tuple(name for name in names if name in seen)

    async def find_publication(
        self, name: str, reader: Principal, action: Action = Action.READ
    ) -> Publication:
        """The publication of this name, read again where it is unknown or hidden from this reader.

        Raises UnknownPublication or Unavailable.
        """
        if name not in self._published(reader, action):
            await self._ask()
        seen = self._published(reader, action)
        if name not in seen:
            raise UnknownPublication(name, difflib.get_close_matches(name, seen, n=NEAR_MAX))
        return seen[name]

    def _published(self, reader: Principal, action: Action) -> Mapping[str, Publication]:
        return {} if self.named is None else self.named.publications(reader, action)

    async def check_sets(self, names: frozenset[str], reader: Principal) -> None:
        """Raises FilterError for a set that does not exist or is hidden from this reader.

        Both get the same words after the same wait, so nobody learns that a hidden set exists.
        """
        if any(self._is_no_set(name, reader) for name in names):
            await self._ask()
        for name in sorted(names):
            if self._is_no_set(name, reader):
                raise FilterError(f"where: SET({name!r}): no set is named {name!r}")

    def _is_no_set(self, name: str, reader: Principal) -> bool:
        return self.named is None or self.named.members(name) is None or not reader.may_use(name)

    def describe(self, reader: Principal) -> list[dict[str, Any]]:
        """Streams and queries for people: name, kind, description, fields, state."""
        return [
            self._described(topic, reader)
            for topic in sorted(self.seen_by(reader).values(), key=lambda t: (t.is_query, t.name))
        ]

    def describe_publications(self, reader: Principal) -> list[dict[str, Any]]:
        """Publications for people: name, description, streams, fields, limits."""
        return [
            one.model_dump(include={"name", "description", "streams", "fields", "limits"})
            for _, one in sorted(self._published(reader, Action.READ).items())
        ]

    def field_kinds(self, name: str) -> Mapping[str, str] | None:
        """The fields of a stream with their types.

        None for a query, and for a stream whose fields are not known yet.
        """
        topic = self.topics.get(name)
        if topic is None or topic.is_query:
            return None
        fields = self._rows[topics.STREAMS].get(name, {}).get("fields", {})
        return {field: str(info.get("type")) for field, info in fields.items()} or None

    def group_columns(self, query: str) -> tuple[str, ...] | None:
        """The group columns of a query's rows; None while the analysis has not said them."""
        keys = self._rows[topics.PROGRESS].get(query, {}).get("keys")
        return None if keys is None else tuple(keys)

    def close(self) -> None:
        """Leave Kafka; not while a look is under way, whose thread ends with the process."""
        if self._reading.acquire(timeout=CLOSE_S) and self._tables is not None:
            self._tables.close()
            self._tables = None

    async def _ask(self) -> None:
        """Wait for a look that began after now. Raises Unavailable.

        Without one nobody knows whether the name is there, and a 404 ends a browser's stream.
        """
        seen = self.generation + self._looking
        self._asked.set()
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S), self._looked:
                await self._looked.wait_for(lambda: self.generation > seen)
        except TimeoutError:
            slow = f"Kafka did not say within {ASK_TIMEOUT_S:g} s what there is; come again"
            raise Unavailable(self.why_unreachable or slow) from None

    def _with_vanished(self, found: Mapping[str, Topic]) -> Mapping[str, Topic]:
        """Keep a topic that is missing for VANISH_LOOKS polls.

        A broker that starts may not know all, and a 404 ends a browser's stream.
        """
        gone = {name: self._missing.get(name, 0) + 1 for name in self.topics if name not in found}
        self._missing = gone
        return {
            **{name: self.topics[name] for name, looks in gone.items() if looks < VANISH_LOOKS},
            **found,
        }

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_S):
                await self._asked.wait()

    async def _look(self) -> None:
        self._looking = True
        self._is_asked |= self._asked.is_set()
        self._asked.clear()
        try:
            found = await _in_daemon_thread(self._read)
        finally:
            self._looking = False
        self._is_asked = False
        async with self._looked:
            self.topics = self._with_vanished(found)
            self.generation += 1
            self.looked.set()
            self._looked.notify_all()

    def _read(self) -> Mapping[str, Topic]:
        """Ask Kafka; runs in a thread."""
        with self._reading:
            return self._ask_kafka()

    def _ask_kafka(self) -> Mapping[str, Topic]:
        if self._tables is None:
            self._tables = self._read_tables()
        while self._tables.poll(0.0):
            pass
        now_s = self._clock.monotonic_s()
        if (
            self._is_asked
            or self._missing
            or is_list_due(now_s, listed_s=self._listed_s, changed_s=self._changed_s)
        ):
            try:
                listed = self._admin.list_topics(timeout=METADATA_TIMEOUT_S).topics
            except KafkaException as error:
                raise Unavailable(error.args[0].str()) from error
            self._partitions = {name: len(entry.partitions) for name, entry in listed.items()}
            self._listed_s = self._clock.monotonic_s()
        registered_at = {
            name: row.get("registered_at") for name, row in self._rows[topics.QUERIES].items()
        }
        return topics_of(self._partitions, registered_at)

    def _read_tables(self) -> TableReader:
        tables: dict[str, OnRow] = {table: partial(self._change, table) for table in _TABLES}
        if self.named is not None:
            tables |= {
                topics.SETS: self.named.take_set,
                topics.PUBLICATIONS: self.named.take_publication,
                topics.BOARDS: self.named.take_board,
                topics.NOTES: self.named.take_note,
            }
        topic_admin.ensure_topics(self._config, list(tables), client=self._admin)
        reader = TableReader(self._config, f"{self._client_id}-catalogue", tables)
        try:
            reader.read_all()
        except Unavailable:
            reader.close()
            raise
        return reader

    def _change(self, table: str, key: str, value: bytes | None) -> None:
        if table == topics.ENDINGS:
            if value is not None and self.on_ending is not None:
                self.on_ending(key, value)
            return
        if table in _NAMES:
            self._changed_s = self._clock.monotonic_s()
        if value is None:
            self._rows[table].pop(key, None)
            return
        found = orjson.loads(value)
        if not isinstance(found, dict):
            raise ValueError(f"row {key!r}: expected a JSON object")
        self._rows[table][key] = found

    def _described(self, topic: Topic, reader: Principal) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": topic.name,
            "kind": "query" if topic.is_query else "stream",
            "partitions": topic.partitions,
        }
        if not topic.is_query:
            row = self._rows[topics.STREAMS].get(topic.name, {})
            scope = reader.scope(Action.READ, topic.name)
            fields = row.get("fields", {})
            return shown | {
                "description": row.get("description", ""),
                "of_system": topic.name in NOT_OF_USERS,
                "fields": {
                    name: told if scope is None else scope.cut_told(told)
                    for name, told in fields.items()
                    if scope is None or scope.shows_field(name)
                },
            }
        progress = self._rows[topics.PROGRESS].get(topic.name, {})
        registered = topic.name in self._rows[topics.QUERIES]
        source, keys = progress.get("stream"), progress.get("keys")
        scope = reader.scope(Action.READ, topic.name)
        units = units_of(progress.get("measures", {}), self._unit_of)
        if scope is not None:
            keys = None if keys is None else [key for key in keys if scope.shows_field(key)]
            units = {name: unit for name, unit in units.items() if scope.shows_field(name)}
        return shown | {
            "registered": registered,
            "of": source if source and reader.may(Action.READ, source) else None,
            "keys": keys,
            "units": units,
            "state": progress.get("state"),
            "watermark": progress.get("watermark"),
        }

    def _unit_of(self, stream: str, field: str) -> str:
        fields = self._rows[topics.STREAMS].get(stream, {}).get("fields", {})
        return str(fields.get(field, {}).get("unit", ""))


def is_list_due(now_s: float, *, listed_s: float, changed_s: float) -> bool:
    """Is it time to list Kafka's topics, though nobody asks and none is missed?

    In seconds, monotonic: when they were listed last, and when the streams or queries changed last.
    """
    return now_s - listed_s >= LIST_S or now_s - changed_s < CHANGED_S


def topics_of(partitions: Mapping[str, int], registered_at: Mapping[str, Any]) -> dict[str, Topic]:
    """Streams and queries among all topics, by name.

    `registered_at`: of the queries that are registered.

    A registered query and a stream never have one name (`ew.streams` decides); a stream may have
    that of a query that was removed.
    """
    found: dict[str, Topic] = {}
    newest: dict[str, int] = {}
    for topic, count in partitions.items():
        parsed = topics.parse_query_topic(topic)
        if parsed is None or not count:
            continue
        name, at = parsed
        if at == registered_at.get(name, at) and at >= newest.get(name, 0):
            newest[name] = at
            found[name] = Topic(name, topic, True, count)
    for topic, count in partitions.items():
        name = topic.removeprefix(topics.STREAM_PREFIX)
        if name != topic and count and is_stream(name) and name not in registered_at:
            found[name] = Topic(name, topic, False, count)
    return found


def _found(seen: Mapping[str, Topic], name: str) -> Topic:
    topic = seen.get(name)
    if topic is None:
        raise UnknownStream(name, difflib.get_close_matches(name, seen, n=NEAR_MAX))
    return topic


OnRow = Callable[[str, bytes | None], None]
T = TypeVar("T")


async def _in_daemon_thread(call: Callable[[], T]) -> T:
    """Run a call that may block.

    Unlike an executor's, its thread does not delay the end of the process when Kafka is away.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = call()
        except BaseException as error:  # it belongs to who waits
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="catalogue", daemon=True).start()
    return await done
