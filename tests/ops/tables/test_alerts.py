"""The rows of `ew.rules` and `ew.alerts`."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from edgewake.cloud.ops.tables.alerts import AlertTable
from edgewake.protocol.ops.alert import Alert, State
from tests.alerts.build import T0, rule


def alert(key: str, state: State, *, since: int = T0, of: str = "hot") -> Alert:
    return Alert(
        rule=of, key=key, basis="stream kitchen", state=state, since=since, began=T0, last_at=T0,
        id=f"msg_{key}",
    )  # fmt: skip


def put(table: AlertTable, row: str, value: BaseModel | None) -> list[dict[str, object]]:
    text = None if value is None else value.model_dump_json().encode()
    return [dict(event) for event in table.put(row, text)]


def test_a_rule_is_told_of_and_each_change_is_a_new_mapping() -> None:
    table = AlertTable()
    before = table.rules
    assert put(table, "rule|hot", rule()) == [
        {"kind": "alert_rule", "name": "hot", "removed": False}
    ]
    assert before == {}, "another thread may read it"
    assert list(table.rules) == ["hot"]
    assert put(table, "rule|hot", None) == [{"kind": "alert_rule", "name": "hot", "removed": True}]
    assert table.rules == {}


def test_an_alert_is_told_of_only_when_its_state_changes() -> None:
    table = AlertTable()
    row = "alert|hot|car-1"
    firing = {"kind": "alert", "rule": "hot", "key": "car-1", "state": "firing"}
    assert put(table, row, alert("car-1", State.FIRING)) == [firing]
    assert put(table, row, alert("car-1", State.FIRING, since=T0 + 1)) == []
    assert put(table, row, None) == [{**firing, "state": None}]
    assert table.alerts == {}
    assert put(table, row, None) == []


def test_a_key_may_contain_the_mark_that_parts_a_row() -> None:
    table = AlertTable()
    put(table, "alert|hot|a|b", alert("a|b", State.FIRING))
    assert list(table.alerts["hot"]) == ["a|b"]


def test_what_fires_comes_first_then_the_newest() -> None:
    table = AlertTable()
    wanted = [
        alert("new", State.FIRING, since=T0 + 2),
        alert("old", State.FIRING, since=T0 + 1),
        alert("known", State.ACKNOWLEDGED, since=T0 + 9),
        alert("soon", State.PENDING),
        alert("over", State.RESOLVED),
    ]
    for one in reversed(wanted):
        put(table, f"alert|hot|{one.key}", one)
    put(table, "alert|cold|x", alert("x", State.RESOLVED, since=T0 - 1, of="cold"))
    assert [one.key for one in table.all()] == ["new", "old", "known", "soon", "over", "x"]
    assert table.of_rule("hot") == wanted


def test_a_row_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="Rule"):
        list(AlertTable().put("rule|hot", b"{}"))
