"""A page of events as an answer: its form, its bounds, and how long caches may keep it. Pure.

    JSON      {"events": [{…}, {"$event": "watermark", …}], "cursor": "v2.…", "live": true}
    NDJSON    one event a line; the last line is {"$event": "end", "cursor": "v2.…", "live": true}
    CSV       a row for each event (`bounded/table.py`); cursor and live are in the head

An object with `$event` is not a reading but a gap or a watermark: no field of a reading has such a
name.

A page that ends at its limit never changes, and is the same for all who ask with the same cursor;
one that ends at the live end has an ETag, so that a client that asks again before anything new came
gets 304.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Final

import orjson
from starlette.responses import Response

from edgewake.cloud.access.bounded.bodies import Bodies, Body, BodyResponse
from edgewake.cloud.access.bounded.table import table_of
from edgewake.cloud.log.request import RequestError
from edgewake.protocol.downlink.feed import DEVICE_HEADER

LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 10_000
"""Events of a page."""
WAIT_S_MAX: Final = 60.0
"""Seconds that a client may wait for the first event: some proxies close what is silent for
longer."""
KEPT_S: Final = 60
"""Seconds for which a full page may be kept by caches; retention may remove what it shows."""
VARY: Final = f"Accept, Authorization, Cookie, {DEVICE_HEADER}, Last-Event-ID"
"""The headers that choose an answer: a cursor may stand in one of them, and not in the address; and
a bridge asks for each of its devices with the same key."""
_NDJSON: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})


class Form(Enum):
    """The forms of a page."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"


FORMS: Final = {"json": Form.JSON, "ndjson": Form.NDJSON, "csv": Form.CSV}
"""By the word that an address says where its client sets no header: a spreadsheet."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a read of one page."""

    limit: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Page:
    """What was read. `events` are JSON objects."""

    events: Sequence[bytes]
    cursor: str
    live: bool
    """Is there nothing after it at the moment?"""
    superseded: int = 0
    """Events that later ones took the place of."""
    is_whole: bool = True
    """False: it ended before its limit and before the live end, as its time was up or the server
    stops, so nothing is known of what follows."""
    texts: dict[Form, tuple[Body, str]] = field(default_factory=dict, compare=False, repr=False)
    """Its body and the tag of that, by the form, once somebody was given it."""


def form_of(accept: str, words: Sequence[str | None], named: str | None = None) -> Form | None:
    """The form that is asked for; None: a stream of events.

    `words`: those parameters that only a page has; `named`: the form that the address names, which
    wins. Raises RequestError.
    """
    if named is not None:
        if named not in FORMS:
            raise RequestError("format", f"format={named[:40]!r}: expected {', '.join(FORMS)}")
        return FORMS[named]
    types = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    is_page = any(word is not None for word in words)
    for kind in types:
        if kind in _NDJSON:
            return Form.NDJSON
        if kind in (Form.JSON.value, Form.CSV.value):
            return Form(kind)
        if kind == "text/event-stream":
            if is_page:
                detail = (
                    "after, limit and wait are for pages: expected Accept: application/json, "
                    "application/x-ndjson or text/csv"
                )
                raise RequestError("accept", detail)
            return None
    return Form.JSON if is_page else None


def check_pace(max_rate: str | None, slow: str | None) -> None:
    """Raises RequestError for what has no meaning for a page."""
    if max_rate is not None:
        raise RequestError("max_rate", "max_rate is for streams: a page has limit")
    if slow is not None:
        raise RequestError("slow", "slow and slow_after are for streams: a page ends by itself")


def bounds_of(limit: str | None, wait: str | None) -> Bounds:
    """Raises RequestError."""
    return Bounds(_limit(limit), _wait_s(wait))


def _limit(text: str | None) -> int:
    if text is None:
        return LIMIT_DEFAULT
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= LIMIT_MAX:
        return int(text)
    raise RequestError("limit", f"limit={text[:40]!r}: expected 1 to {LIMIT_MAX} events")


def _wait_s(text: str | None) -> float:
    try:
        seconds = 0.0 if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= WAIT_S_MAX:
        return seconds
    raise RequestError("wait", f"wait={str(text)[:40]!r}: expected 0 to {WAIT_S_MAX:.0f} seconds")


async def response(
    page: Page,
    form: Form,
    bodies: Bodies,
    client: str,
    *,
    resumes: bool,
    is_public: bool,
    if_none_match: str,
) -> Response:
    """Make the answer, which counts for the client until it has it. Raises Full.

    `resumes`: it was asked for by a cursor, so others may ask for the same; where it `is_public`
    they get the same answer.
    """
    if form not in page.texts:
        made = await _body(page, form)
        if form not in page.texts:  # nobody else made it meanwhile
            page.texts[form] = bodies.whole(made), blake2b(made, digest_size=12).hexdigest()
    body, tag = page.texts[form]
    whose = "public" if is_public else "private"
    kept = f"{whose}, no-cache" if page.live else f"{whose}, max-age={KEPT_S}"
    headers = {
        "Cache-Control": kept if resumes and page.is_whole else "no-store",
        "ETag": f'"{tag}"',
        "Vary": VARY,
        "Edgewake-Live": "true" if page.live else "false",
        "Edgewake-Cursor": page.cursor,
    }
    if is_known(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return BodyResponse(bodies.take(body, client=client), headers, form.value)


def is_known(if_none_match: str, tag: str | None = None) -> bool:
    """Does a client say that it has this answer (RFC 9110, 13.1.2)?

    `if_none_match`: any number of tags; `*` stands for all there are, and for an answer without a
    tag, too.
    """
    if if_none_match.strip() == "*":
        return True
    # The weak one is the same, too: a proxy that compresses makes it of ours.
    return tag is not None and f'"{tag}"' in if_none_match


async def _body(page: Page, form: Form) -> bytes:
    if form is Form.CSV:
        # Each event is read and written: 10,000 of them hold others up for a tenth of a second.
        return await asyncio.to_thread(table_of, page.events)
    live = b"true" if page.live else b"false"
    cursor = orjson.dumps(page.cursor)
    more = b',"superseded":%d' % page.superseded if page.superseded else b""
    if form is Form.NDJSON:
        return b"".join(
            one + b"\n" for one in page.events
        ) + b'{"$event":"end","cursor":%b,"live":%b%b}\n' % (cursor, live, more)
    events = b",".join(page.events)
    return b'{"events":[%b],"cursor":%b,"live":%b%b}' % (events, cursor, live, more)
