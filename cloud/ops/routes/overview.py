"""Routes that show the state of the whole system and its problems, and find things by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from edgewake.cloud import process_metrics
from edgewake.cloud.ops.routes.shared import PAGE_DEFAULT, Limit, Services
from edgewake.cloud.ops.services.problems import KnownProblem, alert_problems
from edgewake.cloud.ops.services.queries import QueryView
from edgewake.cloud.ops.services.system_look import Look
from edgewake.cloud.ops.tables.devices import DevicePresence
from edgewake.cloud.ops.tables.flow import Point, delay_s
from edgewake.cloud.ops.tables.part_table import PartView
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.web.openapi import problems
from edgewake.protocol.ops.problem import NOTE_CHARS_MAX, Kind, ProblemRecord
from edgewake.protocol.ops.query import QueryState


class Hop(BaseModel):
    """A stage of the pipeline, all its processes together."""

    name: Literal["devices", "bridge", "sequencer", "analysis", "access", "push"]
    per_s: float | None
    """Records a second, for the analysis readings; null where they are not counted."""
    behind: int | None
    """Its backlog: Kafka offsets that are not sequenced or computed yet, or records that the
    slowest client has not read."""
    delay_s: float | None
    """How long its backlog takes at the rate of the last seconds, s; null: not known."""
    count: int
    """Number of devices online, streams, running queries, clients and leases."""
    state: Literal["well", "soon", "bad", "unknown"]


class Overview(BaseModel):
    """The state of the system, and what needs attention."""

    problems: list[KnownProblem]
    """Problems; empty: there are none."""
    parts: list[PartView]
    devices: dict[DevicePresence, int]
    """Number of devices by presence."""
    streams: int
    records_per_s: float
    """Records a second of all streams over the last 30 s; a record is a frame of one or many
    readings."""
    readings_per_s: float
    """Readings a second of all streams over the same time."""
    queries: dict[str, int]
    """Number of queries by state."""
    leases: int
    dead_letters: dict[str, int]
    """Dead letters of the last hour by reason, among the newest hundred."""
    clients: int
    """Open streams at the access servers."""
    hops: list[Hop]
    """The stages of the pipeline, from devices to clients."""
    flow: list[Point]
    """The last quarter of an hour, oldest first: seconds ago, and received, sequenced and computed
    per second."""
    version: str
    """The version of this operations server."""
    faults: bool
    """Whether faults can be injected (`edgewake up --faults`)."""


class ProblemsPage(BaseModel):
    """A page of problems, newest first."""

    items: list[ProblemRecord]
    next: str | None
    """`before` of the next page; null at the end."""


class Acknowledgement(BaseModel):
    """An acknowledgement of a problem."""

    model_config = ConfigDict(extra="forbid")

    note: Annotated[str, Field(max_length=NOTE_CHARS_MAX)] = ""


FOUND_MAX: Final = 8
"""The most names of each kind in an answer, as many as fit under the field."""
FoundKind: TypeAlias = Literal["device", "stream", "query", "board", "alert"]


class Found(BaseModel):
    """A match of the search."""

    kind: FoundKind
    name: str
    title: str
    """The title of a board; empty for other kinds."""


class FoundAll(BaseModel):
    """Matches: names that begin with the text come first, then names that contain it."""

    items: list[Found]


def best(names: Iterable[str], part: str) -> list[str]:
    """Returns names that contain `part`, case-insensitive: first those that begin with it."""
    folded = part.casefold()
    ranked = ((name.casefold().find(folded), name) for name in names)
    keys = ((at > 0, name) for at, name in ranked if at >= 0)
    return [name for _, name in nsmallest(FOUND_MAX, keys)]


def router(services: Services) -> APIRouter:
    """Makes the routes about the overview and problems."""
    routes = APIRouter(tags=["overview"])
    tables = services.tables

    @routes.get("/v1/overview", responses=problems(503))
    async def overview() -> Overview:
        """Show the state of the system, and each problem in one sentence."""
        look = await services.system.look()
        of_alerts = alert_problems(tables.alerts.all(), tables.alerts.notes.values())
        return Overview(
            problems=[*of_alerts, *look.problems],
            parts=list(look.parts),
            devices={state: tables.devices.total(state) for state in DevicePresence},
            streams=len(tables.streams),
            records_per_s=round(sum(tables.rates.per_s(name) or 0.0 for name in tables.streams), 1),
            readings_per_s=round(
                sum(tables.rates.readings_per_s(name) or 0.0 for name in tables.streams), 1
            ),
            queries=dict(Counter(query.state for query in look.queries)),
            leases=len(tables.leases),
            dead_letters=dict(look.dead),
            clients=sum(one.total for one in tables.clients.servers.values()),
            hops=hops_of(tables, look),
            flow=tables.flow.points(services.clock.monotonic_s()),
            version=process_metrics.VERSION,
            faults=services.faults is not None,
        )

    @routes.get("/v1/problems", tags=["problems"])
    async def all_problems(
        is_open: Annotated[
            bool | None,
            Query(
                alias="open", description="Only problems that are open, or only those that ended."
            ),
        ] = None,
        kind: Kind | None = None,
        limit: Limit = PAGE_DEFAULT,
        before: Annotated[str | None, Query(max_length=64)] = None,
    ) -> ProblemsPage:
        """List problems of the last 90 days: when each began and ended, and who acknowledged it."""
        rows = sorted(
            (
                row
                for row in tables.problems.values()
                if (is_open is None or (row.ended_at is None) == is_open)
                and (kind is None or row.kind == kind)
            ),
            key=place_of,
            reverse=True,
        )
        first = tables.problems.get(before) if before is not None else None
        if first is not None:
            rows = [row for row in rows if place_of(row) < place_of(first)]
        following = rows[limit - 1].id if len(rows) > limit else None
        return ProblemsPage(items=rows[:limit], next=following)

    @routes.post(
        "/v1/problems/{problem}/acknowledge", tags=["problems"], responses=problems(404, 503)
    )
    async def acknowledge(
        problem: Annotated[str, Path(pattern=r"^[0-9]{1,20}-[0-9]{1,10}$")],
        body: Acknowledgement,
        request: Request,
    ) -> ProblemRecord:
        """Acknowledge a problem. It stays open until its cause is gone."""
        return await services.problems.acknowledge(
            problem, by=request.state.holder.name, note=body.note
        )

    routes.include_router(_search(services))
    return routes


def _search(services: Services) -> APIRouter:
    """Makes the route of the search."""
    routes = APIRouter()
    tables = services.tables

    def found(part: str) -> Iterator[Found]:
        kinds: dict[FoundKind, Iterable[str]] = {
            "device": tables.devices.names(),
            "stream": tables.streams,
            "query": tables.queries,
            "alert": tables.alerts.rules,
        }
        for kind, names in kinds.items():
            for name in best(names, part):
                yield Found(kind=kind, name=name, title="")
        of_boards = {f"{name} {board.title}": name for name, board in tables.boards.items()}
        for text in best(of_boards, part):
            name = of_boards[text]
            yield Found(kind="board", name=name, title=tables.boards[name].title)

    @routes.get("/v1/search")
    async def search(q: Annotated[str, Query(min_length=1, max_length=64)]) -> FoundAll:
        """Find devices, streams, queries, boards and alert rules by any part of their names."""
        return FoundAll(items=list(found(q)))

    return routes


def place_of(row: ProblemRecord) -> tuple[int, str]:
    """Returns the key by which the list is sorted."""
    return row.began_at, row.id


def hops_of(tables: OpsTables, look: Look) -> list[Hop]:
    """Returns the stages of the pipeline."""
    now = tables.flow.newest
    running = [one for one in look.queries if one.state is QueryState.RUNNING]
    known = [one.lag for one in running if one.lag is not None]
    clients = tables.clients
    online = tables.devices.total(DevicePresence.ONLINE)
    reads = [(one.behind_records, one.behind_s) for _, one in clients.all()]
    up = [(one.is_kind, one.state) for one in look.parts]
    return [
        Hop(
            name="devices",
            per_s=None,
            behind=None,
            delay_s=None,
            count=online,
            state=_state(bool(online)),
        ),
        Hop(
            name="bridge",
            per_s=None if now is None else now.received_per_s,
            behind=None,
            delay_s=None,
            count=_alive(up, "bridge"),
            state=_of_parts(up, "bridge"),
        ),
        Hop(
            name="sequencer",
            per_s=None if now is None else now.passed_on_per_s,
            behind=tables.unsequenced,
            delay_s=delay_s(tables.unsequenced, None if now is None else now.passed_on_per_s),
            count=_alive(up, "sequencer"),
            state=_of_parts(up, "sequencer"),
        ),
        Hop(
            name="analysis",
            per_s=None if now is None else now.computed_per_s,
            behind=max(known, default=None),
            delay_s=max(_delays(tables, running), default=None),
            count=len(running),
            state=_of_parts(up, "analysis"),
        ),
        Hop(
            name="access",
            per_s=None,
            behind=max((records for records, _ in reads), default=None),
            delay_s=max((seconds for _, seconds in reads), default=None),
            count=sum(one.total for one in clients.servers.values()),
            state=_state(bool(clients.servers)),
        ),
        Hop(
            name="push",
            per_s=None,
            behind=None,
            delay_s=None,
            count=len(tables.leases),
            state=_of_parts(up, "push"),
        ),
    ]


def _delays(tables: OpsTables, running: Iterable[QueryView]) -> Iterator[float]:
    """The delay of each query whose streams' pace is known."""
    for query in running:
        rates = [tables.rates.per_s(stream) or 0.0 for stream in query.streams]
        delay = delay_s(query.lag, sum(rates))
        if delay is not None:
            yield delay


def _alive(parts: Sequence[tuple[str, str]], name: str) -> int:
    return sum(kind.startswith(name) and state == "ready" for kind, state in parts)


def _of_parts(
    parts: Sequence[tuple[str, str]], name: str
) -> Literal["well", "soon", "bad", "unknown"]:
    states = {state for kind, state in parts if kind.startswith(name)}
    if not states:
        return "unknown"
    if states == {"ready"}:
        return "well"
    return "soon" if "ready" in states or "starting" in states else "bad"


def _state(is_there: bool) -> Literal["well", "unknown"]:
    return "well" if is_there else "unknown"
