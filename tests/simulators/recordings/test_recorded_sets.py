"""Recorded sets of real devices become readings: as many as their descriptions say, and every bad
row is counted.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from edgewake.protocol.frames.frame import from_plain
from edgewake.simulators.recordings import rows as recorded
from edgewake.simulators.recordings.look import look, refusal
from edgewake.simulators.recordings.readings import Columns, to_readings
from edgewake.simulators.recordings.rows import BadRow
from edgewake.simulators.recordings.time_columns import How

DATA = Path(__file__).parents[4] / "shared" / "data"
ROWS = 20_000
"""Rows of a set that are compared: all of most, and all of all in the long form."""
LONGER = ("adsb", "beijing", "iot_env", "modes", "nfl", "running", "smart_meters", "wind", "zeek")
"""How the names of sets begin that have more rows."""
CUT_OFF = "household_power"
"""The set whose last line is cut off: one bad row."""
EMPTY_MAX = 4
"""Rows of a recorded set that have a time and nothing else."""
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


def to_the_end(sets: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Each set with how many of its rows are compared; the longer ones once more, with all."""
    short = [pytest.param(one, ROWS, id=one[0].partition("/")[0]) for one in sets]
    return short + [
        pytest.param(one, None, id=f"all-{one[0].partition('/')[0]}", marks=pytest.mark.long)
        for one in sets
        if one[0].startswith(LONGER)
    ]


def by_duckdb(
    path: Path, time: list[str], style: str | None, how: dict[str, Any], most: int | None
) -> list[int]:
    """The times of a file as somebody else reads them, in ms."""
    text = " || ' ' || ".join(f'"{name}"' for name in time)
    if style in {"s", "us"}:
        ms = f"round(({text})::DOUBLE * {1000 if style == 's' else 0.001})::BIGINT"
    elif style is None:
        ms = f"epoch_ms(({text})::TIMESTAMPTZ)"
    else:
        ms = f"epoch_ms(strptime({text}, '{style}'))"
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        table = head(db.read_csv(str(path), all_varchar=True, **how), most)
        return [found for (found,) in table.filter(f"({text}) IS NOT NULL").project(ms).fetchall()]


def head(table: duckdb.DuckDBPyRelation, most: int | None) -> duckdb.DuckDBPyRelation:
    """Its first rows, or all."""
    return table if most is None else table.limit(most)


TIMES: list[tuple[str, list[str], str | None, dict[str, Any]]] = [
    ("austin_dockless/1000_trips.csv.gz", ["Start Time"], "%m/%d/%Y %I:%M:%S %p", {}),
    (
        "beijing_air_quality/PRSA_12_stations_20130301_20151231.csv.gz",
        ["year", "month", "day", "hour"], "%Y %m %d %H", {},
    ),
    ("bikeshare_bayarea/stations.csv.gz", ["install_date"], "%Y-%m-%d", {}),
    ("dublin_bus/siri.20130131.csv.gz", ["c1"], "us",
     {"header": False, "names": [f"c{n}" for n in range(1, 16)]}),
    ("fitbit/heartrate_seconds_2022484408.csv.gz", ["Time"], "%m/%d/%Y %I:%M:%S %p", {}),
    (
        "household_power/household_power_first11d.txt.gz", ["Date", "Time"], "%d/%m/%Y %H:%M:%S",
        {"sep": ";", "quotechar": "", "ignore_errors": True},
    ),
    ("liverpool_bus/route14_outbound.csv.gz", ["timestamp"], None, {}),
    ("nfl_ngs_tracking/ngs_2018_45_plays.tsv.gz", ["time"], None, {"sep": "\t"}),
    ("nyc_taxi_trips/yellow_2024_01_first10k.csv.gz", ["tpep_pickup_datetime"], None, {}),
    ("open_bandit/bts_men.csv.gz", ["timestamp"], None, {}),
    ("running_gps_hr/runs.csv.gz", ["time"], None, {}),
    ("skab_pump_testbed/anomaly-free/anomaly-free.csv.gz", ["datetime"], None, {"sep": ";"}),
    ("smart_meters_sgsc/smart_meter10.csv.gz", ["reading_datetime"], None, {}),
    ("vending_machines/vending_machine_sales.csv.gz", ["TransDate"], "%A, %B %d, %Y", {}),
    ("wind_turbine_scada/T1.csv.gz", ["Date/Time"], "%d %m %Y %H:%M", {}),
    ("zeek_network_logs/dns.log.gz", ["ts"], "s",
     {"sep": "\t", "comment": "#", "header": False, "quotechar": "",
      "names": ["ts", *(f"f{n}" for n in range(23))]}),
]  # fmt: skip


@needs_data
@pytest.mark.parametrize(("of", "most"), to_the_end(TIMES))
def test_the_time_is_found_with_nothing_said_and_is_what_duckdb_reads(
    of: tuple[str, list[str], str | None, dict[str, Any]], most: int | None
):
    name, time, style, how = of
    path = DATA / name
    kind = recorded.detect(path)
    found = look(path, kind, None, None, Columns())
    assert list(found.time.names) == time
    bad = 0

    def rows() -> Iterator[Any]:
        nonlocal bad
        for row in islice(recorded.rows(path, kind, recorded.Tally()), most):
            bad += isinstance(row, BadRow)
            yield row

    ours = [one.t for one in to_readings(rows(), found.meaning) if not isinstance(one, BadRow)]
    theirs = by_duckdb(path, time, style, how, most)
    # Rows without any value are no readings: DuckDB keeps them.
    assert len(theirs) - len(ours) <= EMPTY_MAX
    assert bad == name.startswith(CUT_OFF)
    assert abs(min(ours) - min(theirs)) <= 1
    assert abs(max(ours) - max(theirs)) <= 1
    if len(ours) == len(theirs):
        assert all(abs(a - b) <= 1 for a, b in zip(ours, theirs, strict=True))


def numbers_by_duckdb(
    path: Path, time: list[str], names: list[str], how: dict[str, Any], most: int | None
) -> list[tuple[int, float]]:
    """Of each column: how many numbers, and their sum, as somebody else reads them."""
    timed = " AND ".join(f'"{name}" IS NOT NULL' for name in time)
    asked = ", ".join(
        f'count(TRY_CAST("{name}" AS DOUBLE)), coalesce(sum(TRY_CAST("{name}" AS DOUBLE)), 0)'
        for name in names
    )
    with duckdb.connect() as db:
        table = head(db.read_csv(str(path), all_varchar=True, **how), most)
        (found,) = table.filter(timed).aggregate(asked).fetchall()
        return list(zip(found[::2], found[1::2], strict=True))


def _zeek_names(path: Path) -> list[str]:
    with gzip.open(path, "rt") as lines:
        return next(line for line in lines if line.startswith("#fields")).split()[1:]


@needs_data
@pytest.mark.parametrize(("of", "most"), to_the_end(TIMES))
def test_every_number_comes_with_the_value_that_duckdb_reads(
    of: tuple[str, list[str], str | None, dict[str, Any]], most: int | None
):
    name, time, _, how = of
    path = DATA / name
    kind = recorded.detect(path)
    found = look(path, kind, None, None, Columns())
    numbers = {one.field: one.name for one in found.columns if one.field and one.kind == "number"}
    assert numbers or name.startswith("bikeshare"), found.columns
    rows = islice(recorded.rows(path, kind, recorded.Tally()), most)
    sums = dict.fromkeys(numbers, (0, 0.0))
    for one in to_readings(rows, found.meaning):
        if isinstance(one, BadRow):
            continue
        for field_name in numbers:
            value = one.fields.get(field_name)
            if value is not None:
                count, total = sums[field_name]
                sums[field_name] = (count + 1, total + value)
    if name.startswith("zeek"):
        how = how | {"names": _zeek_names(path)}
    theirs = numbers_by_duckdb(path, time, list(numbers.values()), how, most)
    for (field_name, ours), their in zip(sums.items(), theirs, strict=True):
        assert ours[0] == their[0], field_name
        assert ours[1] == pytest.approx(their[1], rel=1e-9, abs=1e-6), field_name


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


@needs_data
def test_the_engines_of_nasa_come_with_the_values_that_duckdb_reads(tmp_path: Path):
    """Parted by blanks, without names and without a time: a row is a cycle of an engine."""
    path = DATA / "nasa_cmapss/train_FD001.txt.gz"
    kind = recorded.detect(path)
    names = [f"c{number}" for number in range(1, 27)]
    found = look(path, kind, None, [], Columns(device_field="c1"))
    read = list(to_readings(recorded.rows(path, kind, recorded.Tally()), found.meaning))
    ours = [one for one in read if not isinstance(one, BadRow)]
    assert len(ours) == len(read) == 20_631
    # What pandas' sep=r"\s+" does; DuckDB knows one character between columns.
    plain = tmp_path / "engines.csv"
    with gzip.open(path, "rt") as lines, plain.open("w") as file:
        file.writelines(",".join(line.split()) + "\n" for line in lines)
    with duckdb.connect() as db:
        engines = db.read_csv(str(plain), header=False, names=names, dtype=["DOUBLE"] * 26)
        assert engines.shape == (20_631, 26)
        wanted = db.sql(
            "SELECT c1::INT, count(*), " + ", ".join(f"sum({n})" for n in names[1:])
            + " FROM engines GROUP BY 1 ORDER BY 1"
        ).fetchall()  # fmt: skip
    sums: dict[int, list[float]] = {}
    for one in ours:
        of = sums.setdefault(int(one.device), [0.0] * 26)
        of[0] += 1
        for at, name in enumerate(names[1:], 1):
            of[at] += one.fields[name]
    assert sorted(sums) == [row[0] for row in wanted]
    for engine, *theirs in wanted:
        assert sums[engine] == pytest.approx(theirs, rel=1e-9), engine
    # Its cycles are one after the other, and so are its times.
    times = [one.t for one in ours if one.device == "1"]
    assert times == sorted(set(times))


JSON_SETS = (
    ("adsb_switzerland/positions.jsonl.gz", "timestamp", 1),
    ("iot_env_telemetry/raw_data.jsonl.gz", "ts", 1000),
    ("modes_raw_messages/full_flight_short.jsonl.gz", "timestamp", 1000),
    ("meetup_rsvp/rsvps.jsonl.gz", "mtime", 1),
)
"""Sets of objects, the time of each, and how many ms its unit is."""


@needs_data
@pytest.mark.parametrize(("of", "most"), to_the_end(JSON_SETS))
def test_times_and_numbers_of_objects_are_those_that_duckdb_reads(
    of: tuple[str, str, int], most: int | None
):
    name, time, unit = of
    path = DATA / name
    kind = recorded.detect(path)
    found = look(path, kind, None, None, Columns())
    assert list(found.time.names) == [time]
    numbers = {one.field: one.name for one in found.columns if one.field and one.kind == "number"}
    assert numbers
    rows = islice(recorded.rows(path, kind, recorded.Tally()), most)
    ours = [one for one in to_readings(rows, found.meaning) if not isinstance(one, BadRow)]
    texts = {field_name: f"o->>'$.{column}'" for field_name, column in numbers.items()}
    sums = ", ".join(
        f"count(TRY_CAST({text} AS DOUBLE)), coalesce(sum(TRY_CAST({text} AS DOUBLE)), 0)"
        for text in texts.values()
    )
    with duckdb.connect() as db:
        db.execute(
            f"CREATE VIEW objects AS SELECT json AS o FROM read_json_objects('{path}', "
            "format = 'newline_delimited')" + ("" if most is None else f" LIMIT {most}")
        )
        times = db.sql(
            f"SELECT round((o->>'$.{time}')::DOUBLE * {unit})::BIGINT FROM objects"
        ).fetchall()
        (theirs,) = db.sql(f"SELECT {sums} FROM objects").fetchall()
    assert len(ours) == len(times)
    assert all(abs(a.t - b) <= 1 for a, (b,) in zip(ours, times, strict=True))
    for at, field_name in enumerate(texts):
        values = [one.fields[field_name] for one in ours if one.fields.get(field_name) is not None]
        assert len(values) == theirs[2 * at], field_name
        assert sum(values) == pytest.approx(theirs[2 * at + 1], rel=1e-9, abs=1e-6), field_name
