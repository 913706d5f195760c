"""What a lane says while its windows stay open."""

from __future__ import annotations

from edgewake.cloud.analysis.lanes.waits_for import silence, unread


def test_what_event_time_waits_for_is_said() -> None:
    assert [
        unread([], is_known=True),
        unread([], is_known=True, is_late=True),
        unread([1], is_known=True),
        unread([1, 2], is_known=True, is_late=True),
        unread([1], is_known=False),
    ] == [
        "",
        "event time waits for more readings from the same past time",
        "event time waits for unread records in 1 partition",
        "event time waits for unread records in 2 partitions",
        "event time waits: Kafka does not report which records are unread",
    ]


def test_a_stream_is_silent_after_ten_seconds_and_over_after_its_own_time() -> None:
    assert [silence(silent_s, 60) for silent_s in (9, 10, 59, 60)] == [
        "",
        "no readings arrive",
        "no readings arrive",
        "no readings arrive: its last windows are final",
    ]
    assert silence(2, 2) == "no readings arrive: its last windows are final"
