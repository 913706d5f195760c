"""Operators are told of gaps by counts for each device, at a bounded rate."""

from __future__ import annotations

from edgewake.cloud.sequencer.order.arrival import Statement, StatementKind
from edgewake.cloud.sequencer.order.gaps_said import DEVICES_MAX, REPORT_S, REPORTS_MAX, GapsSaid
from edgewake.protocol.ops.device import DeviceGaps


def said(device: str, kind: StatementKind, lost: int = 0) -> Statement:
    return Statement(kind, device, 1, "s", 5, 6, 41, lost)


def test_what_is_missing_is_counted_and_what_is_no_loss_is_not() -> None:
    gaps = GapsSaid()
    for kind in StatementKind:
        gaps.note(said("a", kind, lost=7 if kind is StatementKind.MISSING else 0))
    gaps.note(said("b", StatementKind.RESTARTED))
    assert gaps.due(0.0, now_ms=9) == [DeviceGaps(device="a", at=9, opened=1, missing=7)]
    assert gaps.due(100.0, now_ms=9) == [], "each is said once"


def test_a_device_is_reported_once_a_round() -> None:
    gaps = GapsSaid()
    gaps.note(said("a", StatementKind.OPEN))
    assert len(gaps.due(0.0, now_ms=0)) == 1
    gaps.note(said("a", StatementKind.OPEN))
    gaps.note(said("a", StatementKind.OPEN))
    assert not gaps.is_due(REPORT_S - 0.1)
    assert [one.opened for one in gaps.due(REPORT_S, now_ms=0)] == [2]


def test_a_fleet_that_comes_back_with_holes_is_reported_at_a_bounded_rate() -> None:
    gaps = GapsSaid()
    for number in range(DEVICES_MAX + 10):
        gaps.note(said(f"d{number}", StatementKind.OPEN))
    rounds = [len(gaps.due(REPORT_S * i, now_ms=0)) for i in range(100)]
    assert max(rounds) == REPORTS_MAX
    assert sum(rounds) == DEVICES_MAX
