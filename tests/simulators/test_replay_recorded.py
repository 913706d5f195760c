"""Recorded sets of real devices become readings: as many as their descriptions say, and every bad
row is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from edgewake.protocol.frame import from_plain
from edgewake.simulators import recorded
from edgewake.simulators.recorded import BadRow
from edgewake.simulators.replay import Columns, to_readings, with_time_field

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no recorded data at ../shared/data")
DUBLIN = [
    "t",
    "line",
    "direction",
    "pattern",
    "frame_date",
    "journey",
    "operator",
    "congestion",
    "lon",
    "lat",
    "delay_s",
    "block",
    "vehicle",
    "stop",
    "at_stop",
]


@dataclass(frozen=True)
class Recorded:
    path: str
    readings: int
    bad: int
    devices: int
    first_ms: int
    first: dict[str, object]
    time: str | None = None
    columns: Columns = field(default_factory=Columns)
    header: list[str] | None = None


SETS = [
    Recorded(
        "iot_env_telemetry/raw_data.jsonl.gz", 35_189, 0, 3, 1_594_598_424_502,
        {"data_humidity": 73.80000305175781, "data_light": False, "device_id": "0e:9c:00:4c:1c:51"},
        columns=Columns(device_field="device"),
    ),
    Recorded(
        "adsb_switzerland/positions.jsonl.gz", 139_098, 0, 842, 1_533_101_250_000,
        {"altitude": 34975.0, "callsign": "DLH8JW", "latitude": 45.8189849854},
        columns=Columns(device_field="icao24"),
    ),
    Recorded(
        "household_power/household_power_first11d.txt.gz", 15_920, 3, 1, 1_166_289_840_000,
        {"Global_active_power": 4.216, "Voltage": 234.84, "Sub_metering_3": 17.0}, "Date,Time",
        Columns(time_format="%d/%m/%Y %H:%M:%S"),
    ),
    Recorded(
        "dublin_bus/siri.20130131.csv.gz", 7_000, 0, 144, 1_359_590_401_000,
        {"line": 13, "lon": -6.273923, "delay_s": -235, "pattern": "00131005"},
        columns=Columns(device_field="vehicle"), header=DUBLIN,
    ),
    Recorded(
        "car_obd2/drive1.csv.gz", 2_709, 0, 1, 0,
        {"THROTTLE": 17.647058, "COOLANT_TEMPERATURE": 81.0}, "ENGINE_RUN_TINE ()",
        Columns(time_format="s"),
    ),
    Recorded(
        "running_gps_hr/runs.csv.gz", 54_496, 0, 19, 1_370_107_935_000,
        {"altitude": 83.4000244, "distance": 0.0},
        columns=Columns(device_field="session"),
    ),
    Recorded(
        "liverpool_bus/route14_outbound.csv.gz", 1_533, 0, 8, 1_769_443_022_000,
        {"latitude": 53.44451, "route_name": 14, "operator": "AMSY"},
        columns=Columns(device_field="vehicle_id"),
    ),
]  # fmt: skip


@needs_data
@pytest.mark.parametrize("recorded_set", SETS, ids=lambda s: s.path.partition("/")[0])
def test_a_recorded_set_becomes_legal_readings(recorded_set: Recorded):
    path = DATA / recorded_set.path
    rows = recorded.rows(path, recorded.detect(path), recorded.Tally(), columns=recorded_set.header)
    columns, rows = with_time_field(rows, recorded_set.columns, recorded_set.time)
    readings, bad = [], []
    for reading in to_readings(rows, columns):
        (bad if isinstance(reading, BadRow) else readings).append(reading)
    assert (len(readings), len(bad)) == (recorded_set.readings, recorded_set.bad)
    assert len({reading.device for reading in readings}) == recorded_set.devices
    assert readings[0].t == recorded_set.first_ms
    assert recorded_set.first.items() <= readings[0].fields.items()
    for reading in readings[:: max(1, len(readings) // 500)]:
        from_plain(orjson.dumps({"t": reading.t, "seq": 1, **reading.fields}), received_at=0)
