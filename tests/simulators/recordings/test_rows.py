"""The two odd hours of the year, there and back: instants become local times as a device without a
zone writes them, and the recording is read again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from edgewake.simulators.recordings import rows as recorded
from edgewake.simulators.recordings.readings import Columns, Odd, Reading, to_readings
from edgewake.simulators.recordings.rows import FileFormat, Tally

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Australia/Sydney",
    "Australia/Lord_Howe",  # half an hour in place of an hour
)
STEP = timedelta(minutes=10)


def changes(zone: ZoneInfo) -> list[datetime]:
    """The instants of 2026 at which its clocks are changed, to a step."""
    steps = (datetime(2026, 1, 1, tzinfo=UTC) + STEP * n for n in range(366 * 144))
    found, before = [], None
    for at in steps:
        offset = at.astimezone(zone).utcoffset()
        if before is not None and offset != before:
            found.append(at)
        before = offset
    return found


@pytest.mark.parametrize("name", ZONES)
def test_each_reading_of_two_devices_keeps_its_instant_through_both_changes(
    tmp_path: Path, name: str
) -> None:
    zone = ZoneInfo(name)
    both = changes(zone)
    assert len(both) == 2
    for number, change in enumerate(both):
        instants = [change + STEP * n for n in range(-72, 72)]
        lines = [
            f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S},{device},1"
            for at in instants
            for device in ("a", "b")
        ]
        path = tmp_path / f"{number}.csv"
        path.write_text("time,device,x\n" + "\n".join(lines) + "\n")
        columns = Columns(zone=zone, time_fields=("time",), device_field="device")
        odd = Odd()
        read = list(to_readings(recorded.rows(path, FileFormat.CSV, Tally()), columns, odd))
        assert all(isinstance(one, Reading) for one in read)
        wanted = [round(at.timestamp() * 1000) for at in instants]
        for device in ("a", "b"):
            ours = [one.t for one in read if isinstance(one, Reading) and one.device == device]
            assert ours == wanted, (name, change, device)
        is_autumn = change.astimezone(zone).utcoffset() < (  # type: ignore[operator]
            (change - STEP).astimezone(zone).utcoffset()
        )
        assert (odd.twice > 0, odd.never) == (is_autumn, 0)


def test_the_control_without_the_zone_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,x\n2026-10-25 02:00:00,1\n2026-10-25 02:00:00,1\n")
    columns = Columns(time_fields=("time",))
    first, second = to_readings(recorded.rows(path, FileFormat.CSV, Tally()), columns, Odd())
    assert isinstance(first, Reading)
    assert isinstance(second, Reading)
    assert first.t == second.t
