"""What a sequencer that is away has not passed on holds event time: from when on, up to when, and
no longer than is said.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis import sequencer_watch
from edgewake.cloud.analysis.lanes.upstream_hold import HOLD_MS_MAX, STALE_MS, STALLED_MS, Sequenced
from edgewake.cloud.kafka import offsets
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.up_places import UNANSWERED, UpPlaces
from edgewake.protocol.clock import SystemClock
from tests.services import wait_until

T0 = 1_790_000_040_000
LOOK_MS = 2_000


def test_what_waits_holds_event_time_where_all_was_passed_on_until_it_is() -> None:
    sequenced = Sequenced()
    sequenced.look(T0, {0: 10, 1: 10}, {0: 10, 1: 10})
    for i in range(1, 10):
        sequenced.look(T0 + i * LOOK_MS, {0: 10 + i, 1: 10 + i}, {0: 10, 1: 10 + i})
        waited_ms = (i - 1) * LOOK_MS
        assert sequenced.hold(T0 + i * LOOK_MS) == (T0 if waited_ms > STALLED_MS else None)
    sequenced.look(T0 + 30_000, {0: 30, 1: 30}, {0: 19, 1: 30})
    assert sequenced.hold(T0 + 30_000) is None, "what is in it now has just come"
    sequenced.look(T0 + 31_000 + STALLED_MS, {0: 31, 1: 31}, {0: 19, 1: 31})
    assert sequenced.hold(T0 + 31_000 + STALLED_MS) == T0 + LOOK_MS, (
        "up to where that one began to wait, all was passed on"
    )


def test_after_ten_minutes_it_holds_no_longer() -> None:
    sequenced = Sequenced()
    sequenced.look(T0, {0: 10}, {0: 10})
    for at in range(T0 + LOOK_MS, T0 + 2 * LOOK_MS + HOLD_MS_MAX, LOOK_MS):
        sequenced.look(at, {0: 11}, {0: 10})
    assert sequenced.hold(T0 + LOOK_MS + HOLD_MS_MAX) == T0
    assert sequenced.held_since(T0 + LOOK_MS + HOLD_MS_MAX) == T0 + LOOK_MS
    assert sequenced.hold(T0 + LOOK_MS + HOLD_MS_MAX + 1) is None


def test_what_was_seen_holds_nothing_once_nobody_looks() -> None:
    """Kafka was away, and is back for the lanes, and whoever looks is not answered: it stood for
    ten minutes, and nobody knew why.
    """
    sequenced = Sequenced()
    sequenced.look(T0, {0: 10}, {0: 10})
    seen = T0 + LOOK_MS + STALLED_MS + 1
    for at in (T0 + LOOK_MS, seen):
        sequenced.look(at, {0: 11}, {0: 10})
    assert sequenced.hold(seen + STALE_MS) == T0
    assert sequenced.hold(seen + STALE_MS + 1) is None
    assert sequenced.held_since(seen + STALE_MS + 1) is None
    sequenced.look(seen + 2 * STALE_MS, {0: 11}, {0: 10})
    assert sequenced.hold(seen + 2 * STALE_MS) == T0, "it waits still, and again somebody knows"


def test_a_start_beside_waiting_records_holds_event_time_and_unsequenced_ones_do_not() -> None:
    sequenced = Sequenced()
    for at in (T0, T0 + STALLED_MS):
        sequenced.look(at, {0: 10, 1: 10}, {0: 5})
    assert sequenced.hold(T0 + STALLED_MS + 1) == 0
    assert Sequenced().hold(T0) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=40))
def test_nothing_that_waits_was_received_before_the_hold(looks: list[tuple[int, int]]) -> None:
    """Records come and are passed on in any portions; the oracle keeps each with the look before it
    came.
    """
    sequenced, waiting, end, passed, now = Sequenced(), [], 0, 0, T0
    for come, go in looks:
        waiting += [now] * come
        end, now = end + come, now + LOOK_MS
        count = min(go, len(waiting))
        del waiting[:count]
        passed += count
        sequenced.look(now, {0: end}, {0: passed})
        hold = sequenced.hold(now)
        assert hold is None or (waiting and hold <= waiting[0])


def test_that_kafka_does_not_say_how_far_the_sequencers_are_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = []

    def look(places: UpPlaces) -> object:
        looks.append(places)
        return ends(places)

    ends = UpPlaces.ends
    monkeypatch.setattr(UpPlaces, "ends", look)
    monkeypatch.setattr(offsets, "METADATA_TIMEOUT_S", 0.1)
    monkeypatch.setattr(sequencer_watch, "AGAIN_S", 0.01)
    watch = sequencer_watch.SequencerWatch(KafkaConfig(bootstrap="127.0.0.1:1"), SystemClock())
    watch.start()
    wait_until(lambda: len(looks) > 2 * UNANSWERED, "it looks again and again")
    found = watch.troubles(T0)
    watch.close()
    assert found["hold"] is None
    assert str(found["sequencers"]).startswith("the sequencers' positions are unknown: ")
    assert [record.name for record in caplog.records].count("edgewake.analysis") == 1
