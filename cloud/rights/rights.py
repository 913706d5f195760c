"""Who somebody is, and whether that still holds.

Decided when a request comes, by its key or token; looked at again each second for as long as
something of it is open: `watch`. That costs nothing while nothing changes: what expires next lies
first in a heap, and files are read when they change.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Protocol

from edgewake.cloud.rights import reader_keys, revoked, tokens
from edgewake.cloud.rights.config import RightsConfig, checked
from edgewake.cloud.rights.issuers import Fetch, KeySet, fetch
from edgewake.cloud.rights.principal import Grant, Limits, Principal, Proof
from edgewake.cloud.rights.roles import NoRights, Roles
from edgewake.cloud.rights.tokens import Lapsed, Refused, UnknownKey
from edgewake.protocol.clock import Clock
from edgewake.protocol.files.changing_file import ChangingFile
from edgewake.protocol.ops.proof import Kind

log = logging.getLogger("edgewake.rights")

LOOK_S: Final = 0.5
"""How often files and expiry are looked at: what ends, ends within a second."""
CREDENTIAL_BYTES_MAX: Final = 8192
"""Bytes of a key or token; what is longer is looked at no further."""


KNOWN_MAX: Final = 5_000
"""Tokens that are remembered as checked, as many as there are streams: 2 KB each, and 60 KB where
one names as many devices as fit into it."""


LOGGED_OUT_MAX: Final = 20_000
"""Sessions of people that are remembered as ended; the oldest go first."""


CLOSED_MAX: Final = 1_000
"""Times of expiry that are kept of what is open no more: who makes a token for each request, good
for a day, would fill the memory with them. As many again as are open, so that it is seldom looked
through."""


class Serving(Protocol):
    """What a part's configuration says of who reaches it."""

    @property
    def rights(self) -> RightsConfig | None: ...
    @property
    def host(self) -> str: ...
    @property
    def also_hosts(self) -> tuple[str, ...]: ...
    @property
    def public_names(self) -> tuple[str, ...]: ...
    @property
    def trusted_proxies(self) -> tuple[str, ...]: ...
    @property
    def login(self) -> object | None: ...


def rights_of(settings: Serving, clock: Clock) -> Rights:
    """Who may ask for what. Raises ConfigError where others reach this part and nothing says so."""
    found = checked(
        settings.rights,
        hosts=(settings.host, *settings.also_hosts),
        public_names=settings.public_names,
        trusted_proxies=settings.trusted_proxies,
        has_login=settings.login is not None,
    )
    return Rights(found, clock)


class End(StrEnum):
    """Why a right holds no longer."""

    EXPIRED = "expired"
    REVOKED = "revoked"


class Watch:
    """One thing that is open by a right; `close` it."""

    def __init__(self, rights: Rights, principal: Principal, end: Callable[[End], None]) -> None:
        self.principal, self.end = principal, end
        self._rights = rights

    def close(self) -> None:
        """End the hold on these rights."""
        self._rights.forget(self)


class Rights:
    """The rights of one server. `run` must run. Raises ConfigError."""

    def __init__(self, config: RightsConfig, clock: Clock, ask: Fetch = fetch) -> None:
        """`ask`: gets what lies at an issuer's address."""
        self._clock = clock
        self.config = config
        self._roles = roles = Roles(config)
        role = config.anonymous or config.local
        self.anonymous = (
            None
            if role is None
            else Principal(
                "anonymous",
                roles.grants(role, {}),
                Proof(Kind.ANONYMOUS),
                roles.limits(role),
            )
        )
        """Who proves nothing; None: nobody may."""
        self.is_local = config.local is not None
        """Is that only who comes from this machine?"""
        self._keys = (
            None
            if config.key_file is None
            else ChangingFile(
                config.key_file,
                lambda text: reader_keys.parse(text, roles),
                what="keys of readers",
                log=log,
                event="rights.file",
                key="key_file",
            )
        )
        self._revoked = (
            None
            if config.revoked_file is None
            else ChangingFile(
                config.revoked_file,
                revoked.parse,
                what="revoked rights",
                log=log,
                event="rights.file",
                key="revoked_file",
            )
        )
        self._issuers = {one.issuer: KeySet(one, clock, ask) for one in config.issuers}
        self._thumbprints = self._known_keys()
        self._known: OrderedDict[bytes, Principal] = OrderedDict()
        """Principals of tokens that were checked, by their SHA-256; the oldest go first."""
        self._open: dict[Proof, dict[Watch, None]] = {}
        self._expiring: list[tuple[int, int, Proof]] = []
        self._queued: set[Proof] = set()
        """Those in `_expiring`, each once."""
        self._numbers = itertools.count()
        self._logged_out: OrderedDict[str, None] = OrderedDict()
        self.grants_of_login: Callable[[Mapping[str, Any]], tuple[Grant, ...]] = lambda _: ()
        """What a person with these claims (`Principal.claims`) may do; it may raise NoRights."""
        self._listeners: list[Callable[[], None]] = []

    def listen(self, told: Callable[[], None]) -> None:
        """Call `told` whenever a right may have been taken back.

        For who keeps rights of its own, which it has to look at again.
        """
        self._listeners.append(told)

    async def principal(self, credential: bytes) -> Principal:
        """The owner of a key or token.

        Raises Refused, Lapsed where it is good no more, and Unavailable where that is unknown now.
        """
        if len(credential) > CREDENTIAL_BYTES_MAX:
            raise Refused(f"{len(credential)} bytes: expected at most {CREDENTIAL_BYTES_MAX}")
        digest = sha256(credential).digest()
        found = self._by_key(digest) or self._known.get(digest)
        if found is None:
            found = self._known[digest] = await self._by_token(credential)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        why = self.end_of(found)
        if why is not None:
            raise Lapsed(f"this key or token is {why}")
        return found

    def as_device(self, bridge: Principal, device: str) -> Principal:
        """A device, for which a bridge asks; it sees nothing where the bridge may not."""
        return Principal(
            f"device:{device}",
            self._roles.grants_of_device(device) if bridge.may_feed(device) else (),
            replace(bridge.proof, device=device),
            Limits(),
            bridge.expires_at,
        )

    async def _by_token(self, text: bytes) -> Principal:
        token = tokens.read(text)
        name = token.claims.get("iss")
        keys = self._issuers.get(name) if isinstance(name, str) else None
        if keys is None:
            raise Refused("token: it is of no issuer that is known here")
        now_s = self._clock.now_ms() / 1000
        try:
            return tokens.check(token, keys.issuer, self._roles, now_s=now_s)
        except UnknownKey:
            if not await keys.renewed():
                raise
        return tokens.check(token, keys.issuer, self._roles, now_s=now_s)

    def end_of(self, principal: Principal) -> End | None:
        """Why its right holds no longer; None while it does."""
        if principal.expires_at is not None and principal.expires_at <= self._clock.now_ms():
            return End.EXPIRED
        proof = principal.proof
        if self._revoked is not None and self._revoked.value.has(proof):
            return End.REVOKED
        match proof.kind:
            case Kind.ANONYMOUS:
                return None if principal == self.anonymous else End.REVOKED
            case Kind.KEY:
                return None if self.holder(proof) == principal else End.REVOKED
            case Kind.LOGIN:
                return End.REVOKED if proof.token_id in self._logged_out else None
            case Kind.TOKEN:
                issuer = self._issuers.get(proof.issuer)
                is_held = issuer is not None and proof.key in issuer.thumbprints
                return None if is_held else End.REVOKED

    def holder(self, proof: Proof) -> Principal | None:
        """Who holds this key now, or proves nothing; None where it is taken back."""
        if self._revoked is not None and self._revoked.value.has(proof):
            return None
        if proof.kind is Kind.ANONYMOUS:
            return self.anonymous
        held = self._by_key(proof.digest)
        return self.as_device(held, proof.device) if held is not None and proof.device else held

    def believes(self, proof: Proof, *, is_expired: bool) -> bool:
        """Would this token or login be accepted now, its expiry aside?

        The key of an expired token may be gone: issuers change theirs.
        """
        if proof.kind is Kind.LOGIN:
            is_revoked = self._revoked is not None and self._revoked.value.has(proof)
            return not is_revoked and proof.token_id not in self._logged_out
        issuer = self._issuers.get(proof.issuer)
        if issuer is None or (self._revoked is not None and self._revoked.value.has(proof)):
            return False
        return is_expired or proof.key in issuer.thumbprints

    def grants_of(self, proof: Proof, claims: Mapping[str, Any]) -> tuple[Grant, ...]:
        """What a token or login with these claims may do by the configuration of now."""
        try:
            if proof.kind is Kind.LOGIN:
                return self.grants_of_login(claims)
            issuer = self._issuers[proof.issuer].issuer.config
            return tokens.granted_by(claims, issuer, self._roles)[1]
        except (NoRights, KeyError):
            return ()

    def watch(self, principal: Principal, end: Callable[[End], None]) -> Watch:
        """Call `end` once when the right holds no longer, within a second."""
        watch = Watch(self, principal, end)
        why = self.end_of(principal)
        if why is not None:  # since it was found out who asks
            asyncio.get_running_loop().call_soon(end, why)
            return watch
        self._open.setdefault(principal.proof, {})[watch] = None
        if principal.expires_at is not None and principal.proof not in self._queued:
            self._queued.add(principal.proof)
            entry = (principal.expires_at, next(self._numbers), principal.proof)
            heapq.heappush(self._expiring, entry)
            if len(self._expiring) > CLOSED_MAX + 2 * len(self._open):
                self._drop_closed()
        return watch

    def _drop_closed(self) -> None:
        self._expiring = [entry for entry in self._expiring if entry[2] in self._open]
        heapq.heapify(self._expiring)
        self._queued = {proof for _, _, proof in self._expiring}

    def forget(self, watch: Watch) -> None:
        """A watch is over."""
        found = self._open.get(watch.principal.proof)
        if found is not None:
            found.pop(watch, None)
            if not found:
                del self._open[watch.principal.proof]

    def log_out(self, session: str) -> None:
        """A person's session is ended: so is what is open by it."""
        self._logged_out[session] = None
        while len(self._logged_out) > LOGGED_OUT_MAX:
            self._logged_out.popitem(last=False)
        self._check_all()

    async def run(self) -> None:
        """Read keys again until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """End what holds no longer."""
        files = {"keys of readers": self._keys, "revoked rights": self._revoked}
        changed = [name for name, file in files.items() if file is not None and file.look()]
        for name in changed:
            log.info("%s read again", name, extra={"event": "rights.file"})
        for keys in self._issuers.values():
            keys.look()
        known = self._known_keys()
        if known != self._thumbprints or changed:
            self._thumbprints = known
            self._check_all()
        now = self._clock.now_ms()
        while self._expiring and self._expiring[0][0] <= now:
            proof = heapq.heappop(self._expiring)[2]
            self._queued.discard(proof)
            self._check(proof)

    def _known_keys(self) -> list[frozenset[str]]:
        """The keys of all issuers."""
        return [keys.thumbprints for keys in self._issuers.values()]

    def _check_all(self) -> None:
        for proof in list(self._open):
            self._check(proof)
        for told in self._listeners:
            told()

    def _check(self, proof: Proof) -> None:
        watches = list(self._open.get(proof, ()))
        why = self.end_of(watches[0].principal) if watches else None
        if why is None:
            return
        self._open.pop(proof, None)
        facts = {"event": "rights.ended", "holder": watches[0].principal.name, "why": why}
        log.info("%s: %s, %d ended", facts["holder"], why, len(watches), extra=facts)
        for watch in watches:
            try:
                watch.end(why)
            except Exception as error:  # what cannot be ended in its own way holds up no other end
                facts = {"event": "rights.end_failed", "error": repr(error)[:200]}
                log.error("%s could not be ended: %r", watch.principal.name, error, extra=facts)

    def _by_key(self, digest: bytes) -> Principal | None:
        return None if self._keys is None else self._keys.value.get(digest)
