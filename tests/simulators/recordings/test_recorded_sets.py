"""Recorded sets of real devices become readings: as many as their descriptions say, and every bad
row is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from edgewake.protocol.frames.frame import from_plain
from edgewake.simulators.recordings import rows as recorded
from edgewake.simulators.recordings.look import look, refusal
from edgewake.simulators.recordings.readings import Columns, to_readings
from edgewake.simulators.recordings.rows import BadRow
from edgewake.simulators.recordings.time_columns import How

DATA = Path(__file__).parents[4] / "shared" / "data"
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


SHORT = 10_000
"""Readings of a set that `make test` reads whole."""
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
@pytest.mark.parametrize(
    "recorded_set",
    [
        pytest.param(
            one,
            id=one.path.partition("/")[0],
            marks=[pytest.mark.long] if one.readings > SHORT else [],
        )
        for one in SETS
    ],
)
def test_a_recorded_set_becomes_legal_readings(recorded_set: Recorded):
    path = DATA / recorded_set.path
    kind = recorded.detect(path)
    time = None if recorded_set.time is None else recorded_set.time.split(",")
    found = look(path, kind, recorded_set.header, time, recorded_set.columns)
    rows = recorded.rows(path, kind, recorded.Tally(), columns=recorded_set.header)
    readings, bad = [], []
    for reading in to_readings(rows, found.meaning):
        (bad if isinstance(reading, BadRow) else readings).append(reading)
    assert (len(readings), len(bad)) == (recorded_set.readings, recorded_set.bad)
    assert len({reading.device for reading in readings}) == recorded_set.devices
    assert readings[0].t == recorded_set.first_ms
    assert recorded_set.first.items() <= readings[0].fields.items()
    for reading in readings[:: max(1, len(readings) // 500)]:
        from_plain(orjson.dumps({"t": reading.t, "seq": 1, **reading.fields}), received_at=0)


@needs_data
def test_a_recording_without_a_time_says_so_and_one_that_counts_seconds_as_well():
    engines = DATA / "nasa_cmapss/train_FD001.txt.gz"
    found = look(engines, recorded.detect(engines), None, None, Columns(device_field="c1"))
    assert found.time.how is How.NONE
    assert (len(found.columns), found.bad, found.devices) == (26, 0, 51)
    assert any("--time-field" in guess for guess in found.guesses)
    drive = DATA / "car_obd2/drive1.csv.gz"
    found = look(drive, recorded.detect(drive), None, None, Columns())
    assert (found.time.is_elapsed, found.time.how) == (True, How.GUESSED)
    assert refusal(found, keeps_times=True)
    assert refusal(found, keeps_times=False) is None
