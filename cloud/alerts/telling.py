"""Decides which notes to make of alerts, and when each is tried. Pure.

Beginnings and ends are sent by *difference*: an alert whose state differs from what its
destinations know is due. So snoozing, quiet hours and flapping only delay, and whatever happened
meanwhile, the final state is sent, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from edgewake.cloud.alerts import quiet
from edgewake.cloud.alerts.life import loud, noted, wants, wants_again
from edgewake.protocol.clock import moment
from edgewake.protocol.frames.stream import Stream, unit_in
from edgewake.protocol.ops.alert import Alert, Entry, Note, NoteState, Rule
from edgewake.protocol.ops.query import Progress, units_of

NAMED_MAX: Final = 20
"""Alerts that a note names; of more it says how many."""
RETRY_MS: Final = (5_000, 15_000, 60_000, 300_000, 900_000)
"""Between attempts; the last one again and again."""
GIVE_UP_MS: Final = 86_400_000
"""After so long a destination is not tried any more."""
ATTEMPT_MS: Final = 60_000
"""An attempt that is under way is not begun again before, whoever judges then."""
AT_ONCE_MAX: Final = 8
"""Attempts at the same time, and …"""
AT_ONCE_EACH_MAX: Final = 2
"""… of them to one destination, so that one that hangs keeps no other waiting, and …"""
AT_ONCE_FAILING_MAX: Final = 4
"""… of them to all destinations together whose last attempt failed, however many are dead."""
WAITING_EACH_MAX: Final = 200
"""Notes that wait for one destination; the oldest is given up for one more."""
DONE_KEPT_MS: Final = 86_400_000
"""How long a note that is done can be looked at."""
DONE_MAX: Final = 2000
"""Notes that are done and kept."""


def news(alerts: Iterable[Alert], rule: Rule, now: int, wall: int | None = None) -> Sequence[Alert]:
    """The alerts of a rule that are due now; none before its group is complete, or when quiet.

    `wall` is the present, in which people sleep, where `now` is a moment that is caught up with.
    """
    if quiet.until(rule, now if wall is None else wall):
        return []
    alerts = list(alerts)
    fresh = [alert for alert in alerts if wants(alert, now)]
    again = [alert for alert in alerts if wants_again(alert, now, rule)]
    if not fresh:
        return again
    first = min(max(alert.since, alert.snoozed_until) for alert in fresh)
    return fresh + again if now - first >= rule.group_s * 1000 else again


def told(alert: Alert, now: int) -> Alert:
    """The alert after it was sent."""
    what = loud(alert)
    entry = Entry(at=now, what="told", why=what)
    return noted(alert.model_copy(update={"told": what, "told_at": now}), entry)


def unit_of(rule: Rule, streams: Mapping[str, Stream], progress: Mapping[str, Progress]) -> str:
    """The unit of the field that a rule reports; empty where none is known.

    `progress`: of queries, by name, with the fields whose values their columns have.
    """
    said = progress.get(rule.query or "")
    if said is None:
        return unit_in(streams, rule.stream or "", rule.value or "")
    return units_of(said.measures, partial(unit_in, streams)).get(rule.value or "", "")


def notes_of(
    alerts: Sequence[Alert], rule: Rule, now: int, new_id: Callable[[], str], unit: str = ""
) -> Iterator[Note]:
    """The notes about a change, one for each destination. `unit`: of the values."""
    firing = [alert for alert in alerts if loud(alert) == "firing"]
    over = [alert for alert in alerts if loud(alert) != "firing"]
    named = (firing + over)[:NAMED_MAX]
    left = len(alerts) - len(named)
    lines = [_line(alert, rule.value, unit) for alert in named]
    lines += [f"… and {left} more"] if left else []
    counts = [f"{len(firing)} firing"] if firing else []
    counts += [f"{len(over)} over"] if over else []
    title = f"{rule.name}: {', '.join(counts)}"
    text = [rule.text] if rule.text else []
    for destination in rule.tell:
        yield Note(
            id=new_id(),
            rule=rule.name,
            destination=destination,
            title=title,
            body="\n".join(text + lines),
            severity=rule.severity,
            firing=tuple(alert.key for alert in named if loud(alert) == "firing"),
            resolved=tuple(alert.key for alert in named if loud(alert) != "firing"),
            more=left,
            field=rule.value or "",
            unit=unit,
            values={alert.key: alert.value for alert in named if alert.value},
            made_at=now,
        )


def _line(alert: Alert, field: str | None, unit: str) -> str:
    at = moment(alert.since)
    value = f" {alert.value}" if alert.value else ""
    if value and field:
        value = f" {field}{value}" + (f" {unit}" if unit else "")
    if alert.flapping:
        return f"{alert.key}:{value} flaps: it begins and ends again and again"
    state = "firing" if loud(alert) == "firing" else "over"
    return f"{alert.key}:{value} {state} since {at}"


def due(notes: Iterable[Note], under_way: Mapping[str, str], now: int) -> Iterator[Note]:
    """What is to be tried now; `under_way`: id → destination of attempts that have not ended."""
    each: dict[str, int] = {}
    for destination in under_way.values():
        each[destination] = each.get(destination, 0) + 1
    room = AT_ONCE_MAX - len(under_way)
    notes = sorted(notes, key=lambda one: (one.next_at, one.made_at))
    waiting = [note for note in notes if note.state is NoteState.WAITING]
    failing = _failing(notes)
    again = sum(destination in failing for destination in under_way.values())
    for note in waiting:
        if note.next_at > now or note.id in under_way:
            continue
        if room <= 0 or each.get(note.destination, 0) >= AT_ONCE_EACH_MAX:
            continue
        if note.destination in failing:
            if again >= AT_ONCE_FAILING_MAX:
                continue
            again += 1
        room -= 1
        each[note.destination] = each.get(note.destination, 0) + 1
        yield note


def _failing(notes: Sequence[Note]) -> set[str]:
    """Destinations of which a note that waits has failed, or the last one that is done."""
    done = [note for note in notes if note.state is not NoteState.WAITING]
    # Two may be done in one millisecond: then their ids decide, and not who sorted the notes.
    done.sort(key=lambda one: (one.done_at, one.id))
    last = {note.destination: note for note in done}
    waiting = [note for note in notes if note.state is NoteState.WAITING]
    return {note.destination for note in (*waiting, *last.values()) if note.error}


def begun(note: Note, now: int) -> Note:
    """A note as an attempt begins."""
    update = {"attempts": note.attempts + 1, "next_at": now + ATTEMPT_MS}
    return note.model_copy(update=update)


def tried(note: Note, now: int, error: str | None, *, is_final: bool = False) -> Note:
    """A note after an attempt; `error` None: the destination has it."""
    if error is None:
        update = {"state": NoteState.SENT, "done_at": now, "error": ""}
        return note.model_copy(update=update)
    if is_final or now - note.made_at >= GIVE_UP_MS:
        update = {"state": NoteState.GIVEN_UP, "done_at": now, "error": error}
        return note.model_copy(update=update)
    wait = RETRY_MS[min(note.attempts, len(RETRY_MS)) - 1]
    return note.model_copy(update={"next_at": now + wait, "error": error})


def forgotten(notes: Iterable[Note], now: int) -> Iterator[str]:
    """Ids of notes that are done and old, or too many."""
    done = sorted(
        (note for note in notes if note.state is not NoteState.WAITING), key=lambda one: one.done_at
    )
    for place, note in enumerate(done):
        if now - note.done_at > DONE_KEPT_MS or place < len(done) - DONE_MAX:
            yield note.id
