"""What a client's POST and PATCH make of a lease.

Pure, but for random bytes, which are an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from edgewake.cloud.calls import own_headers, webhook
from edgewake.cloud.calls.sealing import Endpoint, Sealer
from edgewake.cloud.push.leases import lease_state
from edgewake.cloud.push.leases.lease_choice import LeaseChoice
from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.leases.lease import LeaseChange, LeaseEndpoint, LeaseRequest, Webhook
from edgewake.protocol.leases.lease_read import hash_token
from edgewake.protocol.leases.lease_record import Lease, LeaseState
from edgewake.protocol.ops.proof import Kind

ID_BYTES: Final = 12
TOKEN_BYTES: Final = 24


def new_id(random_bytes: Callable[[int], bytes]) -> str:
    """A lease id."""
    return random_bytes(ID_BYTES).hex()


def id_of_key(idempotency_key: str) -> str:
    """The lease id that an Idempotency-Key stands for: the same on every proxy."""
    return blake2b(
        idempotency_key.encode(), digest_size=ID_BYTES, person=b"idempotency-key"
    ).hexdigest()


def hash_of(request: LeaseRequest, reader: Principal) -> str:
    """What is stored of a request, to know a repeated one: that of another reader is another.

    Defaults are left out: a field that a later version adds makes no other request of it.
    """
    text = request.model_dump_json(exclude_defaults=True)
    if reader.proof.kind is not Kind.ANONYMOUS:
        text += f"\0{reader.proof.kind}\0{reader.name}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def new_lease(
    lease_id: str,
    request: LeaseRequest,
    reader: Principal,
    chosen: LeaseChoice,
    *,
    host: str,
    client: str,
    sealer: Sealer,
    random_bytes: Callable[[int], bytes],
    now: int,
) -> tuple[Lease, Endpoint]:
    """A lease and what is sealed in it.

    `host`: of the endpoint; `client`: of who asks (`Sealer.client_of`).

    Raises ValueError for a text that cannot be a secret, EndpointRefused for headers.
    """
    asked = request.endpoint
    secret = asked.secret
    if secret is None:
        secret = webhook.make_secret(random_bytes)
    else:
        webhook.check_secret(secret)
    headers = _headers_of(asked, None)
    endpoint = Endpoint(_url_of(asked), secret, random_bytes(TOKEN_BYTES).hex(), headers)
    lease = Lease(
        id=lease_id,
        token_hash=hash_token(endpoint.token),
        request_hash=hash_of(request, reader),
        streams=chosen.wanted.streams,
        where=chosen.wanted.where,
        select=chosen.wanted.select,
        devices=chosen.devices,
        sample=chosen.sample,
        per=chosen.per,
        cursor=request.cursor,
        endpoint_host=host,
        sealed=sealer.seal(lease_id, endpoint),
        kind=_kind_of(asked),
        wake=request.wake,
        ttl_s=request.ttl_s,
        created_at=now,
        expires_at=now + request.ttl_s * 1000,
        client=client,
        right=chosen.right,
        condition=chosen.condition,
    )
    return lease, endpoint


def changed(
    lease: Lease,
    change: LeaseChange,
    *,
    before: Endpoint,
    endpoint: Endpoint,
    host: str,
    sealer: Sealer,
    now: int,
) -> Lease:
    """The lease after a PATCH; `endpoint` and `host` are those from now on.

    Its life starts again.
    """
    ttl_s = change.ttl_s or lease.ttl_s
    found = lease.but(ttl_s=ttl_s, expires_at=now + ttl_s * 1000, wake=change.wake or lease.wake)
    if change.endpoint is not None:
        found = found.but(
            endpoint_host=host,
            sealed=sealer.seal(lease.id, endpoint),
            kind=_kind_of(change.endpoint),
        )
        if endpoint.newest_secret != before.newest_secret:
            found = found.but(old_secret_until=now + change.endpoint.keep_old_s * 1000)
    if lease.state is LeaseState.DISABLED and (change.enabled or change.endpoint is not None):
        found = lease_state.enabled(found)
    if change.cursor is not None:
        found = lease_state.moved(found, change.cursor)
    return found


def changed_endpoint(change: LeaseChange, before: Endpoint) -> Endpoint:
    """The endpoint after a PATCH: one without a secret, or with the newest, keeps what it had.

    So a PATCH that is repeated does not throw the old secret away.

    Raises ValueError for a text that cannot be a secret, EndpointRefused for headers.
    """
    asked = change.endpoint
    if asked is None:
        return before
    secrets = before.secret
    if asked.secret is not None:
        webhook.check_secret(asked.secret)
        if asked.secret != before.newest_secret:
            secrets = f"{asked.secret} {before.newest_secret}"
    return Endpoint(_url_of(asked), secrets, before.token, _headers_of(asked, before))


def _url_of(asked: LeaseEndpoint) -> str:
    return str(asked.url) if isinstance(asked, Webhook) else ""


def _kind_of(asked: LeaseEndpoint) -> EndpointKind:
    return asked.kind if isinstance(asked, Webhook) else EndpointKind.WEBHOOK


def _headers_of(asked: LeaseEndpoint, before: Endpoint | None) -> Mapping[str, str]:
    if not isinstance(asked, Webhook):
        return {}
    return own_headers.after(asked.headers, str(asked.url), before)
