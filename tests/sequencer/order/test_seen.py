"""A device is reported at most every five seconds, with the smallest skew since the last report,
and a large fleet less often.
"""

import pytest

from edgewake.cloud.sequencer.order import seen as order_seen
from edgewake.cloud.sequencer.order.seen import DEVICES_MAX, REPORT_S, REPORTS_MAX, Seen
from edgewake.protocol.ops.device import DeviceSeen


def test_a_first_record_is_reported_at_once_and_the_next_ones_later() -> None:
    seen = Seen()
    seen.note("a", "s", received_at=1000, sent_at=900, readings=50)
    assert seen.due(0.0) == [
        DeviceSeen(
            device="a",
            last_seen=1000,
            skew_ms=100,
            streams={"s": 1},
            readings={"s": 50},
            records=1,
        )
    ]
    seen.note("a", "r", received_at=2000, sent_at=1950, readings=1)
    seen.note("a", "s", received_at=2100, sent_at=2080, readings=2)
    assert seen.due(REPORT_S - 0.1) == []
    assert seen.due(REPORT_S) == [
        DeviceSeen(
            device="a",
            last_seen=2100,
            skew_ms=20,
            streams={"r": 1, "s": 1},
            readings={"r": 1, "s": 2},
            records=2,
        )
    ]


def test_a_device_that_is_quiet_is_not_reported_again() -> None:
    seen = Seen()
    seen.note("a", "s", received_at=1000, sent_at=None)
    seen.due(0.0)
    assert seen.due(100.0) == []
    assert not seen.is_due(100.0)


def test_a_skew_that_nobody_sent_is_none() -> None:
    seen = Seen()
    seen.note("a", "s", received_at=1000, sent_at=None)
    assert seen.due(0.0)[0].skew_ms is None


def test_a_large_fleet_is_reported_at_a_bounded_rate_and_every_device_has_its_turn() -> None:
    seen = Seen()
    for i in range(3 * REPORTS_MAX):
        seen.note(f"d{i}", "s", received_at=1000, sent_at=None)
    rounds = [[one.device for one in seen.due(float(second))] for second in range(4)]
    assert [len(devices) for devices in rounds] == [REPORTS_MAX, REPORTS_MAX, REPORTS_MAX, 0]
    assert len({device for devices in rounds for device in devices}) == 3 * REPORTS_MAX


def test_what_waits_for_its_report_is_bounded() -> None:
    seen = Seen()
    for i in range(DEVICES_MAX + 10):
        seen.note(f"d{i}", "s", received_at=1000, sent_at=None)
    reported = sum(len(seen.due(float(second))) for second in range(200))
    assert reported == DEVICES_MAX


def offline(seen: Seen, now_s: float) -> list[bool]:
    return [one.is_offline for one in seen.due(now_s)]


def test_a_thing_is_offline_from_its_word_until_it_measures_again() -> None:
    seen = Seen()

    def note(newest: int, *, is_online: bool | None = None) -> None:
        seen.note(
            "m", "s", received_at=9000, sent_at=None, via="gw", newest=newest, is_online=is_online
        )

    note(1000)
    assert offline(seen, 0.0) == [False]
    note(2000, is_online=False)
    assert offline(seen, REPORT_S) == [True]
    note(1500)
    assert offline(seen, 2 * REPORT_S) == [True], "what its gateway had kept of before"
    note(1000, is_online=True)
    assert offline(seen, 3 * REPORT_S) == [True], "an older word"
    note(2001)
    assert offline(seen, 4 * REPORT_S) == [False]
    note(3000, is_online=False)
    note(3001, is_online=True)
    assert offline(seen, 5 * REPORT_S) == [False]


def test_things_that_are_offline_are_remembered_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_seen, "OFFLINE_MAX", 2)
    seen = Seen()
    for name in ("a", "b", "c"):
        seen.note(name, "s", received_at=1, sent_at=None, via="gw", newest=1, is_online=False)
    assert [(one.device, one.is_offline) for one in seen.due(0.0)] == [
        ("a", False), ("b", True), ("c", True),
    ]  # fmt: skip
