"""Alerts, as they stand on `ew.rules` and `ew.alerts`.

A *rule* says what is watched, when an alert is raised and over, and who is notified. An *alert*
is one rule for one key (a device, a group of a query, a problem), with a life: pending, firing,
acknowledged, resolved. A *note* is one message about alerts of one rule to one destination; its id
never changes, so who gets it twice can tell. A *word* is what a person said of alerts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from edgewake.protocol.names import FIELD_PATTERN, STREAM_PATTERN

BY_MAX: Final = 4
"""The most fields of a key: with more, nearly each reading would have an alert."""
SECONDS_MAX: Final = 30 * 86_400
"""The longest time in a rule: a month."""
TELL_MAX: Final = 10
"""The most destinations of a rule."""
HISTORY_MAX: Final = 50
"""The most entries of an alert's history; the newest are kept."""
WHY_CHARS_MAX: Final = 300
"""The longest entry, characters."""
KEY_CHARS_MAX: Final = 200
"""The longest key of an alert, characters."""

Name = Annotated[str, StringConstraints(pattern=f"^{STREAM_PATTERN.pattern}$")]
FieldName = Annotated[str, StringConstraints(pattern=f"^{FIELD_PATTERN.pattern}$")]
Expression = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Clock = Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
Seconds = Annotated[int, Field(ge=0, le=SECONDS_MAX)]


class Severity(StrEnum):
    """The severity of an alert."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Quiet(BaseModel):
    """A daily span in which notes wait; what is still so after it is sent then."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(min_length=1, max_length=40)]
    """For people, e.g. night."""
    begins: Clock
    """HH:MM of the zone's wall clock."""
    ends: Clock
    """HH:MM; earlier than `begins`: on the next day."""
    zone: Annotated[str, StringConstraints(max_length=64)] = "UTC"
    """A name of the IANA time zones, e.g. Europe/Berlin."""
    passes: Severity | None = Severity.CRITICAL
    """Rules of this severity or a higher one do not wait; null: all do."""

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if self.begins == self.ends:
            raise ValueError("quiet: expected two different times, e.g. 22:00 and 07:00")
        return self


ProblemKind = Literal["operations", "part", "query", "dead_letters", "lease", "device", "loss"]


class RuleText(BaseModel):
    """A rule as people write it.

    It looks at one of: the readings of `stream`, the rows of `query`, the silence of devices
    (`silent_s`, and `stream`: only those that send it), the system's own `problems`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[str, StringConstraints(max_length=300)] = ""
    """The problem, for people."""
    severity: Severity = Severity.WARNING
    stream: Name | None = None
    query: Name | None = None
    silent_s: Annotated[int, Field(ge=10, le=SECONDS_MAX)] | None = None
    """Raises an alert for a device that has been silent for this long, s."""
    problems: tuple[ProblemKind, ...] | None = None
    """Kinds of problems; empty: all."""
    when: Expression | None = None
    """Over readings and rows: the condition, as in `where=`. Over silence: which devices, by the
    field `device`."""
    until: Expression | None = None
    """The condition under which it is over; without one it is over as soon as `when` is false."""
    by: Annotated[tuple[FieldName, ...], Field(max_length=BY_MAX)] = ("device",)
    """Fields of which each combination has an alert of its own; empty: one for all."""
    value: FieldName | None = None
    """The field that is reported as the value."""
    for_s: Seconds = 0
    """How long the condition must hold until an alert fires."""
    over_for_s: Seconds = 0
    """How long it must be over until the alert is."""
    stale_s: Seconds = 0
    """The time without a reading for its key after which an alert is over, s; 0: never."""
    tell: Annotated[tuple[Name, ...], Field(max_length=TELL_MAX)] = ()
    """Destinations."""
    group_s: Annotated[int, Field(ge=0, le=3600)] = 10
    """The time within which alerts that begin or end are put into one message, s."""
    again_s: Seconds = 0
    """The time after which a firing alert that nobody has acknowledged is sent again, s; 0:
    never."""
    quiet: Quiet | None = None
    """When its notes wait."""

    @model_validator(mode="after")
    def _looks_at_one_thing(self) -> Self:
        is_silence, is_problems = self.silent_s is not None, self.problems is not None
        seen = [self.query is not None, is_silence, is_problems]
        seen.append(self.stream is not None and not is_silence)
        if sum(seen) != 1:
            raise ValueError(
                "expected one of: stream with when, query with when, silent_s (with or without "
                "stream), problems"
            )
        if not (is_silence or is_problems) and self.when is None:
            raise ValueError("when: expected a condition, e.g. temperature > 30")
        if is_problems and (self.when or self.until):
            raise ValueError("when: a rule over problems has no condition of its own")
        if is_silence and self.until:
            raise ValueError("until: a silence is over with the first reading")
        return self

    @property
    def basis(self) -> str:
        """What its alerts are about: of another one they say nothing."""
        if self.problems is not None:
            return "problems"
        if self.silent_s is not None:
            return f"silence of {self.stream or 'devices'}"
        where = f"stream {self.stream}" if self.query is None else f"query {self.query}"
        return f"{where} by {', '.join(self.by) or 'nothing'}"


class Rule(RuleText):
    """A rule that is kept (key on `ew.rules`: `rule|name`)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Name
    version: int
    changed_at: int
    """ms since 1970 UTC."""
    changed_by: str


class Destination(BaseModel):
    """A destination of notes (key on `ew.rules`: `destination|name`)."""

    model_config = ConfigDict(frozen=True)

    name: Name
    kind: str
    """webhook, or the scheme that Apprise knows it by: mailtos, ntfys, slack …"""
    where: str
    """For people: the host, and nothing that is secret."""
    sealed: str
    """Address and secret, encrypted."""
    changed_at: int
    changed_by: str


class State(StrEnum):
    """The state of an alert."""

    PENDING = "pending"
    """The condition holds, but not long enough yet."""
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    """Somebody has taken it: it is not sent again until it is over."""
    RESOLVED = "resolved"


class Entry(BaseModel):
    """An event in an alert's history."""

    model_config = ConfigDict(frozen=True)

    at: int
    what: str
    """pending, firing, acknowledged, snoozed, resolved, told, flapping."""
    why: str = ""
    who: str = ""
    """The holder of a key; empty: the rule."""
    value: str = ""


class Alert(BaseModel):
    """An alert (key on `ew.alerts`: `alert|rule|key`)."""

    model_config = ConfigDict(frozen=True)

    rule: str
    key: str
    """The values of the fields of `by`, with commas."""
    basis: str
    state: State
    since: int
    """When its state last changed, ms."""
    began: int
    """When the condition began to hold."""
    over_since: int | None = None
    """Since when it is over, while `over_for_s` waits."""
    last_at: int
    """When its key last had a reading, ms."""
    place: int = 0
    """`window_start` of the newest row of a query that was judged."""
    value: str = ""
    by: str = ""
    """The name of the person who acknowledged it."""
    snoozed_until: int = 0
    flips: tuple[int, ...] = ()
    """When it began to fire or was over, lately."""
    flapping: bool = False
    told: Literal["", "firing", "resolved"] = ""
    """What its destinations know of it."""
    told_at: int = 0
    history: tuple[Entry, ...] = ()

    @property
    def id(self) -> str:
        """Its key on the topic."""
        return f"alert|{self.rule}|{self.key}"

    @property
    def loud(self) -> Literal["", "firing", "resolved"]:
        """What its destinations ought to know of it."""
        if self.state in (State.FIRING, State.ACKNOWLEDGED):
            return "firing"
        return "resolved" if self.state is State.RESOLVED and self.told else self.told


class NoteState(StrEnum):
    """The state of a note."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"


class Note(BaseModel):
    """A message to one destination (key on `ew.alerts`: `note|id`)."""

    model_config = ConfigDict(frozen=True)

    id: str
    rule: str
    destination: str
    title: str
    body: str
    severity: Severity
    firing: tuple[str, ...] = ()
    """Keys that fire, the first of them."""
    resolved: tuple[str, ...] = ()
    more: int = 0
    """Keys that are not named."""
    field: str = ""
    """The field of the values; empty: each is a text of its own."""
    unit: str = ""
    """The unit of the values; empty: none is known."""
    values: dict[str, str] = {}
    """Key → value, of the keys that are named and have one."""
    made_at: int
    state: NoteState = NoteState.WAITING
    attempts: int = 0
    next_at: int = 0
    """Not tried before, ms."""
    done_at: int = 0
    error: str = ""
    """Why the last attempt failed."""


class Word(BaseModel):
    """What a person said of alerts of a rule (key on `ew.rules`: `word|id`)."""

    model_config = ConfigDict(frozen=True)

    id: str
    rule: str
    key: str | None
    """None: all of the rule."""
    what: Literal["acknowledge", "snooze"]
    until: int = 0
    """When a snooze ends, ms; 0: no longer."""
    why: str = ""
    who: str
    at: int


class Place(BaseModel):
    """How far a topic is judged (key on `ew.alerts`: `place|topic`)."""

    model_config = ConfigDict(frozen=True)

    topic: str
    offsets: dict[int, int]
