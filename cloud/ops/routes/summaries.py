"""Routes about summaries: exact figures of a field's values, and estimates with bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeVar

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from edgewake.cloud.ops.lookups.summary_reads import SummaryReads
from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    AskedStream,
    Limit,
    QueryName,
    Services,
    reader_of,
    some_devices,
    stream_of,
)
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.summaries import answers, gather, plain_minutes
from edgewake.cloud.summaries.answers import Estimate, Operation
from edgewake.cloud.summaries.asking import TO_COMPARE, Asked, Row, Span, answered
from edgewake.cloud.summaries.store import TooMuch, View
from edgewake.cloud.summaries.summary import HOUR_MS, Series, Step
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.frame import TIME_MS_MAX
from edgewake.protocol.names import FIELD_PATTERN

ROWS_MAX: Final = 11_000
"""The most steps in one answer: somewhat more than a week of minutes."""
ROWS_WITH_SKETCHES_MAX: Final = 1000
"""The most steps in an answer with sketches: each row costs merging and evaluating them."""
SERIES_AT_ONCE: Final = 1000
"""Series that are looked through at once for those that somebody may see."""
ASKED_MAX: Final = 20
"""The most ranks or texts in one question."""
TEXT_CHARS_MAX: Final = 256
FAR: Final = 1e308
"""A number beyond every reading, for a range that is open on one side."""

OF_A_FIELD: Final = Asked(distinct=True, ranks=(0.5, 0.99))
"""What the summary of a stream asks of each field."""

T = TypeVar("T")


class SeriesView(BaseModel):
    """A summarized series."""

    stream: str
    field: str
    devices: str
    """A declared set of devices, or `@DEVICE`; empty: all devices."""


class SummaryView(BaseModel):
    """The answer to a question about a series."""

    stream: str
    field: str
    devices: str
    step: str
    """minute, hour, day, or all: one row for the whole time."""
    rows: list[Row]
    """Rows by time; steps without readings are omitted."""


class StreamSummary(BaseModel):
    """Summaries of all fields of a stream, over all devices."""

    start: int
    """ms since 1970 UTC."""
    end: int
    fields: dict[str, Row]
    """By field: exact figures, distinct values, the median and the 99th percentile. A field without
    summaries is omitted."""


class Comparison(BaseModel):
    """A comparison of two series, or two times of one. Null where either lacks the sketch."""

    union: Estimate | None
    """Distinct values in either."""
    intersection: Estimate | None
    """Distinct values in both."""
    difference: Estimate | None
    """Distinct values in the first that the second lacks."""
    inner_product: Estimate | None
    """Sum over values of the product of their counts: the number of rows of a join on the value."""


FieldName = Annotated[str, Path(pattern=f"^{FIELD_PATTERN.pattern}$", max_length=64)]
OtherField = Annotated[str | None, Query(pattern=f"^{FIELD_PATTERN.pattern}$", max_length=64)]
Time = Annotated[int, Query(ge=0, le=TIME_MS_MAX, description="ms since 1970 UTC")]
MaybeTime = Annotated[int | None, Query(ge=0, le=TIME_MS_MAX, description="ms since 1970 UTC")]
Devices = Annotated[
    str,
    Query(
        max_length=65,
        description="A declared set of devices, or `@DEVICE` for its sketches; empty: all devices.",
    ),
]
Text = Annotated[str, Query(max_length=TEXT_CHARS_MAX)]
Texts = Annotated[list[Text] | None, Query(max_length=ASKED_MAX)]
Rank = Annotated[float, Query(ge=0, le=1)]


class _Ask:
    """Answers a question about the summaries as they are now."""

    def __init__(self, reads: SummaryReads) -> None:
        self._reads = reads

    async def __call__(self, question: Callable[[View], T]) -> T:
        try:
            return await self._reads.run(question)
        except TooMuch as error:
            raise Problem(422, "too_much", str(error)) from error


def router(services: Services) -> APIRouter:
    """Makes the routes about summaries."""
    routes, ask = APIRouter(tags=["summaries"]), _Ask(services.summaries)
    _add_stream_summary(routes, services, ask)
    _add_series(routes, ask)
    _add_summary(routes, services.clock, ask)
    _add_comparison(routes, ask)
    return routes


def _add_stream_summary(routes: APIRouter, services: Services, ask: _Ask) -> None:
    @routes.get("/v1/streams/{name}/summary", responses=problems(404), tags=["streams"])
    async def stream_summary(
        name: QueryName, request: Request, minutes: Annotated[int, Query(ge=1, le=60)] = 15
    ) -> StreamSummary:
        """Summarize each field of a stream over the last whole minutes."""
        all_of = _fields_of(services, name, reader_of(request))
        end = services.clock.now_ms()
        span = Span.of(end - minutes * 60_000, end, None)
        return await ask(lambda view: _of_stream(view, all_of, span))


def _add_series(routes: APIRouter, ask: _Ask) -> None:
    @routes.get("/v1/summaries")
    async def series(
        request: Request,
        limit: Limit = PAGE_DEFAULT,
        stream: AskedStream = None,
        after: Annotated[str, Query(max_length=200)] = "",
    ) -> list[SeriesView]:
        """List the summarized series, by stream, field and set of devices.

        `after` is the last one shown, as STREAM|FIELD|DEVICES.
        """
        reader = reader_of(request)
        found = await ask(lambda view: _seen(view, reader, stream, after, limit))
        return [
            SeriesView(stream=one.stream, field=one.field, devices=one.devices) for one in found
        ]


def _add_summary(routes: APIRouter, clock: Clock, ask: _Ask) -> None:
    @routes.get(
        "/v1/summaries/{stream}/{field}", responses=problems(404), response_model=SummaryView
    )
    async def summary(
        request: Request,
        stream: QueryName,
        field: FieldName,
        since: Annotated[
            int | None,
            Query(
                alias="from",
                ge=0,
                le=TIME_MS_MAX,
                description="ms since 1970 UTC; an hour before `to`",
            ),
        ] = None,
        to: Annotated[
            int | None, Query(ge=0, le=TIME_MS_MAX, description="ms since 1970 UTC; now")
        ] = None,
        step: Annotated[
            Step | None,
            Query(description="A row for each step; without it one row for the whole time."),
        ] = None,
        devices: Devices = "",
        distinct: bool = False,
        quantile: Annotated[list[Rank] | None, Query(max_length=ASKED_MAX)] = None,
        low: float | None = None,
        high: float | None = None,
        frequent: Annotated[int, Query(ge=0, le=100)] = 0,
        count_of: Texts = None,
        contains: Texts = None,
        sample: Annotated[int, Query(ge=0, le=64)] = 0,
    ) -> SummaryView | Response:
        """Summarize a field over whole minutes: exact figures, and estimates with their bounds.

        `distinct`: distinct values; `quantile`: the value at a rank; `low` and `high`: readings
        between them; `frequent`: the most frequent values; `count_of`: how often a value occurred;
        `contains`: whether it did; `sample`: some readings.
        """
        end = clock.now_ms() if to is None else to
        span = Span.of(max(0, end - HOUR_MS) if since is None else since, end, step)
        asked = Asked(
            distinct=distinct,
            ranks=tuple(quantile or ()),
            between=_between(low, high),
            frequent=frequent,
            counted=tuple(count_of or ()),
            contained=tuple(contains or ()),
            sample=sample,
        )
        _check_size(span, step, asked)
        one, reader = Series(stream, field, devices), reader_of(request)
        _check_total(one, reader)

        return await ask(lambda view: _answer(view, one, step, span, asked, reader))


def _add_comparison(routes: APIRouter, ask: _Ask) -> None:
    @routes.get("/v1/summaries/{stream}/{field}/compare", responses=problems(404))
    async def compare(
        request: Request,
        stream: QueryName,
        field: FieldName,
        since: Annotated[
            int, Query(alias="from", ge=0, le=TIME_MS_MAX, description="ms since 1970 UTC")
        ],
        to: Time,
        devices: Devices = "",
        with_stream: AskedStream = None,
        with_field: OtherField = None,
        with_from: MaybeTime = None,
        with_to: MaybeTime = None,
        with_devices: Devices = "",
    ) -> Comparison:
        """Compare the values of two series, or of two times of one.

        Parameters omitted for the second are those of the first.
        """
        first = Series(stream, field, devices)
        second = Series(with_stream or stream, with_field or field, with_devices)
        reader = reader_of(request)
        _check_total(first, reader)
        _check_total(second, reader)
        spans = (
            Span.of(since, to, None),
            Span.of(
                since if with_from is None else with_from, to if with_to is None else with_to, None
            ),
        )

        return await ask(lambda view: _compared(view, (first, second), spans, reader))


def _between(low: float | None, high: float | None) -> tuple[float, float] | None:
    """The range that is asked about; a bound that is left out is beyond every value."""
    if low is None and high is None:
        return None
    return (-FAR if low is None else low, FAR if high is None else high)


def _compared(
    view: View,
    sides: tuple[Series, Series],
    spans: tuple[Span, Span],
    reader: Principal | None,
) -> Comparison:
    for side in sides:
        _check_known(view, side, reader)
    one, two = (
        gather.over(view, side, span.start_ms, span.end_ms, TO_COMPARE)
        for side, span in zip(sides, spans, strict=True)
    )
    return Comparison(
        union=answers.set_operation(Operation.UNION, one, two),
        intersection=answers.set_operation(Operation.INTERSECTION, one, two),
        difference=answers.set_operation(Operation.DIFFERENCE, one, two),
        inner_product=answers.inner_product(one, two),
    )


def _fields_of(services: Services, name: str, reader: Principal | None) -> list[Series]:
    """A stream's fields, of all devices, as far as they may be seen. Raises Problem."""
    found = stream_of(services, name, reader, Action.ASK)
    all_of = [Series(name, field, "") for field in found.fields]
    seen = [one for one in all_of if _is_seen(one, reader)]
    if reader is not None and not seen and any(_is_total_of_others(o, reader) for o in all_of):
        raise some_devices(name, f"/v1/summaries/{name}/FIELD?devices=@DEVICE")
    return seen


def _answer(
    view: View,
    one: Series,
    step: Step | None,
    span: Span,
    asked: Asked,
    reader: Principal | None,
) -> SummaryView | Response:
    _check_known(view, one, reader)
    about = {
        "stream": one.stream,
        "field": one.field,
        "devices": one.devices,
        "step": step or "all",
    }
    if (
        step is Step.MINUTE
        and not asked.kinds
        and (plain := plain_minutes.rows(view, one, span.start_ms, span.end_ms)) is not None
    ):
        return Response(orjson.dumps({**about, "rows": plain}), media_type="application/json")
    if step is None:
        rows = [
            answered(
                span.start_ms,
                span.end_ms,
                gather.over(view, one, span.start_ms, span.end_ms, asked.kinds),
                asked,
            )
        ]
    else:
        steps = gather.by_step(view, one, step, span.start_ms, span.end_ms, asked.kinds)
        rows = [answered(start, start + step.ms, found, asked) for start, found in steps.items()]
    return SummaryView(**about, rows=rows)


def _of_stream(view: View, all_of: list[Series], span: Span) -> StreamSummary:
    start, end = span.start_ms, span.end_ms
    gathered = {
        one.field: gather.over(view, one, start, end, OF_A_FIELD.kinds)
        for one in all_of
        if one in view
    }
    fields = {
        field: answered(start, end, summary, OF_A_FIELD)
        for field, summary in gathered.items()
        if summary.readings
    }
    return StreamSummary(start=start, end=end, fields=fields)


def _seen(
    view: View, reader: Principal | None, stream: str | None, after: str, limit: int
) -> list[Series]:
    """The next series that may be seen."""
    if reader is None:
        return view.known(stream=stream, after=after, limit=limit)
    found: list[Series] = []
    while len(found) < limit:
        page = view.known(stream=stream, after=after, limit=SERIES_AT_ONCE)
        found += [one for one in page if _is_seen(one, reader)]
        if len(page) < SERIES_AT_ONCE:
            break
        after = f"{page[-1].stream}|{page[-1].field}|{page[-1].devices}"
    return found[:limit]


def _is_seen(one: Series, reader: Principal | None) -> bool:
    """Is it seen: a series of one device by that device, any other one by all devices?"""
    if reader is None:
        return True
    scope = reader.scope(Action.ASK, one.stream)
    device = one.devices[1:] if one.devices.startswith("@") else None
    return scope is None or scope.sees_value(device, one.field)


def _is_total_of_others(one: Series, reader: Principal) -> bool:
    """Is it of more devices than may be seen of a field that may be?"""
    scope = reader.scope(Action.ASK, one.stream)
    if scope is None or one.devices.startswith("@") or scope.sees_value(None, one.field):
        return False
    return scope.shows_field(one.field)


def _check_total(one: Series, reader: Principal | None) -> None:
    """Raises Problem where who may see some devices asks of all. It does not tell what there is."""
    if reader is not None and _is_total_of_others(one, reader):
        raise some_devices(one.stream, "?devices=@DEVICE")


def _check_known(view: View, one: Series, reader: Principal | None) -> None:
    """Raises Problem; what is hidden is looked for like what is not there."""
    if one not in view or not _is_seen(one, reader):
        of = f" of the devices {one.devices!r}" if one.devices else ""
        raise Problem(
            404, "no_such_summary", f"no summaries of {one.stream}.{one.field}{of} exist yet"
        )


def _check_size(span: Span, step: Step | None, asked: Asked) -> None:
    most = ROWS_WITH_SKETCHES_MAX if asked.kinds else ROWS_MAX
    if span.steps(step) > most:
        raise Problem(
            422,
            "too_much",
            f"{span.steps(step)} rows: expected at most {most}; take a longer step or less time",
        )
