"""All rules, alerts and notes, as the one that judges has them. No I/O.

What changed since the last time is asked for by `take_changes` and written in one transaction with
the places up to which it was judged: so after a crash each reading is judged once, with the alerts
as they were before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from edgewake.cloud.alerts import telling
from edgewake.cloud.alerts.life import Seen, ended, is_worth_writing, look, pass_time, say
from edgewake.protocol.ops.alert import Alert, Note, NoteState, Place, Rule, State, Word

log = logging.getLogger("edgewake.alerts")

ALERTS_EACH_MAX: Final = 1000
"""Alerts of one rule that are pending, firing or acknowledged: more are one big trouble, which the
first thousand say well enough."""
KEPT_EACH_MAX: Final = 2000
"""With those that are over; the oldest of them goes for a new one."""


class Book:
    """All rules, alerts and notes of the judging server. Not thread-safe."""

    def __init__(
        self, new_id: Callable[[], str], unit_of: Callable[[Rule], str] = lambda _: ""
    ) -> None:
        """`new_id` gives text that no other process gives, `unit_of` the unit of what is told."""
        self._new_id, self._unit_of = new_id, unit_of
        self.rules: Mapping[str, Rule] = {}
        self.alerts: dict[str, dict[str, Alert]] = {}
        """Rule → key → alert."""
        self.notes: dict[str, Note] = {}
        self.places: dict[str, Place] = {}
        self.under_way: dict[str, str] = {}
        """Note → destination of attempts that have not ended."""
        self.left_out: set[str] = set()
        """Rules that have too many alerts."""
        self._written: dict[str, Alert] = {}
        """Alerts as they stand on the topic."""
        self._changed: dict[str, bytes | None] = {}

    def load(self, key: str, value: bytes | None) -> None:
        """A row of the topic. Raises ValueError."""
        kind, _, rest = key.partition("|")
        if kind == "place":
            _put(self.places, rest, None if value is None else Place.model_validate_json(value))
        elif kind == "note":
            _put(self.notes, rest, None if value is None else Note.model_validate_json(value))
        elif kind == "alert":
            rule, _, name = rest.partition("|")
            alert = None if value is None else Alert.model_validate_json(value)
            _put(self.alerts.setdefault(rule, {}), name, alert)
            _put(self._written, key, alert)

    def set_rules(self, rules: Mapping[str, Rule], now: int) -> None:
        """These rules there are now."""
        self.rules = rules
        self.left_out &= set(rules)
        for name in set(self.alerts) - set(rules):
            for alert in list(self.alerts[name].values()):
                self._set(name, alert.key, alert, None)
            del self.alerts[name]
        for name, rule in rules.items():
            for alert in list(self.alerts.get(name, {}).values()):
                if alert.basis != rule.basis:
                    after = ended(alert, now, "the rule looks at something else now")
                    after = after and after.model_copy(update={"basis": rule.basis, "place": 0})
                    self._set(name, alert.key, alert, after)

    def see(self, rule: Rule, seen: Seen) -> None:
        """One look at a key of a rule."""
        before = self.alerts.get(rule.name, {}).get(seen.key)
        if before is None and (seen.holds is not True or not self._has_room(rule.name)):
            return
        after = look(before, seen, rule)
        if after is not before:
            self._set(rule.name, seen.key, before, after)

    def see_all(self, rule: Rule, held: Mapping[str, Seen], now: int) -> None:
        """All keys of a rule for which its condition holds; for the others it does not."""
        for seen in held.values():
            self.see(rule, seen)
        for key in list(self.alerts.get(rule.name, {})):
            if key not in held:
                self.see(rule, Seen(key, now, holds=False))

    def hear(self, word: Word) -> None:
        """What a person said; of what is not there, nothing."""
        of_rule = self.alerts.get(word.rule, {})
        for key in list(of_rule) if word.key is None else [word.key]:
            before = of_rule.get(key)
            if before is not None:
                self._set(word.rule, key, before, say(before, word))

    def tick(self, now: int, wall: int | None = None) -> None:
        """Time passed: what that changes, and the notes that are to be made.

        `wall` is the time at which they are made, where `now` is that of readings of the past.
        """
        wall = now if wall is None else wall
        for name, rule in self.rules.items():
            # Silence and problems are looked at in the present; they wait for no reading.
            to = now if rule.silent_s is None and rule.problems is None else wall
            of_rule = self.alerts.get(name, {})
            for alert in list(of_rule.values()):
                after = pass_time(alert, to, rule)
                if after is not alert:
                    self._set(name, alert.key, alert, after)
            self._tell(rule, telling.news(of_rule.values(), rule, to, wall), wall)
        for old in list(telling.forgotten(self.notes.values(), wall)):
            del self.notes[old]
            self._changed[f"note|{old}"] = None

    def _tell(self, rule: Rule, alerts: Iterable[Alert], now: int) -> None:
        chosen = list(alerts)
        if not chosen:
            return
        for note in telling.notes_of(chosen, rule, now, self._new_id, self._unit_of(rule)):
            self._make_room_for(note.destination, now)
            self._keep(note)
        for alert in chosen:
            self._set(rule.name, alert.key, alert, telling.told(alert, now))

    def _make_room_for(self, destination: str, now: int) -> None:
        waiting = [
            note
            for note in self.notes.values()
            if note.destination == destination and note.state is NoteState.WAITING
        ]
        if len(waiting) >= telling.WAITING_EACH_MAX:
            oldest = min(waiting, key=lambda note: note.made_at)
            why = f"{telling.WAITING_EACH_MAX} notes wait for {destination}"
            self._keep(telling.tried(oldest, now, why, is_final=True))

    def begin(self, now: int) -> list[Note]:
        """Notes to be tried now; from here on they are under way."""
        chosen = list(telling.due(self.notes.values(), self.under_way, now))
        begun = [telling.begun(note, now) for note in chosen]
        for note in begun:
            self.under_way[note.id] = note.destination
            self._keep(note)
        return begun

    def end(self, note_id: str, now: int, error: str | None, *, is_final: bool) -> None:
        """An attempt has ended."""
        self.under_way.pop(note_id, None)
        note = self.notes.get(note_id)
        if note is not None and note.state is NoteState.WAITING:
            self._keep(telling.tried(note, now, error, is_final=is_final))

    def set_place(self, topic: str, offsets: Mapping[int, int]) -> None:
        """How far a topic is judged; written with the next changes."""
        self.places[topic] = Place(topic=topic, offsets=dict(offsets))

    def forget_place(self, topic: str) -> None:
        """No rule looks at a topic any more."""
        if self.places.pop(topic, None) is not None:
            self._changed[f"place|{topic}"] = None

    def take_changes(self) -> dict[str, bytes | None]:
        """Rows to be written, by key; None removes one. Afterwards they count as written."""
        changed, self._changed = self._changed, {}
        return changed

    def _keep(self, note: Note) -> None:
        self.notes[note.id] = note
        self._changed[f"note|{note.id}"] = note.model_dump_json().encode()

    def _set(self, rule: str, key: str, before: Alert | None, after: Alert | None) -> None:
        known = before if before is not None else after
        assert known is not None
        _put(self.alerts.setdefault(rule, {}), key, after)
        row = known.id
        if is_worth_writing(self._written.get(row), after):
            _put(self._written, row, after)
            self._changed[row] = None if after is None else after.model_dump_json().encode()

    def _has_room(self, rule: str) -> bool:
        of_rule = self.alerts.get(rule, {})
        if len(of_rule) < ALERTS_EACH_MAX:
            self.left_out.discard(rule)
            return True
        over = [alert for alert in of_rule.values() if alert.state is State.RESOLVED]
        if len(of_rule) - len(over) >= ALERTS_EACH_MAX:
            if rule not in self.left_out:
                self.left_out.add(rule)
                log.warning(
                    "rule %s has %d alerts: more are left out",
                    rule,
                    ALERTS_EACH_MAX,
                    extra={"event": "alerts.too_many"},
                )
            return False
        if len(of_rule) >= KEPT_EACH_MAX:
            oldest = min(over, key=lambda alert: alert.since)
            self._set(rule, oldest.key, oldest, None)
        return True


def _put(table: dict[str, Any], key: str, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
