"""Keeps the latest of streams that clients ask for, each with the cursor of what it contains.

They are updated from the hub. The first request for a stream reads back `NEAR_S` of it, RECORDS_MAX
of each partition at most, and follows it from there on; older records are read beside it. Each
answer says whether it is complete, and if not, why. After IDLE_S without a request a store is
dropped. So a request costs nothing but its answer, and a stream that nobody asks for costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

import orjson

from edgewake.cloud.access.bounded import rows as rows_asked
from edgewake.cloud.access.bounded.bodies import STALL_S, Bodies, Taken
from edgewake.cloud.access.bounded.rows import Choice, Entry, Picker, in_turns
from edgewake.cloud.access.config import ANSWER_BYTES_MAX, LATEST_MIB, LATEST_RECORDS
from edgewake.cloud.access.latest.latest import Latest
from edgewake.cloud.access.latest.latest_changes import Row, Shown, told, told_of_row
from edgewake.cloud.client_share import SHARE_DEFAULT, Bound
from edgewake.cloud.log.catalogue import UnknownStream
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.filters.filter_syntax import Sets
from edgewake.cloud.log.following.subscriber import Subscriber, ViewEnded
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import MIB, Full
from edgewake.cloud.log.reader import Batch, Step
from edgewake.cloud.log.request import LogEnd, OnGap, Request, RequestError
from edgewake.cloud.log.subscription import (
    DEVICE_ALONE,
    Bounds,
    Plan,
    Positions,
    Published,
    published,
)
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.rights.principal import ANYBODY, Action, Principal, holder
from edgewake.cloud.rights.scope import Scope
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Position
from edgewake.protocol.errors import CursorError, Unavailable
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.ops.publication import Publication

log = logging.getLogger("edgewake.access")

NEAR_S: Final = 3600.0
"""The age of the records that the first question waits for, in seconds."""
RECORDS_MAX: Final = 20_000
"""Records of a partition that a store begins before the live end at most: some seconds of
reading."""
STORES_MAX: Final = 16
"""The most stores at once: each decodes all records of its stream or query, and holds up to
a fourth of `latest_mib` of rows."""
IDLE_S: Final = 60.0
FIRST_S: Final = 12.0
"""Seconds that the first question waits until the store has read up to the live end."""
OLDER_S: Final = 30.0
"""Seconds that who keeps a copy waits until older records are read: what they bring has no place
behind its cursor."""
SETS_S: Final = 1.0
"""How often who waits for changes of rows that a named set or a publication chooses looks at it."""
PUBLISHED_MAX: Final = 500
"""Publications that are kept compiled: as many as there may be."""
FIRST_LOOK_S: Final = 0.05
"""How often the first question checks whether the store is there."""
EVENTS_A_TURN: Final = 200
"""Events taken in before other clients have their turn."""
_EVENT_BYTES: Final = 1000


class Missing(StrEnum):
    """Why an answer is not complete."""

    READING = "reading"
    """Older records are still being read: ask again."""
    RECORDS = "records"
    """Only the last `latest_records` of each partition are read."""
    RETENTION = "retention"
    """Records before those that are kept may have had rows that nothing was heard of since."""
    BYTES = "bytes"
    """There are more rows than fit: `left_out` were dropped."""


ALL_ROWS: Final = Choice()


Stamps: TypeAlias = tuple[tuple[int, int], ...]
Tell: TypeAlias = Callable[[Shown], bytes | None]
"""Formats a change through what a reader sees."""


@dataclass(frozen=True, slots=True)
class Synchronised:
    """An answer to who keeps a copy."""

    body: Taken
    place: Row
    """The positions behind what it tells."""
    cursor: str
    """That place, also for a store that is another one by then."""
    stamps: Stamps
    """Versions of the named sets by which its rows were chosen."""
    is_empty: bool
    """Does it tell of no change?"""


class _Steps:
    """What the hub gives a store: the events themselves."""

    name = "latest"
    event_bytes = 0

    def encode(self, batch: Batch) -> tuple[Sequence[Step], int]:
        """The events of a batch, and their memory, roughly."""
        return tuple(batch.steps), sum(len(step.event.data) + _EVENT_BYTES for step in batch.steps)


class LatestStores:
    """All of them; `run` must run."""

    def __init__(
        self,
        hub: Hub,
        clock: Clock,
        *,
        address_share: float = SHARE_DEFAULT,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        stall_s: float = STALL_S,
        bytes_max: int = LATEST_MIB * MIB,
        records_max: int = LATEST_RECORDS,
    ) -> None:
        """Begin with none; `answer_bytes_max`: bytes of answers that are being sent.

        `bytes_max`: bytes of rows of all stores; one may have a fourth, and a sixteenth whatever
        the others have. `records_max`: records of a partition that are read back.
        """
        self._hub = hub
        self._clock = clock
        self._bound = Bound("streams and queries whose latest is kept", STORES_MAX, address_share)
        self.bodies = Bodies(bytes_max=answer_bytes_max, share=address_share, stall_s=stall_s)
        self._bytes_max, self._records_max = bytes_max, records_max
        self._stores: dict[str, _Store] = {}
        self._published: dict[str, Published] = {}
        """By name, compiled."""
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def sets(self) -> Sets | None:
        """Where the named sets of conditions are found."""
        return self._hub.catalogue.named

    async def run(self) -> None:
        """Keep the stores up to date until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.Future()

    async def answer(
        self, name: str, client: str, reader: Principal, asked: Choice = ALL_ROWS
    ) -> Taken:
        """JSON of a `latest_routes.LatestView`.

        Raises UnknownStream, Unavailable, RequestError and FilterError.
        """
        store = await self._ready(name, client, reader, asked)
        return await store.answer(_scope(reader, name, asked), asked, holder(reader, client))

    async def synchronised(
        self,
        name: str,
        client: str,
        reader: Principal,
        asked: Choice,
        *,
        cursor: str | None,
        wait_s: float,
    ) -> Taken:
        """JSON of a `sync_routes.SyncView`: the changes after a cursor, or all rows.

        It waits for changes. Raises UnknownStream, Unavailable, RequestError, FilterError and
        CursorError.
        """
        ends_s = self._clock.monotonic_s() + wait_s
        is_watched = asked.published is not None or bool(asked.sets)
        look_s = SETS_S if is_watched else IDLE_S / 2
        while True:
            store = await self._ready(name, client, reader, asked)
            try:
                async with asyncio.timeout(OLDER_S):
                    await store.has_older.wait()
            except TimeoutError:
                raise Unavailable(f"{name}: its older records are still being read") from None
            scope = _scope(reader, name, asked)
            found = await store.synchronised(scope, asked, cursor, holder(reader, client))
            left_s = ends_s - self._clock.monotonic_s()
            if found.stamps != store.stamps(asked):
                continue  # a set changed while its rows were looked at: some were judged by each
            if not found.is_empty or left_s <= 0:
                return found.body
            cursor = await store.until_changed(found, scope, asked, min(left_s, look_s))

    async def _ready(self, name: str, client: str, reader: Principal, asked: Choice) -> _Store:
        """The store of a stream, read up to the live end, for who may use the sets that it names.

        Raises UnknownStream, FilterError and Unavailable.
        """
        if asked.published is None:
            await self._hub.check((name,), reader)
        else:
            await self._check_published(name, asked.published.text, reader)
        if asked.where is not None and asked.where.sets:
            await self._hub.catalogue.check_sets(asked.where.sets, reader)
        store = self._stores.get(name)
        if store is None:
            store = await self._started(name, reader, client)
        store.asked_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(FIRST_S):
                await store.ready.wait()
        except TimeoutError:
            raise Unavailable(f"{name}: its last hour is still being read") from None
        return store

    async def published(self, name: str, reader: Principal) -> Published:
        """A publication that this reader may open. Raises UnknownPublication and Unavailable."""
        text = await self._hub.catalogue.find_publication(name, reader)
        found = self._published.get(name)
        if found is None or found.text != text:  # all who read it share what is made of it
            if len(self._published) >= PUBLISHED_MAX:
                self._published.clear()
            found = self._published[name] = published(text, self._hub.catalogue.named)
        return found

    async def _check_published(self, name: str, text: Publication, reader: Principal) -> None:
        """Raises UnknownStream for one that it does not have, Unavailable where it changed."""
        named = self._hub.catalogue.named
        if named is None or named.publication(text.name) != text:
            raise Unavailable(f"publication {text.name!r} was changed; come again with your cursor")
        if name not in text.streams:
            raise UnknownStream(name, [])
        wanted = Wanted(streams=(name,), publication=text)
        await self._hub.check_names(wanted, (name,), reader)

    async def _started(self, name: str, reader: Principal, client: str) -> _Store:
        (topic,) = await self._hub.catalogue.find((name,), ANYBODY)
        if name in self._stores:
            return self._stores[name]
        who = holder(reader, client)
        held = sum(store.holder == who for store in self._stores.values())
        refused = reader.limits.refusal("copies_max", held)
        refused = refused or self._bound.refusal(total=len(self._stores), held=held)
        if refused is not None:
            raise Full(refused)
        assert self._tasks is not None, "run first"
        keys = self._hub.catalogue.group_columns(name) if topic.is_query else None
        if topic.is_query and keys is None:
            raise Unavailable(f"the analysis has not said yet by what {name} is grouped")
        store = self._stores[name] = _Store(
            name,
            who,
            Latest(keys),
            self._hub,
            self._clock,
            self.bodies,
            self._room_of,
            records_max=self._records_max,
        )
        self._tasks.create_task(self._follow(store), name=f"latest-{name}")
        return store

    def _room_of(self, store: _Store) -> int:
        """Bytes of rows that a store may have beside the others."""
        others = sum(one.latest.bytes for one in self._stores.values() if one is not store)
        least, most = self._bytes_max // STORES_MAX, self._bytes_max // 4
        return max(least, min(most, self._bytes_max - others))

    async def _follow(self, store: _Store) -> None:
        """Follow a store until its stream is recreated or Kafka is away.

        The next request makes another one.
        """
        try:
            await store.run()
        except (Unavailable, LookupError, ViewEnded) as error:
            log.info("latest of %s: %s", store.name, error, extra={"event": "latest.ended"})
        except RequestError as error:
            store.refused = error
        except Exception as error:  # of this stream only: all others go on
            log.error(
                "latest of %s: %r",
                store.name,
                error,
                exc_info=error,
                extra={"event": "latest.failed"},
            )
        finally:
            del self._stores[store.name]
            store.end()


def _scope(reader: Principal, name: str, asked: Choice) -> Scope | None:
    """What a reader sees of a stream: by its right to it, or to the publication that has it."""
    if asked.published is None:
        return reader.scope(Action.READ, name)
    return reader.scope_of_publication(Action.READ, asked.published.text.name)


class _Store:
    """The store of one stream or query."""

    def __init__(
        self,
        name: str,
        who: str,
        latest: Latest,
        hub: Hub,
        clock: Clock,
        bodies: Bodies,
        room_of: Callable[[_Store], int],
        *,
        records_max: int = LATEST_RECORDS,
    ) -> None:
        """`room_of`: bytes of rows that a store may have; `records_max`: see `LatestStores`."""
        self._records_max = records_max
        self.name = name
        self.latest, self._bodies, self._room_of = latest, bodies, room_of
        self.holder = who
        """Who asked first: it counts for that one."""
        self.asked_s = clock.monotonic_s()
        self.ready = asyncio.Event()
        self.refused: RequestError | None = None
        """Why no request for it can be served, e.g. a stream of too many partitions."""
        self.has_older = asyncio.Event()
        """Are the older records read, too?"""
        self._hub, self._clock = hub, clock
        self._subscriber: Subscriber[Sequence[Step]] | None = None
        self._plan: Plan | None = None
        self._taken: Positions = ()
        """What `_latest` has: the cursor of the answer."""
        self._missing: set[Missing] = {Missing.READING}
        self._known_since: Positions = ()
        """The positions from which on each change is in the rows."""
        self._news = asyncio.Event()
        """Set, and replaced, where rows may have changed, and at the end."""

    async def run(self) -> None:
        """Follow until nobody asked for IDLE_S. Raises Unavailable, LookupError and ViewEnded."""
        plan = self._plan = await self._hub.open(Subscription(streams=(self.name,)), ANYBODY)
        try:
            news = asyncio.Event()
            bounds = (await self._hub.bounds(plan))[0]
            begin = self._taken = self._known_since = await self._begin(plan, bounds)
            self.latest.changes.begin(begin[0])
            self._subscriber = self._hub.subscribe(plan, _Steps(), begin, news.set)
            older = asyncio.create_task(
                self._take_older(plan, bounds, begin), name=f"older-{self.name}"
            )
            older.add_done_callback(lambda _: news.set())
            try:
                await self._take_all(self._subscriber, news, older)
            finally:
                older.cancel()
                await asyncio.wait({older})
                self._subscriber.close()
        finally:
            self._hub.close(plan)

    async def answer(self, scope: Scope | None, asked: Choice, client: str) -> Taken:
        """The requested rows as seen through a scope.

        Raises Unavailable where the store has ended or there is no room, and RequestError.
        """
        if self._plan is None or not self._taken:
            raise self._unreadable()
        rows_asked.check_scope(asked, self.latest.keys, scope)
        head = self._head() | {"left_out": self.latest.left_out}
        cursor = self._hub.codec.encode(self._plan.cursor(self._taken))
        return await self._rows("latest", scope, asked, head, cursor, client=client)

    def _unreadable(self) -> RequestError | Unavailable:
        if self.refused is not None:
            return self.refused.with_traceback(None)
        return Unavailable(f"{self.name} cannot be read at the moment")

    def _head(self) -> dict[str, object]:
        missing = sorted(self._missing | ({Missing.BYTES} if self.latest.left_out else set()))
        return {"name": self.name, "complete": not missing, "missing": missing}

    async def _rows(
        self,
        form: str,
        scope: Scope | None,
        asked: Choice,
        head: Mapping[str, object],
        cursor: str,
        *more: Hashable,
        client: str,
    ) -> Taken:
        """An answer of rows as they are now; who asks for the same meanwhile is given the same.

        `more`: what else tells it from others.
        """
        what = (self, form, scope, asked, self.stamps(asked), *more)
        state = (self.latest.state, cursor, orjson.dumps(head))

        def make() -> AsyncIterator[bytes]:
            # Later changes are excluded: the rows are exactly those at the cursor.
            found = self._chosen(scope, asked)
            picker = self._picker(scope, asked, with_keys=form == "sync")
            whole = dict(head) | {"cursor": cursor}
            return _told(whole, picker, found, has_next=form == "sync" or asked.limit is not None)

        return await self._bodies.body(what, state, make, client=client)

    def _chosen(self, scope: Scope | None, asked: Choice) -> Iterator[Sequence[Entry]]:
        """The rows that may be chosen, in the order of the answer."""
        if not asked.is_by_key:
            return self.latest.pieces(scope, asked.keys)
        return self.latest.in_order(scope, asked.keys, after=asked.after)

    def _picker(self, scope: Scope | None, asked: Choice, *, with_keys: bool = True) -> Picker:
        is_result = self.latest.keys is not None
        per = self.latest.keys or DEVICE_ALONE
        return Picker(asked, scope, is_result=is_result, with_keys=with_keys, per=per)

    async def synchronised(
        self, scope: Scope | None, asked: Choice, cursor: str | None, client: str
    ) -> Synchronised:
        """The changes after a cursor, or all rows where that is less, or the changes are unknown.

        Raises Unavailable, RequestError and CursorError.
        """
        if self._plan is None or not self._taken:
            raise self._unreadable()
        stamps = self.stamps(asked)
        rows_asked.check_keys(asked, self.latest.keys, scope)
        is_chosen = bool(stamps) or asked.published is not None
        chosen = rows_asked.chosen_by(asked, stamps) if is_chosen else self._plan.filters
        sets = chosen if is_chosen else None
        place = None if cursor is None else self._place(self._plan, cursor, sets)
        changed = None if place is None else self._changed_since(place, asked.keys, scope)
        here = self._here(place)
        behind = self._cursor(here, chosen)
        if changed is not None:
            changes = await self._changes(changed, scope, asked)
            if not changes or await self._are_less(changes, scope, asked):
                head = self._head() | {"kind": "changes", "cursor": behind, "next": None}
                body = b'%b,"changes":[%b],"rows":[]}' % (
                    orjson.dumps(head)[:-1],
                    b",".join(changes),
                )
                told = self._bodies.take(self._bodies.whole(body), client=client)
                return Synchronised(told, here, behind, stamps, is_empty=not changes)
        head = self._head() | {"kind": "snapshot", "changes": []}
        more = () if place is None else (cursor,)
        here = self._here(place)
        behind = self._cursor(here, chosen)
        rows = await self._rows("sync", scope, asked, head, behind, *more, client=client)
        return Synchronised(rows, here, behind, stamps, is_empty=False)

    def _here(self, place: Row | None) -> Row:
        """The positions behind what is told now to who stands at `place`.

        What was told elsewhere, by a server that is ahead of this one, is not told again. Raises
        Unavailable where the store has ended.
        """
        if not self._taken:
            raise self._unreadable()
        taken = self._taken[0]
        return taken if place is None else tuple(map(max, place, taken))

    def _cursor(self, here: Row, chosen: bytes) -> str:
        assert self._plan is not None
        found = self._plan.cursor((tuple(here),))
        return self._hub.codec.encode(replace(found, filters=chosen))

    async def _changes(
        self, changed: Iterable[Sequence[Tell]], scope: Scope | None, asked: Choice
    ) -> list[bytes]:
        picker = self._picker(scope, asked)
        changes: list[bytes] = []
        for number, piece in enumerate(changed):
            if number:
                await asyncio.sleep(0)
            found = (tell(picker.shown) for tell in piece)
            changes += [change for change in found if change is not None]
        return changes

    async def _are_less(self, changes: Sequence[bytes], scope: Scope | None, asked: Choice) -> bool:
        """Are they fewer, or fewer bytes, than the rows? No more rows than needed are looked at."""
        is_every_row = scope is None and asked.is_all and self.latest.keys is None
        if is_every_row and len(changes) <= len(self.latest):
            return True
        picker, size = self._picker(scope, asked), 0
        for piece in self.latest.pieces(scope, asked.keys):
            for entry in piece:
                size += len(picker.take(entry) or b"")
            if picker.count >= len(changes):
                return True
            await asyncio.sleep(0)
        return picker.count >= len(changes) or sum(map(len, changes)) <= size

    def stamps(self, asked: Choice) -> Stamps:
        """The versions of the named sets that choose rows."""
        named = self._hub.catalogue.named
        return () if named is None else named.stamps(asked.sets)

    def _place(self, plan: Plan, cursor: str, chosen: bytes | None) -> tuple[Position, ...] | None:
        """The positions of a cursor. Raises CursorError.

        None where it belongs to another stream than this one is now, or to rows that were not
        `chosen` by these versions of named sets and a publication (None: by none).
        """
        try:
            found = self._hub.codec.decode(cursor)
        except CursorError as error:
            if error.reason != "unverifiable":
                raise
            return None
        if chosen is not None and found.filters != chosen:
            return None  # who came into a set, or left it, is told by no change of a row
        (here,) = plan.cursor(self._taken).streams
        for entry in found.streams:
            is_same = (entry.stream, entry.generation) == (here.stream, here.generation)
            if is_same and len(entry.partitions) == len(here.partitions):
                return entry.partitions
        return None

    def _changed_since(
        self, place: Row, keys: frozenset[str] | None, scope: Scope | None
    ) -> Iterator[Sequence[Tell]] | None:
        """A formatter for each change after a position; None where they are not all known.

        In pieces, as of `Latest.pieces`.
        """
        kept = self.latest.changes.after(place)
        if kept is not None:
            only = self.latest.asked_for(scope, keys)
            return (
                [
                    partial(told, change)
                    for change in piece
                    if (only is None or change.key in only) and self.latest.sees(scope, change.key)
                ]
                for piece in in_turns(kept)
            )
        if any(at < since for at, since in zip(place, self._known_since[0], strict=True)):
            return None
        return (
            [partial(told_of_row, one.key, one.data, is_new=one.is_new) for one in piece]
            for piece in self.latest.changed_since(place, scope, keys)
        )

    async def until_changed(
        self, empty: Synchronised, scope: Scope | None, asked: Choice, seconds: float
    ) -> str:
        """Until there is something to tell behind an empty answer, or so long.

        The cursor from where to ask then: what was looked at here and told nothing is not looked at
        again.
        """
        place, cursor = empty.place, empty.cursor
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._taken:
                    if not any(at > mine for at, mine in zip(self._taken[0], place, strict=True)):
                        await self._news.wait()
                        continue
                    changed = self._changed_since(place, asked.keys, scope)
                    here = self._here(place)
                    if changed is None or await self._changes(changed, scope, asked):
                        break
                    place = here
        if not self._taken or place == empty.place:
            return cursor
        return self._cursor(place, self._hub.codec.decode(cursor).filters)

    def _tell_changed(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def end(self) -> None:
        """Whoever waits for it waits no longer."""
        self._taken = ()
        self.ready.set()
        self.has_older.set()
        self._news.set()

    async def _begin(self, plan: Plan, bounds: Sequence[Bounds]) -> Positions:
        since = self._clock.now_ms() - int(NEAR_S * 1000)
        start = await self._hub.start(
            plan, Request(plan.subscription, start=since if since > 0 else LogEnd.EARLIEST)
        )
        live = self._hub.live(plan)[0]
        near = min(RECORDS_MAX, self._records_max)
        return (
            tuple(
                max(at, (max(kept.earliest, end[0] - near), 0))
                for at, kept, end in zip(start.positions[0], bounds, live, strict=True)
            ),
        )

    async def _take_older(self, plan: Plan, bounds: Sequence[Bounds], to: Positions) -> None:
        """Read what lies before `to`, as far back as is read at all.

        Raises Unavailable and ViewEnded; the store ends for whatever it raises, and is made again.
        """
        live = self._hub.live(plan)[0]
        firsts = [
            max(kept.earliest, min(at[0], end[0] - self._records_max))
            for kept, at, end in zip(bounds, to[0], live, strict=True)
        ]
        if any(kept.earliest > 0 for kept in bounds):
            self._missing.add(Missing.RETENTION)
        if any(first > kept.earliest for first, kept in zip(firsts, bounds, strict=True)):
            self._missing.add(Missing.RECORDS)
        news = asyncio.Event()
        subscriber = self._hub.subscribe(
            plan, _Steps(), (tuple((first, 0) for first in firsts),), news.set
        )
        try:
            while any(
                position < end for position, end in zip(subscriber.positions[0], to[0], strict=True)
            ):
                news.clear()
                item = subscriber.next()
                if isinstance(item, Chunk):
                    await self._take_older_steps(item.content or ())
                elif item is not None:
                    await self._hub.gap(subscriber, item, OnGap.EARLIEST)
                    firsts = [position[0] for position in to[0]]  # not all changes are known
                elif subscriber.is_at_end:
                    break
                else:
                    await news.wait()
        finally:
            subscriber.close()
        self.latest.end_of_older()
        self._missing.discard(Missing.READING)
        if self._known_since == to:
            self._known_since = (tuple((first, 0) for first in firsts),)
        self.has_older.set()

    async def _take_all(
        self,
        subscriber: Subscriber[Sequence[Step]],
        news: asyncio.Event,
        older: asyncio.Task[None],
    ) -> None:
        while self._clock.monotonic_s() - self.asked_s < IDLE_S:
            news.clear()
            if older.done():
                older.result()
            item = subscriber.next()
            if isinstance(item, Chunk):
                await self._take(item.content or (), subscriber.positions)
                self._tell_changed()
                continue
            if item is not None:
                await self._hub.gap(subscriber, item, OnGap.EARLIEST)
                # What changed in the range that is lost is not known.
                self._known_since = subscriber.positions
                self.latest.changes.begin(subscriber.positions[0])
            self._taken = subscriber.positions
            if (
                subscriber.is_at_end
                and self._plan is not None
                and self._hub.has_caught_up(self._plan)
            ):
                self.ready.set()
            with contextlib.suppress(TimeoutError):
                # A transaction ends with a marker and not with a record, so nobody is woken for
                # it.
                async with asyncio.timeout(IDLE_S / 10 if self.ready.is_set() else FIRST_LOOK_S):
                    await news.wait()

    async def _take(self, steps: Sequence[Step], to: Positions) -> None:
        """Take a chunk in pieces; after each the cursor is that of its last event."""
        row = list(self._taken[0])
        for first in range(0, len(steps), EVENTS_A_TURN):
            self.latest.bytes_max = self._room_of(self)
            piece = steps[first : first + EVENTS_A_TURN]
            for step in piece:
                self.latest.take(step.event, (step.partition, step.position))
                row[step.partition] = step.position
            if first + EVENTS_A_TURN < len(steps):
                self._taken = (tuple(row),)
                await asyncio.sleep(0)
        self._taken = to

    async def _take_older_steps(self, steps: Sequence[Step]) -> None:
        for number, step in enumerate(steps, 1):
            self.latest.take(step.event, (step.partition, step.position), is_older=True)
            if number % EVENTS_A_TURN == 0:
                self.latest.bytes_max = self._room_of(self)
                await asyncio.sleep(0)


async def _told(
    head: Mapping[str, object],
    picker: Picker,
    pieces: Iterable[Sequence[Entry]],
    *,
    has_next: bool,
) -> AsyncIterator[bytes]:
    """An answer of rows; between pieces others have their turn."""
    yield orjson.dumps(head)[:-1] + b',"rows":['
    comma = b""
    for piece in pieces:
        rows = picker.take_all(piece)
        if rows:
            yield comma + b",".join(rows)
            comma = b","
        if picker.is_full:
            break
        await asyncio.sleep(0)
    yield b'],"next":%b}' % orjson.dumps(picker.next) if has_next else b"]}"
