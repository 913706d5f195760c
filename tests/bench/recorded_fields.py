"""Fields of the recorded sets beside the repository (../shared/data), as lists of values in the
order of the files.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

DATA: Final = Path(__file__).parents[3] / "shared" / "data"
Value: TypeAlias = float | str


def _lines(file: str) -> Iterator[str]:
    with gzip.open(data() / file, "rt", encoding="utf-8", errors="replace") as lines:
        yield from lines


def data() -> Path:
    """Where the sets are: beside the main checkout, also from a worktree of it."""
    return next(
        (path for up in Path(__file__).parents if (path := up / "shared" / "data").is_dir()), DATA
    )


def _column(file: str, name: str, delimiter: str = ",") -> Iterator[str]:
    for row in csv.DictReader(_lines(file), delimiter=delimiter):
        if row.get(name):
            yield row[name]


def _json(file: str, *path: str) -> Iterator[Value]:
    for line in filter(str.strip, _lines(file)):
        value = json.loads(line)
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            yield value


def _zeek(file: str, name: str) -> Iterator[str]:
    place = None
    for line in _lines(file):
        cells = line.rstrip("\n").split("\t")
        if cells[0] == "#fields":
            place = cells.index(name) - 1
        elif (
            not line.startswith("#") and place is not None and cells[place] not in ("-", "(empty)")
        ):
            yield cells[place]


def _apache(group: int) -> Iterator[str]:
    for line in _lines("apache_clickstream/apache_logs.gz"):
        if found := re.match(r'(\S+) \S+ \S+ \[[^]]*\] "[^"]*" \d+ (\d+)', line):
            yield found[group]


def _numbers(texts: Iterator[str]) -> list[Value]:
    found: list[Value] = []
    for text in texts:
        try:
            found.append(float(text))
        except ValueError:
            continue
    return found


FIELDS: Final[Mapping[str, Callable[[], list[Value]]]] = {
    "adsb_switzerland groundspeed": lambda: list(
        _json("adsb_switzerland/positions.jsonl.gz", "groundspeed")
    ),
    "adsb_switzerland callsign": lambda: list(
        _json("adsb_switzerland/positions.jsonl.gz", "callsign")
    ),
    "apache_clickstream bytes": lambda: _numbers(_apache(2)),
    "apache_clickstream address": lambda: list(_apache(1)),
    "beijing_air_quality PM2.5": lambda: _numbers(
        _column("beijing_air_quality/PRSA_12_stations_20130301_20151231.csv.gz", "PM2.5")
    ),
    "bikeshare_bayarea duration": lambda: _numbers(
        _column("bikeshare_bayarea/trips.csv.gz", "duration")
    ),
    "bikeshare_bayarea zip_code": lambda: list(
        _column("bikeshare_bayarea/trips.csv.gz", "zip_code")
    ),
    "household_power Voltage": lambda: _numbers(
        _column("household_power/household_power_first11d.txt.gz", "Voltage", ";")
    ),
    "iot_env_telemetry co": lambda: list(
        _json("iot_env_telemetry/raw_data.jsonl.gz", "data", "co")
    ),
    "nab_metrics nyc_taxi": lambda: _numbers(
        _column("nab_metrics/realKnownCause/nyc_taxi.csv.gz", "value")
    ),
    "retail_transactions sales_value": lambda: _numbers(
        _column("retail_transactions/transactions_sample.csv.gz", "sales_value")
    ),
    "retail_transactions product_id": lambda: list(
        _column("retail_transactions/transactions_sample.csv.gz", "product_id")
    ),
    "smart_meters_sgsc kwh": lambda: _numbers(
        _column("smart_meters_sgsc/smart_meter10.csv.gz", "general_supply_kwh")
    ),
    "zeek_network_logs query": lambda: list(_zeek("zeek_network_logs/dns.log.gz", "query")),
}
"""Set and field → its values; numbers or texts."""
