"""A type that an operator decides reaches a real agent whose first value was of another one."""

from __future__ import annotations

import pytest

from tests.gateways.floor import Floor
from tests.services import wait_until

pytestmark = pytest.mark.services


def test_an_agent_learns_a_decided_type_by_the_answer_and_keeps_it(here: Floor) -> None:
    process = here.start_gateway("gw-decided", stream="depths")

    def levels() -> list[object]:
        return [
            value
            for one in here.records("depths", "gw-decided")
            for value in one.frame.fields.get("level", [None] * len(one.frame.t))
        ]

    assert here.post("gw-decided", [{"level": "fast"}, {"level": 3}])
    wait_until(lambda: levels() == ["fast", None], "a number is odd")
    change = {"fields": {"level": {"type": "number"}}}
    assert here.ops("PATCH", "/v1/streams/depths", change)[0] == 200

    def is_known() -> bool:
        assert here.post("gw-decided", [{"level": 4}])
        return 4 in levels()

    wait_until(is_known, "the agent has heard of it")
    process.stop()
    here.start_gateway("gw-decided", stream="depths")
    assert here.post("gw-decided", [{"level": 5}])
    wait_until(lambda: levels()[-1:] == [5], "over a restart")
