"""A sleeping client's lease at the push proxy: what is asked for, kept, and answered. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import orjson

from edgewake.edge.client.asked import ALL, Options, Published
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.leases.lease import (
    TTL_DEFAULT_S,
    LeaseRequest,
    Relay,
    Subscription,
    WakePolicy,
)

KEPT_BYTES_MAX: Final = 64 * 1024
"""Bytes of the file that a lease is kept in; a request has 32 KB at most."""
_NUMBER: Final = re.compile(r"msg_[0-9a-f]{1,64}_([0-9]{1,15})")


class BadAnswer(RemoteError):
    """A server sent what a push proxy never answers."""


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Why a client is awake: something came, or its lease has ended. Either way it reads."""

    number: int
    """Its place among the wake-ups of its lease: 1, 2, 3 …"""
    count: int = 0
    """Events after the cursor, as far as they were counted."""
    is_capped: bool = False
    """There are more than `count`."""
    gap: bool = False
    """Part of what it has not seen is not kept any more."""
    again: int = 0
    """So often it was woken before, since it last said where it sleeps."""
    events: Sequence[Mapping[str, Any]] = ()
    """The first of them, as many as `preview_events` says and 3 KB hold."""
    body: str = ""
    """As an endpoint is sent it, to be passed on with `headers`, which have its signature."""
    headers: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""
    """Why the lease wakes nobody any more; the next sleep asks for another one."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What survives the program: written before each request whose answer may be lost."""

    key: str
    """The Idempotency-Key of the request: repeated with it, the same lease comes back."""
    request: str
    """The request's body, JSON."""
    id: str = ""
    token: str = field(default="", repr=False)
    cursor: str = ""
    """Where the proxy knows it to sleep; empty once it was woken."""
    number: int = 0
    """The number of the newest wake-up that came."""

    @property
    def is_granted(self) -> bool:
        """Has the proxy answered?"""
        return bool(self.id)


def request_of(
    wanted: Subscription | Published,
    cursor: str,
    wake: WakePolicy,
    *,
    ttl_s: int = TTL_DEFAULT_S,
    options: Options = ALL,
) -> str:
    """The body of POST /v1/leases, JSON. Raises ValueError."""
    asked = LeaseRequest(
        subscription=_chosen(wanted, options),
        cursor=cursor,
        endpoint=Relay(type="relay"),
        wake=wake,
        ttl_s=ttl_s,
    )
    return asked.model_dump_json(exclude_none=True)


def _chosen(wanted: Subscription | Published, options: Options) -> Chosen:
    paces = (options.conflate_ms, options.max_rate, options.slow, options.slow_after_s)
    if any(pace is not None for pace in paces):
        raise ValueError(
            "conflation, a rate and what happens to slow readers are for who is sent events, and a "
            "wake-up is one for many: expected devices, sample and per alone"
        )
    published = wanted.name if isinstance(wanted, Published) else None
    return Chosen(
        streams=wanted.streams if published is None else (),
        publication=published,
        where=wanted.where,
        select=wanted.select,
        devices=None if options.devices is None else tuple(options.devices),
        sample=options.sample,
        per=",".join(options.per) or None,
    )


def is_same(kept: Kept, request: str) -> bool:
    """Is it a lease of this request, wherever its client slept first?"""
    return _but_cursor(kept.request) == _but_cursor(request)


def _but_cursor(request: str) -> dict[str, Any]:
    words: dict[str, Any] = orjson.loads(request)
    return {name: value for name, value in words.items() if name != "cursor"}


def encode(kept: Kept) -> bytes:
    """For a file."""
    return orjson.dumps(kept, option=orjson.OPT_INDENT_2)


def decode(data: bytes) -> Kept:
    """Read it back. Raises ValueError where it is not what `encode` made."""
    words = _object(data)
    texts = ("key", "request", "id", "token", "cursor")
    number = words.get("number")
    if not all(isinstance(words.get(name), str) for name in texts) or not _is_count(number):
        raise ValueError("is not a lease that was kept")
    kept = Kept(**{name: words[name] for name in texts}, number=number)
    _object(kept.request.encode())
    return kept


def granted(kept: Kept, body: bytes) -> Kept:
    """The lease that was answered. Raises BadAnswer."""
    words = _answered(body)
    names = (words.get("id"), words.get("token"), words.get("cursor"))
    lease, token, cursor = names
    if not all(isinstance(text, str) and re.fullmatch(r"[!-~]{1,8192}", text) for text in names):
        raise BadAnswer("expected a lease with its id, token and cursor")
    if re.fullmatch(r"[0-9a-f]{1,64}", str(lease)) is None:
        raise BadAnswer("expected a lease whose id is of hex digits")
    return Kept(kept.key, kept.request, str(lease), str(token), str(cursor))


def woken(headers: Mapping[str, str], body: bytes, *, after: int) -> WakeUp:
    """The wake-up that was answered. Raises BadAnswer."""
    found = _NUMBER.fullmatch(headers.get("webhook-id", ""))
    if found is None or int(found[1]) <= after:
        raise BadAnswer(f"expected a wake-up with a number above {after} in webhook-id")
    words = _answered(body)
    count, again, events = words.get("count"), words.get("again"), words.get("events")
    if not _is_count(count) or not _is_count(again) or not isinstance(events, list):
        raise BadAnswer("expected a wake-up with count, again and events")
    return WakeUp(
        int(found[1]),
        count,
        words.get("capped") is True,
        words.get("gap") is True,
        again,
        [event for event in events if isinstance(event, dict)],
        body.decode(),
        {name: value for name, value in headers.items() if name.startswith("webhook-")},
    )


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _answered(body: bytes) -> dict[str, Any]:
    try:
        return _object(body)
    except ValueError as error:
        raise BadAnswer("expected JSON") from error


def _object(data: bytes) -> dict[str, Any]:
    words = orjson.loads(data)
    if not isinstance(words, dict):
        raise ValueError("expected an object")
    return words
