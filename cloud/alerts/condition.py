"""A rule's condition, compiled: from a reading, or a row of a query, to what is seen of its key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgewake.cloud.alerts.life import Seen
from edgewake.cloud.log.filters.filter import compile_node
from edgewake.cloud.log.filters.filter_cost import check_cost
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.protocol.ops.alert import KEY_CHARS_MAX, Rule, RuleText

VALUE_CHARS_MAX: Final = 100
"""Characters of a value in a note."""
_MARK_CHARS: Final = 8
"""Hexadecimal digits that tell long keys apart which begin alike."""
WITHDRAWN: Final = "withdrawn"

Truth = Callable[[Mapping[str, Any]], Any]


def check(rule: RuleText) -> None:
    """Raises FilterError, which says what is wrong and where."""
    for text in (rule.when, rule.until):
        if text is not None:
            _compiled(text)


def _compiled(text: str) -> Truth:
    tree = parse_where(text)
    check_cost("where", [tree])
    return compile_node(tree)


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one rule over a stream or a query."""

    rule: Rule
    when: Truth
    until: Truth | None

    @classmethod
    def of(cls, rule: Rule) -> Condition:
        """Raises FilterError."""
        assert rule.when is not None
        until = None if rule.until is None else _compiled(rule.until)
        return cls(rule, _compiled(rule.when), until)

    def seen(self, reading: Mapping[str, Any], at: int) -> Seen:
        """What a reading, or a row, that Kafka kept at `at` says."""
        place = reading.get("window_start")
        return Seen(
            key=key_of(reading, self.rule.by),
            at=at,
            holds=self._holds(reading),
            value="" if self.rule.value is None else _text(reading.get(self.rule.value)),
            why=self.rule.when or "",
            place=place if self.rule.query is not None and isinstance(place, int) else 0,
        )

    def _holds(self, reading: Mapping[str, Any]) -> bool | None:
        if reading.get(WITHDRAWN) is True:
            return False
        holds = self.when(reading)
        if holds is True:
            return True
        if self.until is not None:
            return False if self.until(reading) is True else None
        return False if holds is False else None


def key_of(reading: Mapping[str, Any], by: tuple[str, ...]) -> str:
    """The values of the fields, with commas."""
    return bounded(", ".join(_whole_text(reading.get(name)) for name in by)) or "all"


def bounded(key: str) -> str:
    """A key of at most KEY_CHARS_MAX characters; long ones that differ anywhere stay different."""
    if len(key) <= KEY_CHARS_MAX:
        return key
    mark = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_CHARS]
    return f"{key[: KEY_CHARS_MAX - _MARK_CHARS - 1]}…{mark}"


def _text(value: object) -> str:
    return _whole_text(value)[:VALUE_CHARS_MAX]


def _whole_text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def devices(rule: Rule) -> Truth:
    """Which devices a rule over silence is about."""
    return (lambda _: True) if rule.when is None else _compiled(rule.when)
