"""An alert as an action gets it."""

from __future__ import annotations

import orjson

from edgewake.edge.actions.alert import Alert

ALERT = Alert("car", "alerts", 7, (1_790_000_000_000, {"state": "raised", "speed": 131.5}))


def test_its_id_is_its_own_and_the_same_at_each_repetition() -> None:
    again = Alert("car", "alerts", 7, ALERT.reading)
    other = Alert("car", "alerts", 8, ALERT.reading)
    assert (ALERT.id, again.id, other.id) == (
        "car.alerts.1790000000000.7", ALERT.id, "car.alerts.1790000000000.8",
    )  # fmt: skip


def test_its_body_is_the_reading_with_where_it_is_from() -> None:
    assert orjson.loads(ALERT.body()) == {
        "device": "car", "stream": "alerts", "t": 1_790_000_000_000, "state": "raised",
        "speed": 131.5,
    }  # fmt: skip


def test_its_age_counts_from_its_event_time() -> None:
    assert ALERT.age_s(1_790_000_002_500) == 2.5
