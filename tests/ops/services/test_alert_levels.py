"""Levels: which devices are silent, and which problems there are, for rules over them."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from edgewake.cloud.ops.services.alert_levels import of_problems, silent
from edgewake.cloud.ops.services.problems import KnownProblem
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.protocol.ops.alert import KEY_CHARS_MAX
from tests.alerts.build import at, rule


def problem(kind: str, name: str = "x", text: str = "It is away.") -> KnownProblem:
    return KnownProblem.model_validate({"kind": kind, "name": name, "text": text})


class Tables:
    """Devices that are silent, however long they must be."""

    def __init__(self, **heard: int) -> None:
        self.heard, self.asked = heard, (0, "")
        self.devices = self

    def silent(self, since: int, stream: str | None) -> dict[str, int]:
        self.asked = since, stream or ""
        return self.heard


def names(tables: Tables, **more: Any) -> list[str]:
    return list(silent(rule(silent_s=60, **more), cast("OpsTables", tables), at(100)))


def test_a_silent_device_says_when_it_was_heard() -> None:
    tables = Tables(car=at(0))
    (seen,) = silent(rule(silent_s=60), cast("OpsTables", tables), at(100)).values()
    assert (seen.key, seen.at, seen.holds) == ("car", at(100), True)
    assert seen.value == "last heard 2026-09-21 14:13:20 UTC"
    assert tables.asked == (at(40), "")


def test_a_rule_says_which_devices_it_is_about() -> None:
    tables = Tables(**{"car-1": 0, "bus-1": 0, "车": 0, "": 0})
    assert names(tables, when="device LIKE 'car-%'") == ["car-1"]
    assert names(tables, when="device = '车' OR other = 1") == ["车"]
    assert names(tables, when="other IS NULL") == ["car-1", "bus-1", "车", ""]


def test_a_rule_that_cannot_be_read_holds_for_none_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        assert names(Tables(car=0), when="device ===") == []
    assert caplog.messages[0].startswith("rule hot: ")


def test_problems_are_those_of_the_kinds_that_a_rule_is_about() -> None:
    found = [problem("part", "bridge"), problem("query", "q"), problem("loss", "")]
    assert list(of_problems(rule(problems=("query", "loss")), found, 1)) == ["query q", "loss"]
    assert len(of_problems(rule(problems=()), found, 1)) == 3, "none is named: all"


def test_long_names_that_differ_at_their_end_are_two_problems() -> None:
    found = [problem("query", "q" * KEY_CHARS_MAX + end) for end in "ab"]
    held = of_problems(rule(problems=()), found, 1)
    assert len(held) == 2
    assert all(len(key) <= KEY_CHARS_MAX and key == seen.key for key, seen in held.items())


def test_a_long_sentence_is_cut() -> None:
    (seen,) = of_problems(rule(problems=()), [problem("part", "b", "ü" * 999)], 1).values()
    assert seen.value == "ü" * 200
