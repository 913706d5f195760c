"""Recorded sets of the real world as readings: which device, when, which numbers.

Beside the repository, at ../shared/data.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.analysis.support import data_file

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


class Recorded(NamedTuple):
    """One reading."""

    device: str
    t: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Recording:
    """A set, and the windows that suit it."""

    name: str
    fields: tuple[str, ...]
    size_ms: int
    slide_ms: int
    read: Callable[[], Iterator[Recorded]]

    def readings(self, most: int) -> list[Recorded]:
        """Every n-th reading, so that they are at most that many, of the whole recording."""
        found = list(self.read())
        return found[:: -(-len(found) // most)]


def _lines(folder: str, pattern: str) -> Iterator[tuple[Path, Iterator[str]]]:
    for path in sorted(data_file(folder).glob(pattern)):
        with gzip.open(path, "rt", encoding="utf-8-sig") as lines:
            yield path, lines


def _rows(
    folder: str, pattern: str = "*.csv.gz", *, delimiter: str = ","
) -> Iterator[tuple[Path, dict[str, str]]]:
    for path, lines in _lines(folder, pattern):
        for row in csv.DictReader(lines, delimiter=delimiter):
            yield path, row


def _ms(text: str, pattern: str) -> int:
    return int(datetime.strptime(text, pattern).replace(tzinfo=UTC).timestamp() * 1000)


def _numbers(row: dict[str, Any], names: dict[str, str]) -> dict[str, float]:
    """Field → number, without what is missing. `names`: column → field."""
    found = {}
    for column, name in names.items():
        try:
            found[name] = float(row[column])
        except (TypeError, ValueError):
            continue
    return found


def _sensors() -> Iterator[Recorded]:
    for _, lines in _lines("iot_env_telemetry", "*.jsonl.gz"):
        for line in filter(str.strip, lines):
            message = json.loads(line)
            yield Recorded(
                message["device"].replace(":", "-"),
                int(message["ts"] * 1000),
                _numbers(message["data"], {"temp": "temp", "smoke": "smoke"}),
            )


def _aircraft() -> Iterator[Recorded]:
    for _, lines in _lines("adsb_switzerland", "*.jsonl.gz"):
        for line in filter(str.strip, lines):
            row = json.loads(line)
            yield Recorded(
                row["icao24"],
                int(row["timestamp"]),
                _numbers(row, {"altitude": "altitude", "groundspeed": "speed"}),
            )


def _air() -> Iterator[Recorded]:
    for _, row in _rows("beijing_air_quality"):
        t = int(
            datetime(
                int(row["year"]), int(row["month"]), int(row["day"]), int(row["hour"]), tzinfo=UTC
            ).timestamp()
            * 1000
        )
        yield Recorded(row["station"], t, _numbers(row, {"PM2.5": "pm25", "TEMP": "temp"}))


def _dublin() -> Iterator[Recorded]:
    for _, lines in _lines("dublin_bus", "*.csv.gz"):
        for row in csv.reader(lines):
            yield Recorded(
                row[12], int(row[0]) // 1000, {"delay": float(row[10]), "lat": float(row[9])}
            )


def _steps() -> Iterator[Recorded]:
    for _, row in _rows("fitbit", "hourlySteps*.csv.gz"):
        yield Recorded(
            row["Id"],
            _ms(row["ActivityHour"], "%Y-%m-%d %H:%M"),
            _numbers(row, {"StepTotal": "steps"}),
        )


def _household() -> Iterator[Recorded]:
    for _, row in _rows("household_power", "*.txt.gz", delimiter=";"):
        t = _ms(f"{row['Date']} {row['Time']}", "%d/%m/%Y %H:%M:%S")
        yield Recorded(
            "house", t, _numbers(row, {"Global_active_power": "power", "Voltage": "voltage"})
        )


def _meters() -> Iterator[Recorded]:
    for _, row in _rows("smart_meters_sgsc"):
        t = _ms(row["reading_datetime"], "%Y-%m-%d %H:%M:%S")
        yield Recorded(row["customer_id"], t, _numbers(row, {"general_supply_kwh": "kwh"}))


def _turbine() -> Iterator[Recorded]:
    for _, row in _rows("wind_turbine_scada"):
        names = {"LV ActivePower (kW)": "power", "Wind Speed (m/s)": "wind"}
        yield Recorded("turbine", _ms(row["Date/Time"], "%d %m %Y %H:%M"), _numbers(row, names))


def _runs() -> Iterator[Recorded]:
    for _, row in _rows("running_gps_hr"):
        t = _ms(row["time"], "%Y-%m-%dT%H:%M:%SZ")
        yield Recorded(
            f"run-{row['session']}", t, _numbers(row, {"heart_rate": "heart", "speed": "speed"})
        )


def _machines() -> Iterator[Recorded]:
    for path, row in _rows("nab_metrics", "realAWSCloudwatch/*.csv.gz"):
        yield Recorded(
            path.name.split(".")[0],
            _ms(row["timestamp"], "%Y-%m-%d %H:%M:%S"),
            _numbers(row, {"value": "used"}),
        )


def _liverpool() -> Iterator[Recorded]:
    for _, row in _rows("liverpool_bus"):
        yield Recorded(
            row["vehicle_id"],
            _ms(row["timestamp"], "%Y-%m-%d %H:%M:%S"),
            _numbers(row, {"latitude": "lat", "bearing": "bearing"}),
        )


RECORDINGS: Final = (
    Recording("iot_env_telemetry", ("temp", "smoke"), 10 * MINUTE_MS, 5 * MINUTE_MS, _sensors),
    Recording("adsb_switzerland", ("altitude", "speed"), 5 * MINUTE_MS, 5 * MINUTE_MS, _aircraft),
    Recording("beijing_air_quality", ("pm25", "temp"), 7 * DAY_MS, 7 * DAY_MS, _air),
    Recording("dublin_bus", ("delay", "lat"), 10 * MINUTE_MS, 10 * MINUTE_MS, _dublin),
    Recording("fitbit", ("steps",), DAY_MS, 12 * HOUR_MS, _steps),
    Recording("household_power", ("power", "voltage"), 15 * MINUTE_MS, 5 * MINUTE_MS, _household),
    Recording("smart_meters_sgsc", ("kwh",), DAY_MS, DAY_MS, _meters),
    Recording("wind_turbine_scada", ("power", "wind"), 6 * HOUR_MS, 6 * HOUR_MS, _turbine),
    Recording("running_gps_hr", ("heart", "speed"), MINUTE_MS, MINUTE_MS, _runs),
    Recording("nab_metrics", ("used",), HOUR_MS, HOUR_MS, _machines),
    Recording("liverpool_bus", ("lat", "bearing"), 5 * MINUTE_MS, 5 * MINUTE_MS, _liverpool),
)
