"""What a lease may count and show: the right of who asked for it, kept in the lease. Pure.

A lease lives longer than a request, so its right is looked at again before each wake-up: a key that
was removed, a subject whose tokens were taken back and a token that expired (and `lease_s` after
it) wake nobody any more. Nor does one that was narrowed: a key's line, or a role, by which less is
seen than the lease shows. One that was widened changes nothing: the lease shows what it did.

The devices of a right become a condition beside the client's own `where`, so that the index finds
the lease. Fields that are not seen are cut out of previews; a filter that names one is refused,
whether there is such a field or not.

A right to a publication is one to it alone: what it shows of which streams is looked up when it is
read; a lease, which is counted by one condition, keeps the version that it was asked for with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from edgewake.cloud.log.filters.filter import compile_select
from edgewake.cloud.log.filters.filter_syntax import (
    Call,
    Field,
    Node,
    parse_select,
    parse_where,
    sets_of,
)
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import NONE, Action, Grant, Principal, Proof
from edgewake.cloud.rights.rights import End, Rights
from edgewake.cloud.rights.scope import Part, Scope
from edgewake.protocol.errors import FilterError
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.leases.lease_record import Lease
from edgewake.protocol.ops.proof import Kind
from edgewake.protocol.ops.publication import Publication

_ESCAPE: Final = "!"
_ALL: Final = Scope((Part(None, None),))


def right_of(
    principal: Principal,
    streams: Sequence[str],
    action: Action = Action.WAKE,
    *,
    where: str | None = None,
    publication: str | None = None,
    of: Publication | None = None,
) -> str:
    """What is stored; empty for who proves nothing, sees everything and uses no named set.

    `where`: the filter, whose sets it must go on to be allowed to use; `publication`: the one
    through which the streams are read; `of`: that one, where it counts as it is now.
    """
    names, published = _names(streams, publication)
    scopes = {name: _told(_sees(principal, action, name, published)) for name in names}
    sets, proof = sorted(sets_of(where)), principal.proof
    if proof.kind is Kind.ANONYMOUS and _is_all(scopes) and not sets and not published:
        return ""
    expires_at = principal.expires_at
    until = None if expires_at is None else expires_at + round(principal.limits.lease_s * 1000)
    told = orjson.dumps(
        {
            "kind": proof.kind,
            "digest": proof.digest.hex(),
            "issuer": proof.issuer,
            "key": proof.key,
            "subject": proof.subject,
            "token_id": proof.token_id,
            "expires_at": expires_at,
            "until": until,
            "scopes": scopes,
            "publication": publication,
            "version": None if of is None else of.version,
            "fields": None if of is None or of.fields is None else list(of.fields),
            "sets": sets,
            "claims": principal.claims,
        }
    ).decode()
    return sys.intern(told)


def end_of(
    lease: Lease,
    rights: Rights,
    *,
    now: int,
    has_changed: Callable[[str, int], bool] = lambda *_: False,
) -> End | None:
    """Why a lease's right holds no longer; None while it does.

    `has_changed`: is a publication another one than in this version?
    """
    why = end_of_right(lease.right, lease.streams, rights, now=now)
    name = _publication(lease.right)
    if why is None and name is not None:
        version: int = orjson.loads(lease.right)["version"]
        return End.REVOKED if has_changed(name, version) else None
    return why


def end_of_right(
    text: str, streams: Sequence[str], rights: Rights, *, now: int, action: Action = Action.WAKE
) -> End | None:
    """Why what `right_of` gave holds no longer; None while it does."""
    if not text:
        anybody = rights.anonymous
        return None if _still_shows(anybody, text, streams, action) else End.REVOKED
    right = orjson.loads(text)
    proof = Proof(
        Kind(right["kind"]),
        bytes.fromhex(right["digest"]),
        right["issuer"],
        right["key"],
        right["subject"],
        right["token_id"],
    )
    if right["until"] is not None and right["until"] <= now:
        return End.EXPIRED
    held = _holder(right, proof, rights, now=now)
    return None if _still_shows(held, text, streams, action) else End.REVOKED


def _still_shows(held: Principal | None, text: str, streams: Sequence[str], action: Action) -> bool:
    """Does its holder see all that it shows, and may be called for it?"""
    if held is None:
        return False
    names, published = _names(streams, _publication(text))
    may_wake = all(_may(held, Action.WAKE, name, published) for name in names)
    return may_wake and covers(held, text, streams, action)


def _holder(
    right: Mapping[str, Any], proof: Proof, rights: Rights, *, now: int
) -> Principal | None:
    """Who has a right, with what it may do now; None where it is taken back."""
    if proof.kind not in (Kind.TOKEN, Kind.LOGIN):
        return rights.holder(proof)
    if not rights.believes(proof, is_expired=right["expires_at"] <= now):
        return None
    claims = right["claims"]
    if claims is None:  # nobody knows what such a one may do now
        return None
    return Principal("kept", rights.grants_of(proof, claims), proof)


def over_at(lease: Lease) -> int | None:
    """When a lease's right is over at the latest, ms since 1970 UTC; None: at no time known now."""
    until: int | None = orjson.loads(lease.right)["until"] if lease.right else None
    return until


def condition_of(principal: Principal, streams: Sequence[str]) -> str | None:
    """The condition on devices, as a `where`; None where all of them are seen.

    Raises FilterError where the right names more than `filter_taken.LISTED_MAX`.
    """
    return _parsed(_condition_of(principal, streams))


def condition_of_publication(principal: Principal, publication: Publication) -> str | None:
    """The condition of a publication, and on the devices of the right to it. Raises FilterError."""
    scope = principal.scope_of_publication(Action.WAKE, publication.name)
    on_devices = _parsed(None if scope is None else _condition(scope))
    own = publication.where
    if own is None or on_devices is None:
        return own or on_devices
    return sys.intern(f"({own}) AND {on_devices}")


def _parsed(text: str | None) -> str | None:
    """A condition on devices, where it can be read. Raises FilterError."""
    if text is None:
        return None
    try:
        parse_where(text)
    except FilterError as error:
        raise FilterError(
            f"your right names more devices than a lease can be counted by ({error}); expected "
            "one that names fewer, or has a pattern such as car-*"
        ) from None
    return sys.intern(text)  # many leases of one client have the same


def _condition_of(principal: Principal, streams: Sequence[str]) -> str | None:
    scopes = {
        name: principal.scope(Action.WAKE, name)
        for name in streams
        if principal.may(Action.WAKE, name)
    }
    found = {name: _condition(scope) for name, scope in scopes.items() if scope is not None}
    texts = set(found.values())
    if texts <= {None}:
        return None
    if len(texts) == 1 and len(found) == len(streams):
        return texts.pop()
    parts = []
    for name in streams:
        text = found.get(name)
        parts.append(is_of(name) if text is None else f"({is_of(name)} AND {text})")
    return " OR ".join(parts)


def is_of(name: str) -> str:
    """The condition that an event is of a stream, or of a query."""
    return f"(stream = '{name}' OR query = '{name}')"


def counted(where: str | None, condition: str | None) -> str | None:
    """What is counted: what the client wants of what it may see."""
    if condition is None or where is None:
        return condition or where
    return sys.intern(f"({condition}) AND ({where})")


def check_fields(principal: Principal, subscription: Subscription, per: Sequence[str] = ()) -> None:
    """Raises FilterError where its filters, or `per`, name a field not seen of all streams."""
    scopes = [principal.scope(Action.WAKE, name) for name in subscription.streams]
    _check_fields(subscription, per, scopes)


def check_shown_fields(
    principal: Principal,
    subscription: Subscription,
    publication: Publication,
    per: Sequence[str] = (),
) -> None:
    """Raises FilterError for a field of its filters, or `per`, that the publication hides."""
    fields = publication.fields
    shown = Scope((Part(None, None if fields is None else Names.of(fields)),))
    right = principal.scope_of_publication(Action.WAKE, publication.name)
    _check_fields(subscription, per, [shown, right])


def _check_fields(
    subscription: Subscription, per: Sequence[str], found: Sequence[Scope | None]
) -> None:
    scopes = [scope for scope in found if scope is not None]
    nodes: list[Node | None] = []
    if subscription.where is not None:
        # The client's own text is short; what its right names stands beside it.
        nodes.append(parse_where(subscription.where, has_lists=False))
    if subscription.select is not None:
        nodes += [column.node for column in parse_select(subscription.select)]
    named = {name for node in nodes if node is not None for name in _fields(node)}
    for name in named.union(per):
        if not all(scope.shows_field_of_all(name) for scope in scopes):
            raise FilterError(f"field {name!r}: unknown field; expected one that you may read")


def previews(lease: Lease, events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Events as the lease shows them."""
    shown = list(events)
    if lease.right:
        scopes = _shown_of_streams(lease)
        cuts = [_cut(event, scopes) for event in events]
        shown = [cut for cut in cuts if cut is not None]
        fields = orjson.loads(lease.right).get("fields")
        if fields is not None:
            published = Scope((Part(None, Names.of(fields)),))
            cuts = [_cut(event, dict.fromkeys(lease.streams, published)) for event in shown]
            shown = [cut for cut in cuts if cut is not None]
    if lease.select is None:
        return shown
    project = compile_select(lease.select).project
    return [project(fields) for fields in shown]


def _shown_of_streams(lease: Lease) -> Mapping[str, Scope | None]:
    """What is shown of each stream, by a right to it or to its publication."""
    shown, publication = _shown(lease.right, lease.streams), _publication(lease.right)
    return shown if publication is None else dict.fromkeys(lease.streams, shown[publication])


def _cut(event: Mapping[str, Any], scopes: Mapping[str, Scope | None]) -> Mapping[str, Any] | None:
    is_result = "stream" not in event
    scope = scopes.get(str(event.get("query" if is_result else "stream")), Scope(()))
    return event if scope is None else scope.cut(event, is_result=is_result)


def reader_of(text: str, streams: Sequence[str], action: Action) -> Principal:
    """A reader who sees what a right shows, and no more."""
    sets, grants, published = Names.of(_sets(text)), [], _publication(text) is not None
    for name, scope in _shown(text, streams).items():
        of = Names.of([name])
        of_streams, of_publications = (NONE, of) if published else (of, NONE)
        grants += [
            Grant(frozenset({action}), of_streams, part.devices, part.fields, of_publications, sets)
            for part in ((Part(None, None),) if scope is None else scope.parts)
        ]
    return Principal("kept", tuple(grants), Proof(Kind.ANONYMOUS))


def covers(principal: Principal, text: str, streams: Sequence[str], action: Action) -> bool:
    """May this principal see all that a right shows, by sets that it may use?"""
    shown, (names, published) = _shown(text, streams), _names(streams, _publication(text))
    return all(map(principal.may_use, _sets(text))) and all(
        _may(principal, action, name, published)
        and _shows(_sees(principal, action, name, published), shown[name])
        for name in names
    )


def sees_more(principal: Principal, text: str, streams: Sequence[str], action: Action) -> bool:
    """Does this principal see what a right does not show?"""
    shown, (names, published) = _shown(text, streams), _names(streams, _publication(text))
    return not all(_shows(shown[name], _sees(principal, action, name, published)) for name in names)


def _publication(text: str) -> str | None:
    """The publication that a right is to, if it is to one."""
    found: str | None = orjson.loads(text).get("publication") if text else None
    return found


def _names(streams: Sequence[str], publication: str | None) -> tuple[Sequence[str], bool]:
    """What a right is to, by name: streams, or a publication."""
    return (streams, False) if publication is None else ([publication], True)


def _may(principal: Principal, action: Action, name: str, published: bool) -> bool:
    return principal.may_open(action, name) if published else principal.may(action, name)


def _sees(principal: Principal, action: Action, name: str, published: bool) -> Scope | None:
    if published:
        return principal.scope_of_publication(action, name)
    return principal.scope(action, name)


def _shown(text: str, streams: Sequence[str]) -> Mapping[str, Scope | None]:
    """What a right shows of each stream, or of its publication; None: all of it."""
    if not text:
        return dict.fromkeys(streams)
    return {name: _scope(told) for name, told in orjson.loads(text)["scopes"].items()}


def _shows(scope: Scope | None, other: Scope | None) -> bool:
    """Does one scope show all that the other one shows? None: everything."""
    return scope is None or scope.covers(_ALL if other is None else other)


def _sets(text: str) -> list[str]:
    """The named sets of a right."""
    return list(orjson.loads(text)["sets"]) if text else []


def _told(scope: Scope | None) -> list[Any] | None:
    """A scope as JSON; None: all of it."""
    if scope is None:
        return None
    return [[_listed(part.devices), _listed(part.fields)] for part in scope.parts]


def _is_all(scopes: Mapping[str, Any]) -> bool:
    """Is all of each stream seen? An empty list is nothing of it."""
    return all(scope is None for scope in scopes.values())


def _scope(told: Any) -> Scope | None:
    if told is None:
        return None
    return Scope(tuple(Part(_named(devices), _named(fields)) for devices, fields in told))


def _listed(names: Names | None) -> list[str] | None:
    return None if names is None else [*sorted(names.exact), *names.patterns]


def _named(names: list[str] | None) -> Names | None:
    return None if names is None else Names.of(names)


def _condition(scope: Scope) -> str | None:
    texts = [_of_devices(part.devices) for part in scope.parts if part.devices is not None]
    if len(texts) < len(scope.parts):
        return None
    return "(" + " OR ".join(dict.fromkeys(texts)) + ")"


def of_devices(devices: Iterable[str]) -> str:
    """The condition that an event is of one of these; there is at least one."""
    names = [_quoted(name) for name in sorted(devices)]
    return f"device = {names[0]}" if len(names) == 1 else f"device IN ({', '.join(names)})"


def _of_devices(devices: Names) -> str:
    texts = []
    if devices.exact:
        texts.append(of_devices(devices.exact))
    for pattern in devices.patterns:
        for special in (_ESCAPE, "%", "_"):
            pattern = pattern.replace(special, _ESCAPE + special)
        like = _quoted(pattern.replace("*", "%"))
        texts.append(f"device LIKE {like} ESCAPE '{_ESCAPE}'")
    return " OR ".join(texts) or "device IS NULL AND device IS NOT NULL"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _fields(node: Node) -> Iterator[str]:
    match node:
        case Field(name):
            yield name
        case Call(_, args):
            for arg in args:
                yield from _fields(arg)
