"""What a request becomes once its streams are known, and where it begins: decisions only, no I/O.

Request   what the client said (`edgewake.cloud.log.request`)
Source    one stream or query as Kafka has it now
Plan      a request's streams with their sources and compiled filters
Start     the positions to begin at, and the gaps to announce first (decided in
          `edgewake.cloud.log.resume`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from edgewake.cloud.log.decode import DATA, GAP, Event, project, selected
from edgewake.cloud.log.filters.filter import Select, Where, compile_select, compile_where
from edgewake.cloud.log.filters.filter_check import FilterWarning, Kinds, warnings_of
from edgewake.cloud.log.filters.filter_cost import events_per_look
from edgewake.cloud.log.filters.filter_keys import KNOWN_OF_A_GAP, Key, keys_of
from edgewake.cloud.log.filters.filter_partial import rules_out
from edgewake.cloud.log.filters.filter_syntax import Sets
from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.wanted import (
    is_in_share,
    wanted,
)
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import ANYBODY, Action, Principal
from edgewake.cloud.rights.scope import Part, Scope, Scopes
from edgewake.cloud.rights.scope import normal as normal_scopes
from edgewake.protocol.cursor import (
    PARTITIONS_MAX,
    Cursor,
    Position,
    StreamPosition,
    filters_hash,
    generation_hash,
    stream_hash,
)
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.ops.publication import Publication

Positions: TypeAlias = tuple[tuple[Position, ...], ...]
"""Per stream in sorted order, per partition."""


class SubscriptionTooLarge(RequestError):
    """A subscription whose cursor would not fit into a request's header."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stream (`ew.s.*`) or a query (`ew.q.*`) as Kafka has it."""

    name: str
    topic: str
    is_query: bool
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Sight:
    """A subscription as seen through its reader's rights.

    Readers with equal rights share what is made of it.
    """

    subscription: Subscription
    scopes: Scopes = ()

    @property
    def is_common(self) -> bool:
        """Is it what everybody uses: one stream without a filter, and all of it?"""
        return (
            len(self.subscription.streams) == 1
            and self.subscription.where is None
            and self.subscription.select is None
            and wanted(self.subscription).is_plain
            and not self.scopes
        )


@dataclass(frozen=True, slots=True)
class Published:
    """A publication as its readers see its streams."""

    text: Publication
    where: Where | None
    shown: Scope
    """All devices, and the fields that it shows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A subscription ready to be read. `sources` are in the sorted order that cursors use."""

    subscription: Subscription
    sources: tuple[Source, ...]
    where: Where | None
    select: Select | None
    filters: bytes
    """filters_hash of the subscription."""
    scopes: Scopes = ()
    """What of each source its reader may see: cut before a filter sees it, so that no filter can
    tell anything of what is hidden."""
    devices: frozenset[str] | None = None
    """These alone; None: all."""
    published: Published | None = None
    """The publication through which the sources are read."""
    sample: float | None = None
    """A share of all things; None: all."""
    per: tuple[tuple[str, ...], ...] = ()
    """For each source the fields that identify a thing."""
    named: Sets | None = None
    """Where named sets are found."""

    @property
    def sight(self) -> Sight:
        """What is seen through it."""
        return Sight(self.subscription, self.scopes)

    def show(self, event: Event, stream: int = 0) -> Event | None:
        """The event of the n-th source as this subscription sees it; None: filtered out or hidden.

        Watermarks are always shown, and gaps unless it is ruled out that they concern what is seen:
        those of other devices.
        """
        published = self.published
        if published is not None and not _may_pass(published.where, event):
            return None
        seen: Event | None = event
        if self.scopes:
            seen = self._seen(event, stream, self.scopes[stream])
        if seen is not None and published is not None:
            seen = self._seen(seen, stream, published.shown)
        return None if seen is None else self._filtered(seen, stream)

    def _seen(self, event: Event, stream: int, scope: Scope | None) -> Event | None:
        if scope is None:
            return event
        if event.kind == DATA:
            fields = scope.cut(event.fields, is_result=self.sources[stream].is_query)
            if fields is None:
                return None
            return event if fields is event.fields else project(event, fields)
        device = event.fields.get("device")
        return event if device is None or scope.sees(device) else None

    def _filtered(self, event: Event, stream: int) -> Event | None:
        if not self._is_asked_for(event) or not _may_pass(self.where, event):
            return None
        if self.sample is not None and not self._is_in_sample(event, stream):
            return None
        if event.kind == DATA and self.select is not None:
            return selected(event, self.select.project(event.fields))
        return event

    def _is_asked_for(self, event: Event) -> bool:
        """Is it of the devices that are asked for? A gap that names none may be theirs."""
        if self.devices is None:
            return True
        device = event.fields.get("device")
        if event.kind == DATA:
            return device in self.devices if isinstance(device, str) else False
        return event.kind != GAP or not isinstance(device, str) or device in self.devices

    def _is_in_sample(self, event: Event, stream: int) -> bool:
        assert self.sample is not None
        per = self.per[stream]
        if event.kind == DATA or (event.kind == GAP and per == DEVICE_ALONE and _names(event)):
            return is_in_share(event.fields, per, self.sample)
        return True

    def tells_things(self, stream: int) -> bool:
        """Does its reader see of all events the fields that tell the n-th source's things apart?"""
        published = None if self.published is None else self.published.shown
        scopes = (self.scopes[stream] if self.scopes else None, published)
        return all(
            scope.shows_field_of_all(name)
            for scope in scopes
            if scope is not None
            for name in self.per[stream]
        )

    @property
    def sets(self) -> frozenset[str]:
        """The named sets that its filters use."""
        published = None if self.published is None else self.published.where
        return frozenset[str]().union(
            *(part.sets for part in (self.where, published) if part is not None)
        )

    def members(self) -> tuple[frozenset[str] | None, ...]:
        """What these sets hold now."""
        if self.named is None:
            return ()
        return tuple(self.named.members(name) for name in sorted(self.sets))

    @property
    def keys(self) -> tuple[Key, ...] | None:
        """What an event of each source must hold now to be shown; None where one has no key."""
        where = None if self.where is None else self.where.tree
        published = self.published
        also = None if published is None or published.where is None else published.where.tree
        found = [
            keys_of(where, self.scopes[i] if self.scopes else None, self.devices, also)
            for i in range(len(self.sources))
        ]
        known = tuple(keys for keys in found if keys is not None)
        return known if len(known) == len(found) else None

    def warnings(self, fields_of: Callable[[str], Kinds | None]) -> list[FilterWarning]:
        """Warnings about the filters; empty where the fields of one of the streams are unknown."""
        trees = [
            *([self.where.tree] if self.where else []),
            *(self.select.trees if self.select else []),
        ]
        streams = [self._kinds(i, fields_of) for i in range(len(self.sources))]
        known = [fields for fields in streams if fields is not None]
        return warnings_of(trees, known) if trees and len(known) == len(streams) else []

    def _kinds(self, stream: int, fields_of: Callable[[str], Kinds | None]) -> Kinds | None:
        """The fields of the n-th source that are seen."""
        kinds = fields_of(self.sources[stream].name)
        if kinds is not None and self.published is not None:
            shown = self.published.shown
            kinds = {name: kind for name, kind in kinds.items() if shown.shows_field(name)}
        scope = self.scopes[stream] if self.scopes else None
        if kinds is None or scope is None:
            return kinds
        return {name: kind for name, kind in kinds.items() if scope.shows_field(name)} or None

    @property
    def events_per_look(self) -> int:
        """Events between two looks at the clock; fewer where this plan's filters cost more."""
        published = None if self.published is None else self.published.where
        parts = (self.where, self.select, published)
        return events_per_look(sum(part.cost for part in parts if part is not None))

    def cursor(self, positions: Positions) -> Cursor:
        """The cursor of these positions."""
        return Cursor(
            tuple(
                StreamPosition(stream_hash(source.name), generation_hash(source.topic_id), row)
                for source, row in zip(self.sources, positions, strict=True)
            ),
            self.filters,
        )


DEVICE_ALONE: Final = ("device",)


def _names(event: Event) -> bool:
    """Does a gap say whose it is?"""
    return isinstance(event.fields.get("device"), str)


def _may_pass(where: Where | None, event: Event) -> bool:
    """Does a reading pass, or may what a gap tells of have passed?"""
    if where is None:
        return True
    if event.kind == DATA:
        return where.passes(event.fields)
    if event.kind == GAP:
        known = {name: event.fields[name] for name in KNOWN_OF_A_GAP if name in event.fields}
        return not rules_out(where.tree, known)
    return True


def scopes_of(
    subscription: Subscription, reader: Principal, action: Action = Action.READ
) -> list[Scope | None]:
    """What `reader` may see of each stream: by its right to the stream, or to the publication."""
    publication = wanted(subscription).publication
    if publication is None:
        return [reader.scope(action, name) for name in subscription.streams]
    return [reader.scope_of_publication(action, publication.name)] * len(subscription.streams)


def who_names(subscription: Subscription, reader: Principal) -> Principal:
    """Who must have a right to its streams' names: through a publication nobody."""
    return reader if wanted(subscription).publication is None else ANYBODY


def sight(subscription: Subscription, reader: Principal) -> Sight:
    """What `reader` sees of a normal subscription."""
    return Sight(subscription, normal_scopes(scopes_of(subscription, reader)))


def check_filters(
    subscription: Subscription, sets: Sets | None = None
) -> tuple[Where | None, Select | None]:
    """The compiled filters; raises FilterError. `sets`: where named sets are found."""
    where, select = subscription.where, subscription.select
    return (
        None if where is None else compile_where(where, sets),
        None if select is None else compile_select(select),
    )


def plan(
    subscription: Subscription,
    sources: Sequence[Source],
    scopes: Sequence[Scope | None] = (),
    *,
    sets: Sets | None = None,
    groups_of: Callable[[str], Sequence[str] | None] = lambda _: None,
) -> Plan:
    """A plan of a normal subscription; raises FilterError, RequestError and SubscriptionTooLarge.

    `scopes`: what may be seen of each source; `groups_of`: the group columns of a query.
    """
    partitions = sum(source.partitions for source in sources)
    if partitions > PARTITIONS_MAX:
        raise SubscriptionTooLarge(
            "partitions",
            f"{len(sources)} streams with {partitions} partitions: expected at most "
            f"{PARTITIONS_MAX} partitions together",
        )
    asked = wanted(subscription)
    found = Plan(
        subscription,
        tuple(sources),
        *check_filters(subscription, sets),
        filters_hash(subscription.where, subscription.select, asked.told()),
        normal_scopes(scopes),
        asked.devices,
        None if asked.publication is None else published(asked.publication, sets),
        asked.sample,
        tuple(_thing(source, asked.per, groups_of) for source in sources),
        sets,
    )
    if asked.sample is not None and not all(map(found.tells_things, range(len(sources)))):
        raise RequestError(
            "sample",
            "sample: you may not read all fields that tell things apart, so it would be all of "
            "them or none; expected fields that you may read as per",
        )
    return found


def published(text: Publication, sets: Sets | None) -> Published:
    """A publication with its filter compiled; raises FilterError."""
    where = None if text.where is None else compile_where(text.where, sets)
    fields = None if text.fields is None else Names.of(text.fields)
    return Published(text, where, Scope((Part(None, fields),)))


def _thing(
    source: Source, per: tuple[str, ...], groups_of: Callable[[str], Sequence[str] | None]
) -> tuple[str, ...]:
    """The fields that tell what a thing is."""
    if per or not source.is_query:
        return per or DEVICE_ALONE
    return tuple(groups_of(source.name) or DEVICE_ALONE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of a partition in Kafka now.

    It is the offset of its first record and the one after its last committed record.
    """

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap event and the cursor that its client goes on with."""

    event: Event
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Start:
    """The positions from which a reader begins.

    `how`: earliest, latest, time, resumed, gap or stopped. `ends` when the client asked to stop at
    a gap.
    """

    positions: Positions
    how: str
    gaps: tuple[Gap, ...] = ()
    ends: bool = False
