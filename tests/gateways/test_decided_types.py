"""A type that an operator decides reaches a real agent whose first value was of another one, and
what was refused for it comes back.
"""

from __future__ import annotations

from typing import Any

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


@pytest.mark.long
def test_what_was_refused_after_a_decision_comes_back_as_values_and_once(here: Floor) -> None:
    here.start_gateway("gw-back", stream="tanks")
    assert here.post("gw-back", [{"fill": 1, "pump": 7}])
    wait_until(lambda: here.records("tanks", "gw-back"), "the stream is there")
    here.start_gateway("gw-texts", stream="tanks")
    change = {"fields": {"fill": {"type": "number"}}}
    assert here.ops("PATCH", "/v1/streams/tanks", change)[0] == 200
    sent = [{"fill": "21,5 l", "pump": 8}, {"fill": "empty", "pump": 9}]
    assert here.post("gw-texts", sent)

    def letters() -> list[dict[str, Any]]:
        page = here.ops("GET", "/v1/dead-letters?reason=field_type&device=gw-texts")[1]
        return list(page["items"])

    wait_until(letters, "the frame was refused")
    (letter,) = letters()
    place = f"/v1/dead-letters/{letter['offset']}/replay"
    answers = [here.ops("POST", place) for _ in range(2)]
    assert [(status, found["was_replayed"]) for status, found in answers] == [
        (200, False),
        (200, True),
    ]
    wait_until(lambda: here.values("tanks", "gw-texts", "pump"), "it is on its stream")
    frames = [one.frame for one in here.records("tanks", "gw-texts") if one.frame.gap is None]
    assert [(one.frame, dict(one.fields)) for one in frames] == [
        (1, {"fill": [21.5, None], "pump": [8, 9], "fill_odd": [None, "empty"]})
    ]
