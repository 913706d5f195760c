"""The configuration of who may read what: the table `[rights]` of the parts that readers ask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import OF_DEVICES, WHOLE, Action
from edgewake.cloud.web.host import is_loopback
from edgewake.protocol.config import Config
from edgewake.protocol.errors import ConfigError

EVERYTHING: Final = "everything"
"""The role that is always there: it reads, wakes and asks, all streams."""
CLAIM: Final = "$"
"""In a grant's devices: what stands behind it is a claim of the token, e.g. "$device"."""
DEVICE_CLAIM: Final = "device"
"""The claim that a key's words are, and the only one that a device has: its own name."""


def checked_url(text: str) -> str:
    """An address whose answers can be trusted. Raises ValueError."""
    parts = urlsplit(text)
    is_near = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme == "https" or (parts.scheme == "http" and is_near):
        return text
    raise ValueError(f"{text!r}: expected https://…, or http:// on this machine")


class GrantConfig(Config):
    """What a role may do: these actions, with these streams, and there these devices and fields."""

    actions: tuple[Action, ...] = (Action.READ, Action.WAKE)
    """read (streams, pages, latest values, the list of what there is) and wake (leases); at the
    operations API read (lists of streams and devices), ask (SQL, summaries), command (commands and
    requests of devices, with `devices` alone), view (all that it shows) and operate (all that it
    does), which nothing narrows. feed, with `devices` alone: a bridge asks for what these devices
    follow, each with the rights that `[[rights.devices]]` gives it."""
    streams: tuple[str, ...] = ()
    """Names of streams and queries; `*` stands for any characters."""
    publications: tuple[str, ...] = ()
    """Names of publications, and `*` for any characters: what they show is seen, whatever rights
    there are to their streams."""
    sets: tuple[str, ...] = ()
    """Named sets that filters may use, and `*` for any characters: to use one tells who is in
    it."""
    devices: tuple[str, ...] | None = None
    """Devices, e.g. ["car-7", "bus-*"], or a claim of the token, e.g. ["$device"]; all where it is
    left out. What names no device, such as a total over a fleet, is then not seen."""
    fields: tuple[str, ...] | None = None
    """Fields that are seen, and `*` for any characters; all where it is left out. Stream, device,
    order and times of an event are always seen."""

    @model_validator(mode="after")
    def _allows_something(self) -> GrantConfig:
        actions = set(self.actions)
        if to_devices := actions & OF_DEVICES:
            if len(actions) > 1 or self._names_what_is_read:
                raise ValueError(
                    f"actions: {min(to_devices)} has a grant of its own, with devices alone: it "
                    "narrows by nothing else"
                )
        elif actions & WHOLE:
            if actions - WHOLE or self._names_what_is_read or self.devices is not None:
                raise ValueError(
                    "actions: view and operate have a grant of their own, without streams, devices "
                    "and fields: nothing narrows them"
                )
        elif not (self.streams or self.publications or self.sets):
            raise ValueError("expected streams, publications or sets")
        return self

    @property
    def _names_what_is_read(self) -> bool:
        return bool(self.streams or self.publications or self.sets or self.fields is not None)

    def claims(self) -> frozenset[str]:
        """The claims that it needs."""
        return frozenset(
            text.removeprefix(CLAIM) for text in self.devices or () if text.startswith(CLAIM)
        )


class RoleConfig(Config):
    """A role: what several keys and tokens have in common."""

    grants: tuple[GrantConfig, ...] = Field(min_length=1)
    """What it may do; what several grants say adds up."""
    streams_max: int | None = Field(default=None, ge=1)
    """Streams, subscriptions of sockets, and pages that are being read, that one key or token's
    subject may have open on a server. One more of these limits is 503, at a push proxy 429; the
    answer names the limit. None: as any client."""
    subscriptions_max: int | None = Field(default=None, ge=1)
    """Different subscriptions that it may have open there, but those that everybody uses: one
    stream without a filter."""
    past_max: int | None = Field(default=None, ge=1)
    """Places in the past at which older records may be read for it there."""
    copies_max: int | None = Field(default=None, ge=1)
    """Streams and queries whose latest rows may be kept there because it asked first."""
    leases_max: int | None = Field(default=None, ge=1)
    """Leases that it may have at a push proxy."""
    deliveries_max: int | None = Field(default=None, ge=1)
    """Webhook deliveries that it may have there."""
    groups_max: int | None = Field(default=None, ge=1)
    """Groups that it may have there."""
    sql_s_max: float | None = Field(default=None, gt=0, le=60)
    """Seconds that a question of it in SQL may take: without `seconds` it is given so long, with
    more it is refused (422)."""
    lease_s: float = Field(default=0, ge=0, le=30 * 86_400)
    """Seconds that a lease may outlive the token that it was asked for with: a phone that sleeps
    renews no token. What is taken back (`revoked_file`) ends it all the same."""


class DeviceRule(Config):
    """What devices of these names may follow through a bridge; what several rules say adds up."""

    devices: tuple[str, ...] = Field(default=("*",), min_length=1)
    """Names of devices that follow something, and `*` for any characters."""
    role: str
    """A role; in its grants `$device` is the device that follows. It gives `read` alone."""


class IssuerConfig(Config):
    """Who makes tokens (JWT) that are believed here."""

    issuer: str = Field(min_length=1)
    """As the claim `iss` says it, character for character."""
    audience: str = Field(min_length=1)
    """What the claim `aud` must name."""
    jwks_file: Path | None = None
    """Its public keys, a JSON Web Key Set; read again when it changes."""
    jwks_url: Annotated[str, AfterValidator(checked_url)] | None = None
    """URL of its public keys at its server, which must answer itself: a redirect is refused."""
    refresh_s: float = Field(default=60, ge=1)
    """Seconds between two looks at `jwks_url`: a key that is withdrawn is believed for so long."""
    stale_s: float = Field(default=3600, ge=1)
    """Seconds for which keys are believed that cannot be looked at any more."""
    algorithms: tuple[
        Literal[
            "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
            "ES256", "ES384", "ES512", "EdDSA",
        ],
        ...,
    ] = ("RS256", "ES256", "EdDSA")  # fmt: skip
    """Signatures that are believed; never one with a shared secret."""
    leeway_s: float = Field(default=10, ge=0, le=120)
    """Seconds by which clocks may differ."""
    life_max_s: float = Field(default=86_400, ge=1)
    """A token that is good for longer than this is refused: nobody could take it back."""
    role: str | None = None
    """Role of its tokens that name none."""
    role_claim: str = "edgewake_role"
    """The claim that names a token's role."""
    roles: tuple[str, ...] = ()
    """Roles that its tokens may name."""
    details: bool = False
    """May its tokens carry grants of their own, as `authorization_details` of type edgewake (RFC
    9396)?"""

    @model_validator(mode="after")
    def _has_one_source(self) -> IssuerConfig:
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("expected one of jwks_file and jwks_url")
        return self


class RightsConfig(Config):
    """Who may read what. Where it is left out, anybody on this machine may read everything."""

    anonymous: str | None = None
    """The role of who proves nothing; where it is left out nobody reads without a key or token."""
    local: str | None = None
    """The role of clients without a key that come from this machine to 127.0.0.1 or ::1; not
    together with `anonymous`, nor behind a proxy."""
    roles: dict[str, RoleConfig] = Field(default={})
    """Roles by their names; the role `everything` is always there."""
    key_file: Path | None = None
    """Lines `NAME ROLE KEY [DEVICE …]`; read again when it changes."""
    revoked_file: Path | None = None
    """Lines `jti ID`, `sub SUBJECT` or `key NAME`: what is taken back before it expires; read again
    when it changes."""
    issuers: tuple[IssuerConfig, ...] = ()
    """Who makes tokens that are believed."""
    devices: tuple[DeviceRule, ...] = ()
    """What each device may follow by a bridge whose key has the action `feed`; nothing where no
    rule names it."""

    @model_validator(mode="after")
    def _knows_its_roles(self) -> RightsConfig:
        known = {EVERYTHING, *self.roles}
        if self.anonymous is not None and self.local is not None:
            raise ValueError("expected one of anonymous and local")
        named = [("anonymous", self.anonymous), ("local", self.local)]
        for issuer in self.issuers:
            named += [("role", issuer.role), *(("roles", role) for role in issuer.roles)]
        named += [("devices.role", rule.role) for rule in self.devices]
        for where, role in named:
            if role is not None and role not in known:
                raise ValueError(f"{where} = {role!r}: expected one of {', '.join(sorted(known))}")
        if EVERYTHING in self.roles:
            raise ValueError(f"roles.{EVERYTHING}: this role is always there, choose another name")
        for key, role in named[:2]:
            if needed := sorted(self._claims_of(role)):
                raise ValueError(f"{key} = {role!r}: who proves nothing has no claim {needed[0]!r}")
        for rule in self.devices:
            if needed := sorted(self._claims_of(rule.role) - {DEVICE_CLAIM}):
                raise ValueError(
                    f"devices.role = {rule.role!r}: a device has no claim {needed[0]!r}; expected "
                    f"${DEVICE_CLAIM}, its own name"
                )
        issuers = [issuer.issuer for issuer in self.issuers]
        if len(set(issuers)) < len(issuers):
            raise ValueError("issuers: expected each issuer once")
        return self

    def _claims_of(self, role: str | None) -> set[str]:
        grants = () if role not in self.roles else self.roles[role].grants
        return {claim for one in grants for claim in one.claims()}


ANYBODY_CONFIG: Final = RightsConfig(anonymous=EVERYTHING)
"""The rights of a server that only this machine reaches."""


def checked(
    found: RightsConfig | None,
    *,
    hosts: tuple[str, ...],
    public_names: tuple[str, ...],
    trusted_proxies: tuple[str, ...],
    has_login: bool = False,
) -> RightsConfig:
    """The configuration that holds.

    Raises ConfigError where others reach the server and it does not say who may read. Where people
    log in, nobody reads without.
    """
    if found is None and has_login:
        return RightsConfig()
    if found is not None:
        if found.local is not None and trusted_proxies:
            raise ConfigError(
                "rights.local: a proxy on this machine asks for others, too: expected no "
                "trusted_proxies beside it"
            )
        return found
    by = next((f"host = {host!r}" for host in hosts if not is_loopback(host)), None)
    for key, value in (("public_names", public_names), ("trusted_proxies", trusted_proxies)):
        if value:
            by = by or f"{key} = {list(value)}"
    if by is None:
        return ANYBODY_CONFIG
    raise ConfigError(
        f"{by}: other machines reach this server, and nothing says who may read: expected "
        "a table [rights] (docs/rights.md); to let anybody read everything, "
        f'[rights] with anonymous = "{EVERYTHING}"'
    )


def names(texts: tuple[str, ...] | None) -> Names | None:
    """The names that a grant covers; None covers all."""
    return None if texts is None else Names.of(texts)
