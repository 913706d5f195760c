"""A device is reported at most every five seconds, with the smallest skew since the last report,
and a large fleet less often.
"""

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
