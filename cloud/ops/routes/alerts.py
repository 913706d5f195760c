"""Routes about alerts: rules, what is raised, what people say of it, and destinations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgewake.cloud.alerts import quiet
from edgewake.cloud.alerts.destination import DestinationText
from edgewake.cloud.alerts.telling import unit_of
from edgewake.cloud.ops.routes.shared import (
    PAGE_DEFAULT,
    After,
    Limit,
    Page,
    Services,
    names_after,
    page_of,
)
from edgewake.cloud.ops.services import alert_trial
from edgewake.cloud.ops.services.alert_trial import Trial
from edgewake.cloud.ops.tables.alerts import order, order_of_place, place
from edgewake.cloud.web.http_part import Problem
from edgewake.cloud.web.openapi import problems
from edgewake.protocol import topics
from edgewake.protocol.names import STREAM_PATTERN
from edgewake.protocol.ops.alert import (
    KEY_CHARS_MAX,
    SECONDS_MAX,
    Alert,
    Destination,
    Note,
    NoteState,
    Rule,
    RuleText,
    State,
    Word,
)

NOTES_SHOWN: Final = 50
"""Notes of a rule, the newest."""
RAISED_MAX: Final = 500
"""Alerts in one answer, what fires first."""
PLACE_CHARS_MAX: Final = 512
"""Characters of a place in the list: a state, a time, and the names of a rule and a key."""
RuleName = Annotated[str, Path(pattern=f"^{STREAM_PATTERN.pattern}$")]
Version = Annotated[int | None, Query(ge=0, le=2**53)]


class RuleView(Rule):
    """A rule, and how many of its alerts are where."""

    unit: str
    """The unit of the reported value's field; empty: none is known."""
    quiet_until: int
    """When its quiet hours end, ms; 0: it is not quiet now."""
    alerts: dict[State, int]
    looks_at: str
    """stream …, query …, silence …, problems."""


class Told(BaseModel):
    """Where the newest note about an alert went."""

    destination: str
    state: NoteState


class RaisedAlert(Alert):
    """An alert with what its rule says of it."""

    severity: str
    field: str | None
    """The field of `value`; null: `value` is a text of its own."""
    unit: str
    quiet_until: int
    """When the quiet hours of its rule end, ms; 0: it is not quiet now."""
    notes: list[Told]


class AlertView(BaseModel):
    """A rule with its alerts and the notes that were sent."""

    rule: RuleView
    alerts: list[Alert]
    notes: list[Note]
    """The newest first."""


class RaisedAlerts(BaseModel):
    """Alerts of all rules, what fires first."""

    items: list[RaisedAlert]
    next: str | None
    """The `after` of the next page; null at the end."""
    total: int


class AlertWord(BaseModel):
    """What is said of alerts."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, StringConstraints(max_length=KEY_CHARS_MAX)] | None = None
    """The alert's; without it all of the rule."""
    why: Annotated[str, StringConstraints(max_length=300)] = ""


class SnoozeWord(AlertWord):
    """How long nothing is sent; 0: notes are sent again from now on."""

    seconds: Annotated[int, Field(ge=0, le=SECONDS_MAX)]


class DestinationView(BaseModel):
    """A destination, without its secrets."""

    name: str
    kind: str
    where: str
    changed_at: int
    changed_by: str
    waiting: int
    """How many notifications wait for it."""
    last_error: str
    """The error of the last attempt, while notifications wait."""


class MadeDestination(DestinationView):
    """A destination that was just stored."""

    secret: str | None
    """A webhook's new secret, which is not shown again."""


class TriedDestination(BaseModel):
    """The outcome of a test."""

    sent: bool
    error: str
    """The error; empty where the test was sent."""


def router(services: Services) -> APIRouter:
    """Rules and alerts."""
    routes = APIRouter(tags=["alerts"])
    table, desk, clock = services.tables.alerts, services.alerts, services.clock

    def view(rule: Rule) -> RuleView:
        of_rule = table.of_rule(rule.name)
        counts = {state: sum(one.state is state for one in of_rule) for state in State}
        unit = unit_of(rule, services.tables.streams, services.tables.progress)
        return RuleView(
            **rule.model_dump(),
            alerts=counts,
            looks_at=rule.basis,
            unit=unit,
            quiet_until=quiet.until(rule, clock.now_ms()),
        )

    @routes.get("/v1/alerts")
    async def alerts(limit: Limit = PAGE_DEFAULT, after: After = None) -> Page[RuleView]:
        """Alert rules by name, with how many alerts each has."""
        names = names_after(table.rules, after)
        return page_of(
            names, lambda name: view(table.rules[name]), limit=limit, total=len(table.rules)
        )

    @routes.get("/v1/raised")
    async def raised(
        limit: Annotated[int, Query(ge=1, le=RAISED_MAX)] = PAGE_DEFAULT,
        state: State | None = None,
        after: Annotated[str | None, Query(max_length=PLACE_CHARS_MAX)] = None,
    ) -> RaisedAlerts:
        """Alerts of all rules: what fires first, the newest before the older ones."""
        all_ = [one for one in table.all() if state is None or one.state is state]
        left = all_ if after is None else _behind(all_, after)
        told = _told(table.notes.values())
        return RaisedAlerts(
            items=[_raised(services, one, told) for one in left[:limit]],
            next=place(left[limit - 1]) if len(left) > limit else None,
            total=len(all_),
        )

    @routes.post("/v1/alerts:check")
    async def check(body: RuleText, hours: Annotated[float, Query(gt=0, le=168)] = 1.0) -> Trial:
        """Read a rule, keep nothing, and say when it would have fired in the last hours."""
        desk.check(body)
        now = clock.now_ms()
        rule = Rule(
            **body.model_dump(), name="trial", version=1, changed_at=now, changed_by="trial"
        )
        begin = now - round(hours * 3_600_000)
        if (nothing := alert_trial.unknown(rule, begin=begin, end=now)) is not None:
            return nothing
        topic = _topic_of(services, rule)
        messages, is_cut = await services.lookup.run(
            lambda session: alert_trial.read(session, topic, begin=begin)
        )
        return await services.lookup.run(
            lambda _: alert_trial.play(rule, messages, begin=begin, end=now, is_cut=is_cut)
        )

    @routes.get("/v1/alerts/{name}", responses=problems(404))
    async def alert(name: RuleName) -> AlertView:
        """One rule, its alerts with their histories, and the notes that were sent."""
        rule = desk.rule(name)
        notes = sorted(
            (note for note in table.notes.values() if note.rule == name),
            key=lambda one: (-one.made_at, one.id),
        )
        return AlertView(rule=view(rule), alerts=table.of_rule(name), notes=notes[:NOTES_SHOWN])

    @routes.put("/v1/alerts/{name}", responses=problems(409))
    async def put(
        name: RuleName, body: RuleText, request: Request, version: Version = None
    ) -> RuleView:
        """Keep a rule under this name. The same text again changes nothing.

        `version`: the one that you changed; 409 where another has come since.
        """
        rule, _ = await desk.put(name, body, version=version, by=request.state.holder.name)
        return view(rule)

    @routes.delete("/v1/alerts/{name}", status_code=204, responses=problems(404))
    async def remove(name: RuleName) -> None:
        """Remove a rule and its alerts."""
        await desk.remove(name)

    _add_words(routes, services)
    routes.include_router(_destinations(services))
    return routes


def _destinations(services: Services) -> APIRouter:
    """Makes the routes that store, list, test and remove destinations."""
    routes = APIRouter()
    table, desk = services.tables.alerts, services.alerts

    def view_destination(row: Destination) -> DestinationView:
        waiting = [
            note
            for note in table.notes.values()
            if note.destination == row.name and note.state == "waiting"
        ]
        errors = [note.error for note in sorted(waiting, key=lambda one: -one.next_at)]
        return DestinationView(
            **row.model_dump(exclude={"sealed"}),
            waiting=len(waiting),
            last_error=next((error for error in errors if error), ""),
        )

    @routes.get("/v1/destinations")
    async def destinations(
        limit: Limit = PAGE_DEFAULT, after: After = None
    ) -> Page[DestinationView]:
        """List the destinations of alerts by name; addresses are not shown."""
        known = table.destinations
        return page_of(
            names_after(known, after),
            lambda name: view_destination(known[name]),
            limit=limit,
            total=len(known),
        )

    @routes.put("/v1/destinations/{name}", responses=problems(409))
    async def put_destination(
        name: RuleName, body: DestinationText, request: Request, response: Response
    ) -> MadeDestination:
        """Store a webhook or an address of Apprise. It, its secret and headers are never shown."""
        by = request.state.holder.name
        row, secret = await desk.put_destination(name, body, by=by)
        response.headers["Cache-Control"] = "no-store"
        return MadeDestination(**view_destination(row).model_dump(), secret=secret)

    @routes.delete("/v1/destinations/{name}", status_code=204, responses=problems(404, 409))
    async def remove_destination(name: RuleName) -> None:
        """Remove a destination that no rule uses."""
        await desk.remove_destination(name)

    @routes.post("/v1/destinations/{name}/try", responses=problems(404))
    async def try_destination(name: RuleName, request: Request) -> TriedDestination:
        """Send a test now and return its outcome."""
        tried = await desk.try_destination(name, by=request.state.holder.name)
        return TriedDestination(sent=tried.error is None, error=tried.error or "")

    return routes


def _add_words(routes: APIRouter, services: Services) -> None:
    desk, clock = services.alerts, services.clock

    @routes.post("/v1/alerts/{name}/ack", status_code=204, responses=problems(404))
    async def acknowledge(name: RuleName, body: AlertWord, request: Request) -> None:
        """Acknowledge a firing alert: no reminders until it is over."""
        by = request.state.holder.name
        await desk.say(
            Word(
                id=desk.new_id(),
                rule=name,
                key=body.key,
                what="acknowledge",
                why=body.why,
                who=by,
                at=clock.now_ms(),
            )
        )

    @routes.post("/v1/alerts/{name}/snooze", status_code=204, responses=problems(404))
    async def snooze(name: RuleName, body: SnoozeWord, request: Request) -> None:
        """Send nothing about it for a while; what still fires then is sent then."""
        now = clock.now_ms()
        await desk.say(
            Word(
                id=desk.new_id(),
                rule=name,
                key=body.key,
                what="snooze",
                until=now + body.seconds * 1000 if body.seconds else 0,
                why=body.why,
                who=request.state.holder.name,
                at=now,
            )
        )


def _topic_of(services: Services, rule: Rule) -> str:
    tables = services.tables
    if rule.query is None:
        if rule.stream not in tables.streams:
            raise Problem(
                422,
                "rule",
                f"stream: unknown stream {rule.stream!r}; it exists after its first reading",
            )
        return topics.stream_topic(rule.stream or "")
    query = tables.queries.get(rule.query)
    if query is None:
        raise Problem(422, "rule", f"query: unknown query {rule.query!r}; register it first")
    return query.topic


def _behind(alerts: list[Alert], after: str) -> list[Alert]:
    """The alerts behind a place of an earlier answer. Raises Problem(422)."""
    try:
        begin = order_of_place(after)
    except ValueError as error:
        detail = "after: expected the `next` of an earlier answer"
        raise Problem(422, "place", detail) from error
    return [one for one in alerts if order(one) > begin]


_Told: TypeAlias = Mapping[tuple[str, str], Mapping[str, Told]]


def _told(notes: Iterable[Note]) -> _Told:
    """Rule and key → destination → where the newest note about it went."""
    found: defaultdict[tuple[str, str], dict[str, Told]] = defaultdict(dict)
    for note in sorted(notes, key=lambda one: one.made_at):
        for key in note.firing + note.resolved:
            told = Told(destination=note.destination, state=note.state)
            found[note.rule, key][note.destination] = told
    return found


def _raised(services: Services, alert: Alert, told: _Told) -> RaisedAlert:
    tables = services.tables
    rule = tables.alerts.rules.get(alert.rule)
    return RaisedAlert(
        **alert.model_dump(),
        severity="warning" if rule is None else rule.severity,
        field=None if rule is None else rule.value,
        unit="" if rule is None else unit_of(rule, tables.streams, tables.progress),
        quiet_until=0 if rule is None else quiet.until(rule, services.clock.now_ms()),
        notes=list(told.get((alert.rule, alert.key), {}).values()),
    )
