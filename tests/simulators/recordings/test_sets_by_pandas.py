"""Recorded sets of real devices, row by row: each value at its instant and device is the one that
pandas reads, with nothing said but which column names the device.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest

from edgewake.simulators.recordings import rows as recorded
from edgewake.simulators.recordings.look import Look, look
from edgewake.simulators.recordings.readings import Columns, Reading, to_readings
from edgewake.simulators.recordings.rows import BadRow
from tests.simulators.recordings.test_recorded_sets import DATA, DUBLIN, needs_data

ROWS: Final = 2_000
"""Rows of a set that are compared; the long form compares all."""
MISSING: Final = ["?", "-", "(empty)"]
"""What the sets write for no value, beside what pandas takes for none by itself."""
S, US = "s", "us"


@dataclass(frozen=True)
class Table:
    """A set, and what has to be said to pandas."""

    path: str
    time: Sequence[str]
    style: str
    """Of the time, joined with a space: strptime, ISO8601, or a unit."""
    device: str | None = None
    keys: dict[str, Any] = field(default_factory=dict)
    """Of `read_csv`."""
    bad: int = 0
    """Lines that cannot be read, in all of it."""
    said: Columns = field(default_factory=Columns)
    """What has to be said to us."""

    @property
    def name(self) -> str:
        """The set."""
        return self.path.partition("/")[0]


def zeek(log: str) -> Table:
    """A log of Zeek: its names are in a line of its own."""
    return Table(
        f"zeek_network_logs/{log}.log.gz", ["ts"], S,
        keys={"sep": "\t", "header": None, "names": None, "skiprows": 8, "quoting": csv.QUOTE_NONE},
    )  # fmt: skip


WITHOUT_NAMES: Final = {"header": None, "names": DUBLIN}
TABLES: Final = [
    Table("austin_dockless/1000_trips.csv.gz", ["Start Time"], "%m/%d/%Y %I:%M:%S %p", "Device ID"),
    Table(
        "beijing_air_quality/PRSA_12_stations_20130301_20151231.csv.gz",
        ["year", "month", "day", "hour"], "%Y %m %d %H", "station",
    ),
    Table("bikeshare_bayarea/stations.csv.gz", ["install_date"], "%Y-%m-%d", "station_id"),
    Table("fitbit/heartrate_seconds_2022484408.csv.gz", ["Time"], "%m/%d/%Y %I:%M:%S %p", "Id"),
    Table(
        "household_power/household_power_first11d.txt.gz", ["Date", "Time"], "%d/%m/%Y %H:%M:%S",
        keys={"sep": ";", "quoting": csv.QUOTE_NONE}, bad=1,
    ),
    Table("liverpool_bus/route14_outbound.csv.gz", ["timestamp"], "ISO8601", "vehicle_id"),
    Table("nfl_ngs_tracking/ngs_2018_45_plays.tsv.gz", ["time"], "ISO8601", keys={"sep": "\t"}),
    Table("nyc_taxi_trips/yellow_2024_01_first10k.csv.gz", ["tpep_pickup_datetime"], "ISO8601"),
    Table("open_bandit/bts_men.csv.gz", ["timestamp"], "ISO8601"),
    Table("retail_transactions/transactions_sample.csv.gz", ["transaction_timestamp"], "ISO8601",
          "household_id"),
    Table("running_gps_hr/runs.csv.gz", ["time"], "ISO8601", "session"),
    Table("skab_pump_testbed/anomaly-free/anomaly-free.csv.gz", ["datetime"], "ISO8601",
          keys={"sep": ";"}),
    Table("smart_meters_sgsc/smart_meter10.csv.gz", ["reading_datetime"], "ISO8601", "customer_id"),
    Table("vending_machines/vending_machine_sales.csv.gz", ["TransDate"], "%A, %B %d, %Y",
          "Device ID"),
    Table("wind_turbine_scada/T1.csv.gz", ["Date/Time"], "%d %m %Y %H:%M"),
    Table("dublin_bus/siri.20130131.csv.gz", ["t"], US, "vehicle", WITHOUT_NAMES),
    *(zeek(log) for log in ("dns", "ssl", "weird")),
    *(
        Table(f"nab_metrics/realKnownCause/{name}.csv.gz", ["timestamp"], "ISO8601")
        for name in (
            "ambient_temperature_system_failure", "cpu_utilization_asg_misconfiguration",
            "ec2_request_latency_system_failure", "machine_temperature_system_failure",
            "nyc_taxi", "rogue_agent_key_hold", "rogue_agent_key_updown",
        )
    ),
]  # fmt: skip


def both_forms(sets: Iterable[Table]) -> list[Any]:
    """Each set with how many of its rows are compared, and once more with all."""
    found = []
    for one in sets:
        name = one.path.removesuffix(".gz").replace("/", "-")
        found.append(pytest.param(one, ROWS, id=name))
        found.append(pytest.param(one, None, id=f"all-{name}", marks=pytest.mark.long))
    return found


def ours(table: Table, most: int | None) -> tuple[Look, list[Reading], int]:
    """What is understood of a set, its readings, and how many lines are bad."""
    path = DATA / table.path
    kind = recorded.detect(path)
    names = DUBLIN if table.keys is WITHOUT_NAMES else None
    meaning = replace(table.said, device_field=table.device)
    times = list(table.said.time_fields) or None
    found = look(path, kind, names, times, meaning)
    read = recorded.rows(path, kind, recorded.Tally(), columns=names)
    made = list(to_readings(islice(read, most), found.meaning))
    readings = [one for one in made if not isinstance(one, BadRow)]
    return found, readings, len(made) - len(readings)


def theirs(table: Table, most: int | None) -> pd.DataFrame:
    """The cells of a set as pandas reads them."""
    path = DATA / table.path
    keys = table.keys
    if "names" in keys and keys["names"] is None:
        with gzip.open(path, "rt") as lines:
            names = next(line for line in lines if line.startswith("#fields")).split()[1:]
        keys = keys | {"names": names}
    frame = pd.read_csv(
        path, dtype=str, nrows=most, na_values=MISSING, skipinitialspace=True, **keys
    )
    return frame[~frame.iloc[:, 0].str.startswith("#", na=False)]


def ms(frame: pd.DataFrame, table: Table) -> np.ndarray[Any, Any]:
    """The times of rows as pandas reads them, in ms."""
    text = frame[table.time[0]]
    for name in table.time[1:]:
        text = text + " " + frame[name]
    if table.style in {S, US}:
        return np.asarray(text.astype(float) * (1000 if table.style == S else 0.001))
    read = pd.to_datetime(text, format=table.style, utc=True)
    return np.asarray(read.dt.as_unit("us").astype("int64") / 1000)


def compare(found: Look, readings: Sequence[Reading], frame: pd.DataFrame) -> None:
    """Each field of each reading, in order, against the column that it comes of."""
    compared = set()
    for column in found.columns:
        if not column.field or column.name not in frame:
            continue  # the time and the device; the texts of odd values are compared below
        own = [one.fields.get(column.field) for one in readings]
        text = frame[column.name].str.strip()
        if column.kind == "number":
            compare_numbers(column.field, own, text)
            odd = text.where(pd.to_numeric(text, errors="coerce").isna())
            compare_texts([one.fields.get(f"{column.field}_odd") for one in readings], odd)
        else:
            assert column.kind in {"text", "empty"}, column
            compare_texts(own, text)
        compared |= {column.field, f"{column.field}_odd"}
    assert {name for one in readings for name in one.fields} <= compared


def compare_numbers(name: str, own: Sequence[Any], text: pd.Series[str]) -> None:
    read = pd.to_numeric(text, errors="coerce").to_numpy(dtype=float)
    made = np.array([np.nan if one is None else one for one in own], dtype=float)
    np.testing.assert_allclose(made, read, rtol=1e-12, atol=0, equal_nan=True, err_msg=name)


def compare_texts(own: Sequence[Any], text: pd.Series[str]) -> None:
    assert list(own) == [None if pd.isna(one) else one for one in text]


@needs_data
@pytest.mark.parametrize(("table", "most"), both_forms(TABLES))
def test_each_value_at_its_instant_and_device_is_the_one_that_pandas_reads(
    table: Table, most: int | None
) -> None:
    found, readings, _ = ours(table, most)
    assert list(found.time.names) == list(table.time)
    frame = theirs(table, most)
    # Rows without a time, a device or any value are no readings.
    whole = [*table.time, *([table.device] if table.device else [])]
    frame = frame.dropna(subset=whole)
    frame = frame.dropna(how="all", subset=[one for one in frame.columns if one not in whole])
    if most is None and table.bad:
        frame = frame.iloc[: -table.bad]
    assert len(readings) == len(frame) > 0
    assert np.abs(np.array([one.t for one in readings]) - ms(frame, table)).max() <= 1
    if table.device:
        assert [one.device for one in readings] == frame[table.device].tolist()
    compare(found, readings, frame)


APACHE: Final = Table(
    "apache_clickstream/apache_logs.gz",
    ["c4", "c5"],
    "[%d/%b/%Y:%H:%M:%S %z]",
    "c1",
    {"sep": " ", "header": None, "names": [f"c{n}" for n in range(1, 12)], "on_bad_lines": "skip"},
    bad=1,
)
"""A web server's log in Apache's combined format, which is no table with a header: its time is in
brackets, with a blank inside."""


@needs_data
@pytest.mark.parametrize(("table", "most"), both_forms([APACHE]))
def test_the_log_of_a_web_server_is_a_table_parted_by_blanks(
    table: Table, most: int | None
) -> None:
    found, readings, bad = ours(table, most)
    assert list(found.time.names) == list(table.time)
    frame = theirs(table, most)
    assert len(readings) == len(frame)
    assert bad == (table.bad if most is None else 0)
    assert np.abs(np.array([one.t for one in readings]) - ms(frame, table)).max() <= 1
    assert [one.device for one in readings] == frame["c1"].tolist()
    compare(found, readings, frame)


@needs_data
@pytest.mark.parametrize("most", [ROWS, pytest.param(None, marks=pytest.mark.long)])
def test_the_engines_of_nasa_come_as_pandas_reads_them(most: int | None) -> None:
    """Parted by blanks, without names and without a time: a row is a cycle of an engine."""
    names = [f"c{number}" for number in range(1, 27)]
    keys = {"sep": r"\s+", "header": None, "names": names}
    table = Table("nasa_cmapss/train_FD001.txt.gz", [], "", "c1", keys)
    path = DATA / table.path
    kind = recorded.detect(path)
    found = look(path, kind, None, [], Columns(device_field="c1"))
    read = islice(recorded.rows(path, kind, recorded.Tally()), most)
    readings = [one for one in to_readings(read, found.meaning) if not isinstance(one, BadRow)]
    frame = theirs(table, most)
    assert len(readings) == len(frame) == (most or 20_631)
    assert [one.device for one in readings] == frame["c1"].tolist()
    compare(found, readings, frame)
    # Its cycles are one after the other, and so are its times.
    times = [one.t for one in readings if one.device == "1"]
    assert times == sorted(set(times))


OBJECTS: Final = [
    Table("adsb_switzerland/positions.jsonl.gz", ["timestamp"], "1", "icao24"),
    Table("iot_env_telemetry/raw_data.jsonl.gz", ["ts"], "1000", "device"),
    Table("modes_raw_messages/full_flight_short.jsonl.gz", ["timestamp"], "1000", "icao24"),
    Table("meetup_rsvp/rsvps.jsonl.gz", ["mtime"], "1"),
]
"""Sets of objects; `style` is how many ms the unit of the time is."""
KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "number": lambda one: isinstance(one, int | float) and not isinstance(one, bool),
    "text": lambda one: isinstance(one, str),
    "true or false": lambda one: isinstance(one, bool),
}


@needs_data
@pytest.mark.parametrize(("table", "most"), both_forms(OBJECTS))
def test_each_value_of_an_object_is_the_one_that_pandas_reads(
    table: Table, most: int | None
) -> None:
    found, readings, bad = ours(table, most)
    assert (list(found.time.names), bad) == (list(table.time), 0)
    read = pd.read_json(
        DATA / table.path, lines=True, nrows=most, dtype=False,
        precise_float=True,
    )  # fmt: skip
    frame = pd.json_normalize(read.to_dict("records"))
    assert len(readings) == len(frame) > 0
    times = frame[table.time[0]].astype(float).to_numpy() * int(table.style)
    assert np.abs(np.array([one.t for one in readings]) - times).max() <= 1
    if table.device:
        assert [one.device for one in readings] == frame[table.device].tolist()
    kinds = {one.field: one for one in found.columns if one.field and one.kind in KINDS}
    assert kinds
    for name, column in kinds.items():
        is_of = KINDS[column.kind]
        # A column that comes later than the rows that are compared is not in the frame.
        read_cells = frame.get(column.name, [None] * len(frame))
        cells = [one if is_of(one) and one == one else None for one in read_cells]
        made = [one.fields.get(name) for one in readings]
        own = [one if is_of(one) else None for one in made]
        if column.kind == "number":
            compare_numbers(name, own, pd.Series(cells, dtype=float))
        else:
            assert own == cells, name
