"""What is well is no problem, and the rest is one, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.cloud.ops.services.problems import (
    device_problems,
    loss_problems,
    problems_of,
    unit_problems,
)
from edgewake.cloud.ops.services.queries import QueryView
from edgewake.cloud.ops.tables.devices import DevicePresence, DeviceView
from edgewake.cloud.ops.tables.part_table import PartView
from edgewake.cloud.ops.tables.past import Happening
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.query import QueryState
from tests.push.builders import lease


def part(state: str) -> PartView:
    return PartView(part="bridge-1", state=state, seen_at=0)


def query(state: QueryState, **more: Any) -> QueryView:
    return QueryView(name="q", state=state, topic="t", events_path="/", events_urls=[], **more)


@pytest.mark.parametrize(
    ("parts", "queries", "dead", "problems"),
    [
        ([part("ready")], [query(QueryState.RUNNING), query(QueryState.PAUSED)], {}, []),
        ([], [query(QueryState.PAUSED, isolated=True)], {}, []),
        ([part("failed")], [], {}, ["part bridge-1 is failed"]),
        ([part("unknown")], [], {}, ["part bridge-1: nothing was heard of it for more than 10 s"]),
        ([], [query(QueryState.REFUSED, detail="no such field")], {},
            ["query q is refused: no such field"]),
        ([], [query(QueryState.STARTING, detail="waits for s")], {},
            ["query q is starting: waits for s"]),
        ([], [query(QueryState.RUNNING, isolated=True, detail="slow")], {},
            ["query q is isolated: slow"]),
        ([], [query(QueryState.RUNNING, stands=True, detail="it waits")], {},
            ["query q tells no window as final: it waits"]),
        (
            [], [], {"json": 3},
            ["3 messages were refused within the last hour (json)"],
        ),
    ],
)  # fmt: skip
def test_what_is_well_is_no_problem_and_the_rest_is(
    parts: Any, queries: Any, dead: Any, problems: list[str]
) -> None:
    assert [one.text for one in problems_of(parts, queries, [], dead, is_ready=True)] == problems


def test_a_disabled_lease_is_named_with_its_reason() -> None:
    disabled = lease("l1", disabled="410 Gone")
    assert [
        one.kind for one in problems_of([], [], [disabled, lease("l2")], {}, is_ready=True)
    ] == ["lease"]


def test_a_device_that_was_asked_to_wait_is_named_with_the_reason() -> None:
    """A stream waited for a decision that nobody knew of."""
    view = DeviceView(device="d-1", state=DevicePresence.ONLINE, agent=True, last_seen=0,
        waits="temps: field_type: field 'v' of stream 'temps': expected a number")  # fmt: skip
    assert [one.text for one in device_problems(0, (), {}, 3, [view])] == [
        "d-1 was asked to wait with its stream temps: field_type: field 'v' of stream 'temps': "
        "expected a number",
        "2 more devices were asked to wait with a stream",
    ]


def happened(number: int, device: str, **facts: int) -> Happening:
    return Happening(at=0, kind="loss", name=device, facts=facts, number=number)


def test_losses_and_gaps_of_the_last_hour_are_counted_and_name_who_has_most() -> None:
    found = loss_problems(
        [
            happened(1, "a", lost=1000),
            happened(2, "a", missing=500),
            happened(3, "b", opened=2),
            *(happened(4 + i, f"c{i}", lost=2 + i) for i in range(4)),
        ]
    )
    assert [(one.kind, one.name, one.text) for one in found] == [
        (
            "loss",
            "lost",
            "1,514 readings were lost for good within the last hour, of a, c3, c2 and 2 more",
        ),
        (
            "loss",
            "opened",
            "2 gaps opened within the last hour, of b: what is missing may still come",
        ),
    ]
    assert list(loss_problems([])) == []


def test_tables_that_are_not_read_yet_are_said_first() -> None:
    assert next(problems_of([], [], [], {"json": 1}, is_ready=False)).kind == "operations"


def test_a_field_with_two_units_is_a_problem_and_more_of_them_are_counted() -> None:
    two = FieldInfo(type=FieldType.NUMBER, unit="Cel", other_unit="K by e")
    one = two.model_copy(update={"other_unit": ""})
    assert list(unit_problems([Stream(name="s", fields={"a": one})])) == []
    found = [
        one.text for one in unit_problems([Stream(name="s", fields=dict.fromkeys("abcde", two))])
    ]
    assert found[0].startswith("stream s: the field a is in Cel, and in K by e: expected one unit")
    assert found[3:] == ["2 more fields have two units"]
