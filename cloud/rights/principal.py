"""Who asks, by whatever protocol: a value made in one place. Pure.

A grant says what may be done (actions) with which streams and publications, and there with which
devices and fields; and which named sets filters may use. What several grants say of one stream adds
up. What the operations API guards is shown to nobody here, whatever a grant says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.scope import Part, Scope
from edgewake.protocol.downlink.downlink import ANSWERS, REQUESTS
from edgewake.protocol.ops.proof import Kind

NONE: Final = Names.of([])
OPERATOR_STREAMS: Final = frozenset({ANSWERS, REQUESTS})
"""What devices say to those who operate them: the output of commands, and what devices ask for. The
operations API shows both."""


NAME_CHARS_MAX: Final = 200
"""Characters of a principal's name; a longer one has a digest in the place of the rest."""


class Action(StrEnum):
    """The actions that a grant allows."""

    READ = "read"
    """Streams, pages, the latest values, the list of what there is."""
    WAKE = "wake"
    """A lease of the push proxy, which counts and wakes."""
    ASK = "ask"
    """SQL and summaries at the operations API."""
    COMMAND = "command"
    """Commands to devices there, and what devices ask for."""
    FEED = "feed"
    """Streams at the access servers, as a device that is named with the request: a bridge asks so
    for each device that follows something."""
    VIEW = "view"
    """All that the operations API shows."""
    OPERATE = "operate"
    """All that the operations API can do."""


@dataclass(frozen=True, slots=True)
class Proof:
    """By what a principal is known: what revocation looks at."""

    kind: Kind
    digest: bytes = b""
    """SHA-256 of the key, the token, or one look at a session; empty for anonymous."""
    issuer: str = ""
    key: str = ""
    """Thumbprint of the issuer's key that signed the token."""
    subject: str = ""
    """The token's or person's `sub`."""
    token_id: str = ""
    """The token's `jti`, where it has one; a session's id."""
    device: str = ""
    """The device that the holder of the key or token asks for; empty where it asks for itself."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A right: actions on streams. None stands for all that there are."""

    actions: frozenset[Action]
    streams: Names
    devices: Names | None = None
    fields: Names | None = None
    publications: Names = NONE
    """Publications, which show what they do whatever rights there are to their streams."""
    sets: Names = NONE
    """Named sets; to use one tells who is in it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One of the limits of a role."""

    what: str
    """The unit: what a principal holds."""
    over: str
    """What is answered where it asks for one more."""


LIMITS: Final[Mapping[str, Limit]] = {
    "streams_max": Limit("open streams, sockets' and pages' among them", "503"),
    "subscriptions_max": Limit(
        "different subscriptions with a filter or right of their own", "503"
    ),
    "past_max": Limit("places in the past at which older records are read", "503"),
    "copies_max": Limit("streams and queries whose latest is kept because it asked first", "503"),
    "leases_max": Limit("leases", "429"),
    "deliveries_max": Limit("deliveries", "429"),
    "groups_max": Limit("groups", "429"),
    "sql_s_max": Limit("seconds of a question in SQL", "422"),
}
"""All that a role may limit, by its key: of one principal, on one server, each within what any
client may have there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a principal may hold at a time on one server (`LIMITS`); None: as any client."""

    streams_max: int | None = None
    subscriptions_max: int | None = None
    past_max: int | None = None
    copies_max: int | None = None
    leases_max: int | None = None
    deliveries_max: int | None = None
    groups_max: int | None = None
    sql_s_max: float | None = None
    lease_s: float = 0
    """Seconds that a lease may outlive the token that it was asked for with."""

    def refusal(self, name: str, held: float) -> str | None:
        """Why who holds so much gets no more; None where it does."""
        most: float | None = getattr(self, name)
        if most is None or held < most:
            return None
        return f"{name}: you have {held:g} {LIMITS[name].what} here, as many as your role allows"


def widest(limits: Sequence[Limits]) -> Limits:
    """For each limit the most that one of several roles allows; any, where there is no role."""
    if not limits:
        return Limits()
    found: dict[str, Any] = {}
    for name in LIMITS:
        told = [getattr(one, name) for one in limits]
        found[name] = None if None in told else max(told)
    return Limits(**found, lease_s=max(one.lease_s for one in limits))


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request, and what that one may do."""

    name: str
    """For logs; of a token and of a person `issuer#subject`."""
    grants: tuple[Grant, ...]
    proof: Proof
    limits: Limits = Limits()
    expires_at: int | None = None
    """ms since 1970 UTC; None: when its proof is revoked."""
    claims: Mapping[str, Any] | None = field(default=None, compare=False)
    """What its grants were made of, so that they can be made again by another configuration; None:
    they are looked up."""

    def may(self, action: Action, stream: str) -> bool:
        """May it do this with a stream or query of this name?"""
        return stream not in OPERATOR_STREAMS and any(
            action in grant.actions and stream in grant.streams for grant in self.grants
        )

    def scope(self, action: Action, stream: str) -> Scope | None:
        """What it sees of a stream then; None: all."""
        if not self.may(action, stream):
            return Scope(())
        return _scope(
            grant for grant in self.grants if action in grant.actions and stream in grant.streams
        )

    def may_open(self, action: Action, publication: str) -> bool:
        """May it do this with a publication of this name?"""
        return any(
            action in grant.actions and publication in grant.publications for grant in self.grants
        )

    def scope_of_publication(self, action: Action, publication: str) -> Scope | None:
        """What it sees of what a publication shows; None: all."""
        return _scope(
            grant
            for grant in self.grants
            if action in grant.actions and publication in grant.publications
        )

    def holds(self, action: Action) -> bool:
        """Has it a grant with this action, whatever of?"""
        return any(action in grant.actions for grant in self.grants)

    def sees_device(self, device: str, streams: Iterable[str]) -> bool:
        """May it know of a device that sends on these streams?"""
        return self.may_command(device) or any(self.sees_on(device, name) for name in streams)

    def sees_on(self, device: str, stream: str) -> bool:
        """May it read what this device sends on a stream?"""
        scope = self.scope(Action.READ, stream)
        return scope is None or scope.sees(device)

    @property
    def named_devices(self) -> Names | None:
        """The only devices that it may know of; None: all."""
        found = [
            grant.devices
            for grant in self.grants
            if Action.COMMAND in grant.actions
            or (Action.READ in grant.actions and grant.streams != NONE)
        ]
        if any(devices is None for devices in found):
            return None
        return Names.of(text for devices in found if devices is not None for text in devices.texts)

    def may_command(self, device: str) -> bool:
        """May it send commands to a device, and answer what that one asks?"""
        return self._may_to(Action.COMMAND, device)

    def may_feed(self, device: str) -> bool:
        """May it ask for what a device follows?"""
        return self._may_to(Action.FEED, device)

    def _may_to(self, action: Action, device: str) -> bool:
        return any(
            action in grant.actions and (grant.devices is None or device in grant.devices)
            for grant in self.grants
        )

    def may_use(self, named_set: str) -> bool:
        """May its filters use a set of this name?"""
        return any(named_set in grant.sets for grant in self.grants)


def _scope(grants: Iterable[Grant]) -> Scope | None:
    parts = [Part(grant.devices, grant.fields) for grant in grants]
    if any(part.devices is None and part.fields is None for part in parts):
        return None
    return Scope(tuple(sorted(set(parts), key=repr)))


def name_of(issuer: str, subject: str) -> str:
    """The name of a token's or a person's subject, which owns what it leaves behind.

    One that is cut is longer than any that is whole: nobody is given a subject that has its name.
    """
    name = f"{issuer}#{subject}"
    if len(name) <= NAME_CHARS_MAX:
        return name
    return f"{name[:NAME_CHARS_MAX]}~{sha256(name.encode()).hexdigest()[:32]}"


def holder(principal: Principal, client: str) -> str:
    """The name whose limits count: the principal's, or the client's own where it is anonymous."""
    if principal.proof.kind is Kind.ANONYMOUS:
        return f"{principal.name}@{client}"
    return principal.name


READING: Final = frozenset({Action.READ, Action.WAKE, Action.ASK})
"""What changes nothing, and shows nothing but streams and queries."""
WHOLE: Final = frozenset({Action.VIEW, Action.OPERATE})
"""What no stream, device or field can narrow."""
OF_DEVICES: Final = frozenset({Action.COMMAND, Action.FEED})
"""What devices alone can narrow."""
ALL: Final = Grant(READING, Names.of(["*"]), publications=Names.of(["*"]), sets=Names.of(["*"]))
ANYBODY: Final = Principal("anonymous", (ALL,), Proof(Kind.ANONYMOUS))
"""Who sends no proof of who it is, where the configuration lets anybody read everything; and a
server itself, which follows whole streams and shows each reader its share. It is never a default:
who forgets the reader would show everything."""
