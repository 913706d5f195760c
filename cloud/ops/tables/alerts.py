"""Rules, destinations, alerts and notes: the rows of `ew.rules` and `ew.alerts`.

`rules` and `words` are read by the thread that judges: each change is a new mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from edgewake.cloud.ops.tables.device_table import Event
from edgewake.protocol.ops.alert import Alert, Destination, Note, Rule, State, Word

T = TypeVar("T")
_ORDER = (State.FIRING, State.ACKNOWLEDGED, State.PENDING, State.RESOLVED)


@dataclass
class AlertTable:
    """The rows of `ew.rules` and `ew.alerts`, by key."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    words: Mapping[str, Word] = field(default_factory=dict)
    """What people said and nobody has heard yet."""
    alerts: dict[str, dict[str, Alert]] = field(default_factory=dict)
    """Rule → key → alert."""
    notes: dict[str, Note] = field(default_factory=dict)

    def put(self, row: str, value: bytes | None) -> Iterator[Event]:
        """A record of either topic. Raises ValueError."""
        kind, _, name = row.partition("|")
        match kind:
            case "rule":
                rule = None if value is None else Rule.model_validate_json(value)
                self.rules = changed(self.rules, name, rule)
                yield {"kind": "alert_rule", "name": name, "removed": rule is None}
            case "destination":
                found = None if value is None else Destination.model_validate_json(value)
                self.destinations = changed(self.destinations, name, found)
            case "word":
                word = None if value is None else Word.model_validate_json(value)
                self.words = changed(self.words, name, word)
            case "note":
                if value is None:
                    self.notes.pop(name, None)
                else:
                    self.notes[name] = Note.model_validate_json(value)
            case "alert":
                yield from self._alert(name, value)

    def _alert(self, name: str, value: bytes | None) -> Iterator[Event]:
        rule, _, key = name.partition("|")
        of_rule = self.alerts.setdefault(rule, {})
        before = of_rule.pop(key, None)
        if value is not None:
            of_rule[key] = Alert.model_validate_json(value)
        if not of_rule:
            del self.alerts[rule]
        after = of_rule.get(key)
        if (before and before.state) != (after and after.state):
            state = None if after is None else after.state.value
            yield {"kind": "alert", "rule": rule, "key": key, "state": state}

    def all(self) -> list[Alert]:
        """Alerts, what fires first, then by age, the newest first."""
        found = [alert for of_rule in self.alerts.values() for alert in of_rule.values()]
        return sorted(found, key=order)

    def of_rule(self, rule: str) -> list[Alert]:
        """The alerts of one rule, in the same order."""
        return sorted(self.alerts.get(rule, {}).values(), key=order)


def order(alert: Alert) -> tuple[int, int, str]:
    """What alerts are sorted by: what fires first, then by age, the newest first."""
    return _ORDER.index(alert.state), -alert.since, alert.id


def place(alert: Alert) -> str:
    """Where a list that was cut behind an alert goes on; it holds when the alert is gone."""
    return f"{alert.state.value}|{alert.since}|{alert.id}"


def order_of_place(text: str) -> tuple[int, int, str]:
    """The `order` of the alert of a `place`. Raises ValueError."""
    state, since, name = text.split("|", 2)
    return _ORDER.index(State(state)), -int(since), name


def changed(table: Mapping[str, T], name: str, row: T | None) -> Mapping[str, T]:
    """A table with one row put in, or left out."""
    new: dict[str, Any] = dict(table)
    if row is None:
        new.pop(name, None)
    else:
        new[name] = row
    return new
