"""One webhook call: its body, signature (Standard Webhooks), request, and outcome.

Body, at most BODY_BYTES_MAX:

    {"type":"edgewake.wake","timestamp":"2026-…Z","lease":"…","cursor":"v1.…","count":3,"capped":false,"gap":false,
     "urgency":"normal","again":0,"streams":["…"],"events":[{…}]}

`cursor` is the client's own, from which it resumes; `count` events are after it (more when
`capped`); `gap` says that part of the range is not kept any more; `again` counts the times that the
client was woken since it last resumed. Attempts of one wake-up have the same webhook-id and the
same body, so that a receiver can drop repeats.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeAlias

import orjson
from standardwebhooks.webhooks import Webhook

from edgewake.cloud.calls import endpoint as endpoints
from edgewake.cloud.calls import http_post
from edgewake.protocol.backoff import retry_after_s
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.endpoint_kind import EndpointKind

TYPE: Final = "edgewake.wake"
BODY_BYTES_MAX: Final = 3072
"""Web Push takes about 3 KB; a webhook keeps to the same, so that a wake-up can be passed on as
one."""
NOT_FOUND: Final = 404
TIMEOUT_S: Final = 15.0
"""For the whole call. Standard Webhooks: 15 to 30 s."""
CONNECT_TIMEOUT_S: Final = 3.0
"""For a connection to one of an endpoint's addresses; ADDRESSES_MAX of them stay below
TIMEOUT_S."""
RETRY_AFTER_MAX_S: Final = 86_400.0
"""The longest wait that an endpoint may ask for: a wrong date of its own stops nothing for
longer."""
SECRET_BYTES: Final = (24, 64)
"""Least and most bytes of a secret (Standard Webhooks)."""


@dataclass(frozen=True, slots=True)
class Taken:
    """2xx: the endpoint has it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Try again later."""

    why: str
    retry_after_s: float | None = None
    status: int | None = None
    """What was answered; None: nothing."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Never try this endpoint again."""

    why: str


@dataclass(frozen=True, slots=True)
class Signed:
    """A message to send.

    It is signed at each attempt, because the time of the attempt is signed too.
    """

    secret: str
    """Or several, with blanks between them: each signs, while one takes the place of another."""
    message_id: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The owner's own (`own_headers.check`)."""


Outcome: TypeAlias = Taken | Failed | Gone


def check_secret(secret: str) -> None:
    """Is it whsec_ and base64 of 24 to 64 bytes? Raises ValueError."""
    prefix, _, encoded = secret.partition("_")
    try:
        size = len(base64.b64decode(encoded, validate=True)) if prefix == "whsec" else 0
    except binascii.Error as error:
        raise ValueError("secret: expected whsec_ and base64") from error
    if not SECRET_BYTES[0] <= size <= SECRET_BYTES[1]:
        raise ValueError("secret: expected whsec_ and base64 of 24 to 64 bytes")


def make_secret(random_bytes: Callable[[int], bytes]) -> str:
    """A new secret of 32 bytes."""
    return "whsec_" + base64.b64encode(random_bytes(32)).decode()


def wake_id(lease_id: str, number: int) -> str:
    """The webhook-id of a wake-up, the same for each attempt."""
    return f"msg_{lease_id}_{number}"


def wake_body(
    facts: Mapping[str, Any], previews: Sequence[Mapping[str, Any]], *, at_ms: int
) -> str:
    """The body with as many previews as fit.

    `facts`: lease, cursor, count, capped, gap, urgency, again, streams.

    A cursor over more partitions than fit is left out (null): the client has it.
    """
    timestamp = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    body: dict[str, Any] = {"type": TYPE, "timestamp": timestamp, **facts, "events": []}
    if len(orjson.dumps(body)) > BODY_BYTES_MAX:
        body["cursor"] = None
    room = BODY_BYTES_MAX - len(orjson.dumps(body))
    for preview in previews:
        room -= len(orjson.dumps(preview)) + 1
        if room < 0:
            break
        body["events"].append(preview)
    return orjson.dumps(body).decode()


def signed_headers(secret: str, message_id: str, body: str, *, at_ms: int) -> dict[str, str]:
    """The headers webhook-id, webhook-timestamp (of this attempt) and webhook-signature.

    There is one signature for each secret.
    """
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_ms // 1000),
        "webhook-signature": " ".join(
            Webhook(one).sign(message_id, at, body) for one in secret.split()
        ),
        "content-type": "application/json",
        "user-agent": "edgewake-push/1",
    }


def outcome(status: int, retry_after: str | None, *, now_ms: int) -> Outcome:
    """Decide by an answer whether a call succeeded or is tried again.

    Only 410 ends an endpoint (Standard Webhooks): a 404 may be a deployment that lasts a minute
    (for push services see `is_gone`), and a redirect is a failure, because the address it names was
    never checked.
    """
    if 200 <= status < 300:
        return Taken()
    if status == 410:
        return Gone(f"the endpoint answered {status}")
    asked = retry_after if status in (429, 503) and retry_after else ""
    wait_s = retry_after_s(asked, now_ms, max_s=RETRY_AFTER_MAX_S) or None
    return Failed(f"the endpoint answered {status}", wait_s, status)


def is_gone(failed: Failed, kind: EndpointKind) -> bool:
    """Does this endpoint's kind end it by this answer?"""
    return failed.status == NOT_FOUND and kind is EndpointKind.PUSH_SERVICE


@cache
def _of_all_authorities() -> ssl.SSLContext:
    """Trusts those of this machine: to read them takes 21 ms, and nobody changes it."""
    return ssl.create_default_context()


class Caller:
    """Calls endpoints: a call resolves and checks the address and sends one request.

    It follows no redirect and reads no body.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        allow_hosts: Collection[str] = (),
        resolver: endpoints.Resolver = endpoints.system_resolver,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._clock = clock
        self._allow_hosts = frozenset(allow_hosts)
        self._resolver = resolver
        self._timeout_s = timeout_s
        self._tls = tls or _of_all_authorities()

    async def check(self, url: str) -> str:
        """The host of an endpoint that may be called. Raises EndpointRefused or Unavailable."""
        target = endpoints.parse(url, self._allow_hosts)
        await endpoints.resolve(target, self._resolver)
        return target.host

    async def call(self, url: str, wake: Signed) -> Outcome:
        """Make one call; never raises for what the endpoint does."""
        try:
            target = endpoints.parse(url, self._allow_hosts)
            async with asyncio.timeout(self._timeout_s):
                return await self._post_to_any(
                    target, await endpoints.resolve(target, self._resolver), wake
                )
        except (
            endpoints.EndpointRefused,
            Unavailable,
            http_post.NotConnected,
            http_post.NotAnswered,
        ) as error:
            # Refused now, after it was accepted once: a resolver that answers differently inside
            # and outside may do so for a moment.
            return Failed(str(error))
        except TimeoutError:
            return Failed(f"no answer within {self._timeout_s:g} s")

    async def _post_to_any(
        self, target: endpoints.Endpoint, addresses: Sequence[str], wake: Signed
    ) -> Outcome:
        """Try the addresses in turn until one accepts a connection.

        A request that was sent is never sent a second time.
        """
        for address in addresses[:-1]:
            try:
                return await self._post(target, address, wake)
            except http_post.NotConnected:
                continue
        return await self._post(target, addresses[-1], wake)

    async def _post(self, target: endpoints.Endpoint, address: str, wake: Signed) -> Outcome:
        signed = signed_headers(wake.secret, wake.message_id, wake.body, at_ms=self._clock.now_ms())
        headers = {**wake.headers, **signed}
        connect_s = min(CONNECT_TIMEOUT_S, self._timeout_s)
        answer = await http_post.post(
            target, address, headers, wake.body.encode(), tls=self._tls, connect_timeout_s=connect_s
        )
        return outcome(answer.status, answer.retry_after, now_ms=self._clock.now_ms())
