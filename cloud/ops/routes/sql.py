"""The route that answers SQL over the lake and over what Kafka has after it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from edgewake.cloud.lake.question import Question, is_question
from edgewake.cloud.ops.login.keys import Holder
from edgewake.cloud.ops.routes.shared import Services, reader_of
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.errors import LocalError, QueryError, QueryFault

LOOK_EVERY_S: Final = 0.5
"""Seconds between two checks whether the client is still connected."""


class SqlColumn(BaseModel):
    """A column of the answer."""

    name: str
    type: str
    """DuckDB's."""
    unit: str
    """The unit of the field whose values it has; empty for what is counted or computed."""


class SqlPast(BaseModel):
    """The part of the data that was read from the lake."""

    files: int
    rows: int | None
    """Null for who may see only some of them."""
    lost_records: int | None
    """How many records Kafka deleted before the lake had them, since the beginning; null as
    above."""


class SqlPresent(BaseModel):
    """The part of the data that was read from Kafka."""

    rows: int | None
    """As of the past."""
    records_left: int
    """How many records the answer lacks because a bound was reached: the lake's writer is behind,
    or does not run."""


class SqlAnswer(BaseModel):
    """The rows, and the data that they were computed from."""

    columns: list[SqlColumn]
    rows: list[list[Any]] | list[dict[str, Any]]
    is_cut: bool
    """Whether more rows were omitted."""
    past: SqlPast
    present: SqlPresent
    seconds: float


def router(services: Services) -> APIRouter:
    """Makes the route for SQL."""
    routes = APIRouter(tags=["sql"])

    @routes.post("/v1/sql", responses=problems(501, 503), response_model=SqlAnswer)
    async def sql(body: Question, request: Request) -> Response:
        """Answer one SELECT in DuckDB's SQL over streams, queries and summaries.

        The answer covers past and present, each row once. 422 says line and column of an error.
        Who has grants is shown the streams, devices and fields that they name; all others are as
        if they were not there.
        """
        request.state.audit = body.sql

        async def has_left() -> bool:
            return bool(await request.state.ended_meanwhile()) or await request.is_disconnected()

        if not is_question(body.sql):
            raise _refused(QueryFault("expected one SELECT", 1, 1))
        try:
            holder = request.state.holder.name
            question = body.model_dump(exclude={"objects"})
            question["seconds"] = seconds_of(body, request.state.holder)
            answer = await while_wanted(
                services.asking.ask(
                    question,
                    services.tables.passed,
                    units=services.tables.units,
                    holder=holder,
                    reader=reader_of(request),
                ),
                has_left,
            )
            answer = as_objects(answer) if body.objects and answer else answer
            return Response(answer, media_type="application/json")
        except QueryError as error:
            raise _refused(error.faults[0]) from error
        except LocalError as error:
            raise Problem(501, "no_sql", str(error)) from error

    return routes


def seconds_of(asked: Question, holder: Holder) -> float:
    """How long a question may take. Raises QueryError where its holder's role allows less."""
    most = None if holder.principal is None else holder.principal.limits.sql_s_max
    if most is None or asked.seconds <= most:
        return asked.seconds
    if "seconds" not in asked.model_fields_set:
        return float(most)
    raise QueryError(
        f"sql_s_max: your role allows {most:g} seconds of a question, not {asked.seconds:g}"
    )


async def while_wanted(
    work: Coroutine[Any, Any, bytes], has_left: Callable[[], Awaitable[bool]]
) -> bytes:
    """Runs `work` while its client stays connected and may ask; otherwise cancels it.

    It answers nothing then.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_EVERY_S)
            if not task.done() and await has_left():
                return b""
        return task.result()
    finally:
        task.cancel()


def as_objects(answer: bytes) -> bytes:
    """Returns the answer with its rows as objects by column name."""
    body = orjson.loads(answer)
    seen = Counter[str]()
    for column in body["columns"]:
        name = column["name"]
        seen[name] += 1
        column["name"] = name if seen[name] == 1 else f"{name}_{seen[name]}"
    names = [column["name"] for column in body["columns"]]
    body["rows"] = [dict(zip(names, row, strict=True)) for row in body["rows"]]
    return orjson.dumps(body)


def _refused(fault: QueryFault) -> Problem:
    where = {"line": fault.line, "column": fault.column}
    return Problem(422, "sql", str(fault), errors=[{"detail": fault.detail, **where}])
