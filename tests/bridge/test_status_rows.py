"""Statuses that say something new are written at once; repetitions in measure."""

from __future__ import annotations

from edgewake.cloud.bridge.status_rows import DEVICES_MAX, REPEAT_S_MAX, ROWS_PER_S, StatusRows
from edgewake.protocol.ops.device import DeviceState, DeviceStatus

EVERY_S = 10.0


def value(
    device: str = "d", state: DeviceState = DeviceState.ONLINE, at: int = 0, **facts: int
) -> bytes:
    return DeviceStatus(device=device, state=state, sent_at=at, received_at=at, **facts).to_json()  # type: ignore[arg-type]


def written(rows: StatusRows, devices: int, now_s: float) -> int:
    """How many of a fleet's statuses are written in one round."""
    status = value("DEVICE", at=int(now_s))
    return sum(
        rows.is_wanted(f"d{i}|status", status.replace(b"DEVICE", b"d%d" % i), now_s)
        for i in range(devices)
    )


def test_in_a_small_fleet_every_status_is_written() -> None:
    rows = StatusRows()
    for turn in range(5):
        assert written(rows, 50, turn * EVERY_S) == 50


def test_in_a_large_fleet_repetitions_are_written_once_a_minute_and_their_rate_is_bounded() -> None:
    devices = 20_000
    rows = StatusRows()
    assert written(rows, devices, 0.0) == devices
    minutes = 2
    later = sum(written(rows, devices, turn * EVERY_S) for turn in range(1, minutes * 6 + 1))
    assert later == devices * minutes
    assert later / (minutes * 60) < 2 * ROWS_PER_S


def test_what_is_new_is_written_at_once() -> None:
    rows = StatusRows()
    written(rows, 20_000, 0.0)
    for change in (
        value("d1", DeviceState.OFFLINE),
        value("d1"),
        value("d1", lost_readings=5),
        value("d1", lost_readings=5, backlog_readings=7),
        value("d1", lost_readings=5, backlog_readings=7, connected_at=8),
    ):
        assert rows.is_wanted("d1|status", change, 1.0)
        assert not rows.is_wanted("d1|status", change, 1.0)
    assert not rows.is_wanted(
        "d1|status", value("d1", lost_readings=5, backlog_readings=9, connected_at=8), 2.0
    )
    assert rows.is_wanted("d1|status", value("d1", lost_readings=5), REPEAT_S_MAX)


def test_the_memory_is_bounded() -> None:
    rows = StatusRows()
    for i in range(DEVICES_MAX + 10):
        rows.is_wanted(f"d{i}", b"{}", 0.0)
    assert len(rows._written) == DEVICES_MAX
    assert rows.is_wanted("d0", b"{}", 0.0)
