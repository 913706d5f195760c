"""What a lane says while its windows stay open."""

from __future__ import annotations

import pytest

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


def test_a_stream_is_silent_after_ten_seconds_and_over_once_its_windows_are_final() -> None:
    assert [silence(silent_s, 60, {0: 0}, is_final=False) for silent_s in (9, 10, 60)] == [
        "",
        "no readings arrive",
        "no readings arrive",
    ]
    final = "no readings arrive: its last windows are final"
    assert [silence(silent_s, 60, {}, is_final=True) for silent_s in (9, 60)] == ["", final]
    assert silence(2, 2, {}, is_final=True) == final


@pytest.mark.parametrize("is_final", [True, False])
def test_a_stream_with_unread_readings_is_not_silent(is_final: bool) -> None:
    assert silence(3_600, 60, {0: 0, 1: 386}, is_final=is_final) == ""
    assert "does not report which" in silence(3_600, 60, None, is_final=is_final)
