"""The parameters of the event routes, in the address or in the body of a POST. Pure."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Header, Query
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.wanted import DEVICES_MAX
from edgewake.protocol.names import STREAMS_PER_SUBSCRIPTION_MAX


@dataclass(frozen=True)
class Words:
    """The parameters of all these routes."""

    where: Annotated[
        str | None,
        Query(
            description=(
                "SQL condition on the event's fields, e.g. `speed_kmh > 50 AND device LIKE "
                "'car-%'`."
            )
        ),
    ] = None
    select: Annotated[
        str | None,
        Query(description="SQL columns to send, e.g. `device, speed_kmh / 3.6 AS speed_ms`."),
    ] = None
    start: Annotated[
        str | None,
        Query(
            alias="from",
            description=(
                "earliest, latest (default), an ISO 8601 time, a time ago such as -15m, or ms "
                "since 1970."
            ),
        ),
    ] = None
    on_gap: Annotated[
        str | None, Query(description="After a gap go on at: earliest (default), latest; or stop.")
    ] = None
    checkpoint: Annotated[
        str | None,
        Query(
            description=(
                "Progress without an event: `event: checkpoint` with data (event, default), or an "
                "id alone (id)."
            )
        ),
    ] = None
    heartbeat: Annotated[
        str | None,
        Query(
            description=(
                "Seconds of silence after which a sign of life or the progress is sent, 5 to 300: "
                "longer lets a radio sleep."
            )
        ),
    ] = None
    beat: Annotated[
        str | None,
        Query(
            description=(
                "A sign of life is a comment (comment, default), or an event `heartbeat` that a "
                "browser sees (event)."
            )
        ),
    ] = None
    absent: Annotated[
        str | None,
        Query(
            description=(
                "A stream that is not there yet is refused with 404 (refuse, default), or waited "
                "for from its first event (wait)."
            )
        ),
    ] = None
    sample: Annotated[
        str | None,
        Query(description="A share of all devices, the same ones everywhere, e.g. 0.1 or 10%."),
    ] = None
    conflate: Annotated[
        str | None,
        Query(
            description="The latest of each device, or group, once per period in ms, 20 to 3600000."
        ),
    ] = None
    max_rate: Annotated[
        str | None,
        Query(description="Events a second at most; the others wait, and none is left out."),
    ] = None
    per: Annotated[
        str | None,
        Query(description="For sample and conflate: the fields that tell what is the same thing."),
    ] = None
    slow: Annotated[
        str | None,
        Query(
            description=(
                "When you read too slowly: wait (default), conflate (the latest of each thing "
                "alone), skip (to the live end, with a gap), or end."
            )
        ),
    ] = None
    slow_after: Annotated[
        str | None,
        Query(description="Seconds that you are behind, and come no nearer, before that: 5 on."),
    ] = None
    limit: Annotated[
        str | None, Query(description="A page: events at most, 1 to 10000 (default 1000).")
    ] = None
    wait: Annotated[
        str | None,
        Query(description="A page: seconds to wait for its first event, 0 (default) to 60."),
    ] = None
    after: Annotated[str | None, Query(description="A page: the cursor of the one before.")] = None
    form: Annotated[
        str | None,
        Query(
            alias="format",
            description=(
                "A page: json, ndjson or csv, for who sets no `Accept`: a table with a row for "
                "each event, as spreadsheets read it."
            ),
        ),
    ] = None
    last_event_id: Annotated[str | None, Header(description="The cursor to go on from.")] = None
    cursor: Annotated[
        str | None,
        Query(
            alias="last_event_id",
            description="As the header Last-Event-ID, which wins. Also lastEventId, lastEventID.",
        ),
    ] = None
    foreign_cursor: Annotated[str | None, Query(alias="lastEventId", include_in_schema=False)] = (
        None
    )
    other_cursor: Annotated[str | None, Query(alias="lastEventID", include_in_schema=False)] = None
    lease: Annotated[
        str | None,
        Query(
            description=(
                "As the header Edgewake-Lease, `ID.TOKEN`: the push proxy wakes you no more while "
                "you read here."
            )
        ),
    ] = None
    lease_header: Annotated[
        str | None,
        Header(alias="Edgewake-Lease", description="Your lease at the push proxy, `ID.TOKEN`."),
    ] = None
    accept: Annotated[str, Header(include_in_schema=False)] = ""
    if_none_match: Annotated[
        str, Header(description="A page: the ETag of an answer that you have.")
    ] = ""


async def _words(**given: Any) -> Words:
    # FastAPI calls a class in another thread, and each stream that is opened would wait for one.
    return Words(**given)


_words.__signature__ = inspect.signature(Words)  # type: ignore[attr-defined]  # it reads these
WordsAsked = Annotated[Words, Depends(_words)]


class Asked(BaseModel):
    """The body of a POST: the parameters by their names, and devices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: Annotated[tuple[str, ...], Field(max_length=DEVICES_MAX)] | None = None
    """These alone, up to 10,000: one look-up for each event."""
    where: str | None = None
    select: str | None = None
    start: Annotated[str | int | None, Field(alias="from")] = None
    on_gap: str | None = None
    checkpoint: str | None = None
    heartbeat: str | int | None = None
    beat: str | None = None
    absent: str | None = None
    sample: str | float | None = None
    conflate: str | int | None = None
    max_rate: str | float | None = None
    per: str | None = None
    slow: str | None = None
    slow_after: str | int | None = None
    limit: str | int | None = None
    wait: str | float | None = None
    after: str | None = None
    form: Annotated[str | None, Field(alias="format")] = None

    def with_words(self, words: Words) -> Words:
        """The address's parameters and these. Raises RequestError for one that both have."""
        told = {name: getattr(self, name) for name in self.model_fields_set}
        given = {
            name: str(value)
            for name, value in told.items()
            if value is not None and name not in ("devices", "streams")
        }
        both = sorted(name for name in given if getattr(words, name) is not None)
        if both:
            name = {"start": "from", "form": "format"}.get(both[0], both[0])
            raise RequestError(
                "parameter", f"{name} is in the address and in the body: expected it once"
            )
        return replace(words, **given)


class AskedOfSeveral(Asked):
    """The parameters of a request for several streams."""

    streams: Annotated[
        tuple[str, ...], Field(min_length=1, max_length=STREAMS_PER_SUBSCRIPTION_MAX)
    ]
    """Streams and queries."""
