"""A device is reported at most every five seconds, with the smallest skew since the last report."""

from edgewake.cloud.sequencer.seen import FORGET_S, REPORT_S, Seen
from edgewake.protocol.device import DeviceSeen


def test_a_first_record_is_reported_at_once_and_the_next_ones_later() -> None:
    seen = Seen()
    seen.note("a", "s", received_at=1000, sent_at=900)
    assert seen.due(0.0) == [DeviceSeen(device="a", last_seen=1000, skew_ms=100, streams=["s"], records=1)]
    seen.note("a", "r", received_at=2000, sent_at=1950)
    seen.note("a", "r", received_at=2100, sent_at=2080)
    assert seen.due(REPORT_S - 0.1) == []
    assert seen.due(REPORT_S) == [DeviceSeen(device="a", last_seen=2100, skew_ms=20, streams=["r", "s"], records=3)]


def test_a_device_that_is_quiet_is_not_reported_again() -> None:
    seen = Seen()
    seen.note("a", "s", received_at=1000, sent_at=None)
    seen.due(0.0)
    assert seen.due(100.0) == []
    assert not seen.has_unreported


def test_a_skew_that_was_never_said_is_none() -> None:
    seen = Seen()
    seen.note("a", "s", received_at=1000, sent_at=None)
    assert seen.due(0.0)[0].skew_ms is None


def test_a_device_that_is_quiet_for_long_is_dropped_from_memory() -> None:
    seen = Seen()
    seen.note("a", "s", received_at=1000, sent_at=None)
    seen.due(0.0)
    seen.forget_quiet(FORGET_S + 1)
    seen.note("a", "s", received_at=2000, sent_at=None)
    assert seen.due(FORGET_S + 2)[0].records == 1
