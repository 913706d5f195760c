"""The life of one alert: pending, firing, acknowledged, resolved. Pure; times are ms since 1970.

The passing of time is a step of its own, and is taken before each look: so a judge that catches up
after an hour finds the same lives as one that was there.

An alert that begins and ends FLAPS_MAX times within FLAP_WINDOW_MS *flaps*. While it does it counts
as firing, so that its destinations are notified once, and not of each turn; it is calm again after
FLAP_WINDOW_MS with at most one turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edgewake.protocol.ops.alert import HISTORY_MAX, WHY_CHARS_MAX, Alert, Entry, Rule, State, Word

FLAPS_MAX: Final = 6
"""Turns within FLAP_WINDOW_MS: three times on and off."""
FLAP_WINDOW_MS: Final = 600_000
KEPT_MS: Final = 7 * 86_400_000
"""How long an alert that is over can be looked at."""
HEARD_MS: Final = 10_000
"""How often an alert's row is written for nothing but a new value."""
ACTIVE: Final = frozenset({State.FIRING, State.ACKNOWLEDGED})


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a key."""

    key: str
    at: int
    holds: bool | None
    """True: the condition holds; False: it is over; None: neither."""
    value: str = ""
    why: str = ""
    place: int = 0
    """`window_start` of a query's row."""


def look(alert: Alert | None, seen: Seen, rule: Rule) -> Alert | None:
    """The alert after one look at its key; None where no alert exists."""
    if alert is not None and seen.place < alert.place:
        return alert  # a correction of a window that others have followed
    if alert is not None:
        alert = pass_time(alert, seen.at, rule)
    if seen.holds is True:
        return pass_time(_held(alert, seen, rule), seen.at, rule)
    if alert is None:
        return None
    heard = alert.model_copy(
        update={"last_at": max(alert.last_at, seen.at), "place": max(alert.place, seen.place)}
    )
    if seen.holds is None:
        return heard
    return _over(heard, seen.at, seen.why, rule)


def _held(alert: Alert | None, seen: Seen, rule: Rule) -> Alert:
    heard = {"last_at": seen.at, "place": seen.place, "value": seen.value, "over_since": None}
    if alert is not None and alert.state is not State.RESOLVED:
        return alert.model_copy(update=heard)
    entry = Entry(at=seen.at, what="pending", why=seen.why[:WHY_CHARS_MAX], value=seen.value)
    if alert is None:
        return Alert(
            rule=rule.name,
            key=seen.key,
            basis=rule.basis,
            state=State.PENDING,
            since=seen.at,
            began=seen.at,
            last_at=seen.at,
            place=seen.place,
            value=seen.value,
            history=(entry,),
        )
    begun = {"state": State.PENDING, "since": seen.at, "began": seen.at, "by": ""}
    return noted(alert.model_copy(update=heard | begun), entry)


def _over(alert: Alert, at: int, why: str, rule: Rule) -> Alert | None:
    if alert.state is State.PENDING:
        return _given_up(alert, at)
    if alert.state is State.RESOLVED:
        return alert
    if alert.over_since is None:
        alert = alert.model_copy(update={"over_since": at})
    return pass_time(alert, at, rule, why=why)


def _given_up(alert: Alert, at: int) -> Alert | None:
    """It never fired: nothing is left of it, but where it fired before."""
    if not alert.flips and not alert.told:
        return None
    entry = Entry(at=at, what="resolved", why="it did not hold long enough")
    return noted(alert.model_copy(update={"state": State.RESOLVED, "since": at}), entry)


def pass_time(alert: Alert, now: int, rule: Rule, *, why: str = "") -> Alert | None:
    """The alert at `now`, if nothing else happens; None: it is forgotten."""
    stale_at = alert.last_at + rule.stale_s * 1000 if rule.stale_s else None
    heard_to = now if stale_at is None else min(now, stale_at - 1)
    if alert.state is State.PENDING and heard_to - alert.began >= rule.for_s * 1000:
        alert = _fired(alert, alert.began + rule.for_s * 1000, rule)
    elif (
        alert.state in ACTIVE
        and alert.over_since is not None
        and heard_to - alert.over_since >= rule.over_for_s * 1000
    ):
        alert = _resolved(alert, alert.over_since + rule.over_for_s * 1000, why)
    if stale_at is not None and now >= stale_at and alert.state is not State.RESOLVED:
        if alert.state is State.PENDING:
            return _given_up(alert, stale_at)
        alert = _resolved(alert, stale_at, f"nothing was heard for {rule.stale_s} s")
    is_told = alert.told != "firing"
    if alert.state is State.RESOLVED and is_told and now - alert.since > KEPT_MS:
        return None
    return _calmed(alert, now)


def _fired(alert: Alert, at: int, rule: Rule) -> Alert:
    why = f"it held for {rule.for_s} s" if rule.for_s else ""
    update = {"state": State.FIRING, "since": at, "flips": (*alert.flips, at)}
    return noted(
        alert.model_copy(update=update), Entry(at=at, what="firing", why=why, value=alert.value)
    )


def _resolved(alert: Alert, at: int, why: str) -> Alert:
    update = {
        "state": State.RESOLVED,
        "since": at,
        "over_since": None,
        "snoozed_until": 0,
        "flips": (*alert.flips, at),
    }
    entry = Entry(at=at, what="resolved", why=why[:WHY_CHARS_MAX], value=alert.value)
    return noted(alert.model_copy(update=update), entry)


def _calmed(alert: Alert, now: int) -> Alert:
    recent = tuple(at for at in alert.flips if now - at <= FLAP_WINDOW_MS)[-2 * FLAPS_MAX :]
    # One turn stays known, so that an alert that fired before is told from one that never did.
    known = recent or alert.flips[-1:]
    if known != alert.flips:
        alert = alert.model_copy(update={"flips": known})
    if not alert.flapping and len(recent) >= FLAPS_MAX:
        why = f"{len(recent)} turns within {FLAP_WINDOW_MS // 60_000} min: it counts as firing"
        entry = Entry(at=now, what="flapping", why=why)
        return noted(alert.model_copy(update={"flapping": True}), entry)
    if alert.flapping and len(recent) <= 1:
        return noted(alert.model_copy(update={"flapping": False}), Entry(at=now, what="calm"))
    return alert


def say(alert: Alert, word: Word) -> Alert:
    """What somebody said of it; the same where it says nothing."""
    if word.what == "snooze":
        if alert.snoozed_until == word.until:
            return alert
        what = "snoozed" if word.until else "heard again"
        entry = Entry(at=word.at, what=what, why=word.why, who=word.who)
        return noted(alert.model_copy(update={"snoozed_until": word.until}), entry)
    if alert.state is not State.FIRING:
        return alert
    taken = {"state": State.ACKNOWLEDGED, "since": word.at, "by": word.who}
    entry = Entry(at=word.at, what="acknowledged", why=word.why, who=word.who)
    return noted(alert.model_copy(update=taken), entry)


def ended(alert: Alert, now: int, why: str) -> Alert | None:
    """Its rule looks elsewhere: it is over."""
    if alert.state is State.PENDING:
        return _given_up(alert, now)
    return alert if alert.state is State.RESOLVED else _resolved(alert, now, why)


def noted(alert: Alert, entry: Entry) -> Alert:
    """With one more entry of its history."""
    return alert.model_copy(update={"history": (*alert.history, entry)[-HISTORY_MAX:]})


def wants(alert: Alert, now: int) -> bool:
    """Is there something to tell?"""
    return loud(alert) != alert.told and now >= alert.snoozed_until


def loud(alert: Alert) -> str:
    """What its destinations ought to know of it."""
    return "firing" if alert.flapping else alert.loud


def wants_again(alert: Alert, now: int, rule: Rule) -> bool:
    """Is a reminder due? One that somebody acknowledged gets none."""
    return (
        rule.again_s > 0
        and alert.state is State.FIRING
        and alert.told == "firing"
        and now >= alert.snoozed_until
        and now - alert.told_at >= rule.again_s * 1000
    )


def is_worth_writing(before: Alert | None, after: Alert | None) -> bool:
    """Is it more than a new value, or is the last one long ago?"""
    if before is None or after is None:
        return before is not after
    if after.last_at - before.last_at >= HEARD_MS:
        return True
    same = {"last_at": before.last_at, "value": before.value, "place": before.place}
    return after.model_copy(update=same) != before
