"""Turns a line into a reading: JSON, text, CSV, InfluxDB line protocol, NMEA 0183 or gpsd.

It is the same for files, serial ports, connections, datagrams and programs.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

from edgewake.edge.intake.intake import Intake
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.lines import gpsd, nmea
from edgewake.edge.sources.lines.json_objects import readings_of_messages, readings_of_objects
from edgewake.edge.sources.lines.lines import TOO_LONG, Line
from edgewake.edge.sources.mapping import MappedConfig, MessageMaps
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.event_time import Say, of_device
from edgewake.protocol.frames.field_names import put_over
from edgewake.protocol.plain import Check, Length

COLUMNS_MAX: Final = 200
"""Columns of a line of CSV; a reading may have as many fields."""


class LineFormat(StrEnum):
    """The format of a line."""

    JSON = "json"  # an object
    TEXT = "text"  # becomes the field `line`
    NMEA = "nmea"  # a sentence of NMEA 0183, with its checksum
    GPSD = "gpsd"  # a report of gpsd
    CSV = "csv"  # values of `columns`
    INFLUX = "influx"  # a point of InfluxDB's line protocol


def _columns(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > COLUMNS_MAX or len(set(names)) < len(names) or "" in names:
        raise ValueError(f"expected at most {COLUMNS_MAX} names, each once")
    return names


class LinesConfig(MappedConfig):
    """A source of lines."""

    columns: Annotated[tuple[str, ...], Check(_columns)] = ()
    """With `format = "csv"`: names of the values of a line, in order. A line that repeats them is
    skipped."""
    separator: Annotated[str, Length(1, 1)] = ","
    """With `format = "csv"`: the separator of values; with `;` a decimal comma is accepted."""

    def check_columns(self, line_format: LineFormat) -> None:
        """Raises ValueError where they do not fit the format."""
        if (line_format is LineFormat.CSV) != bool(self.columns):
            raise ValueError('columns: expected with format = "csv", and with no other')

    def reader(self, line_format: LineFormat, maps: MessageMaps | None = None) -> LineReader:
        """Makes readings of lines, by maps where there are any."""
        return LineReader(line_format, self.columns, self.separator, maps)


class LineReader:
    """Reads the lines of one source."""

    def __init__(
        self,
        line_format: LineFormat,
        columns: Sequence[str] = (),
        separator: str = ",",
        maps: MessageMaps | None = None,
    ) -> None:
        self._format = line_format
        self._columns = tuple(columns)
        self._separator = separator
        self._parse = PARSERS.get(line_format, self._csv)
        self._maps = maps

    def readings(self, intake: Intake, lines: Sequence[Line]) -> Sequence[Reading]:
        """Return the readings in lines.

        Wrong lines are refused and counted, those of unknown kinds are left out.
        """
        if self._maps is not None:
            return readings_of_messages(self._maps, intake, lines)
        if self._format is LineFormat.JSON:
            return readings_of_objects(intake, lines)
        found = (self._reading(intake, line) for line in lines)
        return [reading for reading in found if reading is not None]

    def _reading(self, intake: Intake, line: Line) -> Reading | None:
        if line.too_long:
            intake.refuse(RejectReason.OVERSIZE, TOO_LONG)
            return None
        try:
            is_point = self._format is LineFormat.INFLUX
            fields = _influx(line.text, intake.remark) if is_point else self._parse(line.text)
        except Rejected as error:
            intake.refuse(error.reason, error.detail)
            return None
        return None if fields is None else intake.check(fields)

    def _csv(self, line: bytes) -> Mapping[str, Any] | None:
        """Raises Rejected."""
        text = _text(line)
        try:
            (row,) = csv.reader([text], delimiter=self._separator, skipinitialspace=True)
        except (csv.Error, ValueError) as error:
            raise Rejected(
                RejectReason.SHAPE, f"expected a line of CSV, found {text[:60]!r}"
            ) from error
        if tuple(row) == self._columns:
            return None
        if len(row) != len(self._columns):
            raise Rejected(
                RejectReason.SHAPE,
                f"{len(row)} values: expected the {len(self._columns)} of columns: {text[:60]!r}",
            )
        comma = self._separator != ","
        return {
            name: cell(value, decimal_comma=comma)
            for name, value in zip(self._columns, row, strict=True)
        }


def cell(text: str, *, decimal_comma: bool = False) -> Any:
    """A value of CSV: a number where it is one, nothing where it is empty, else text."""
    text = text.strip()
    if not text:
        return None
    plain = text.replace(",", ".", 1) if decimal_comma and "." not in text else text
    try:
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    except ValueError:
        return text


def _text(line: bytes) -> str:
    """Raises Rejected."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise Rejected(RejectReason.ENCODING, f"byte {error.start} is not UTF-8") from error


def _influx(line: bytes, say: Say) -> Mapping[str, Any] | None:
    """Parse line protocol into tags and fields side by side. Raises Rejected.

    The measurement is the field `measurement`. A field keeps its name before a tag. The unit of the
    time is seen by its size, as where such a line comes by MQTT or HTTP.
    """
    from edgewake.protocol.maps.decoders.influx import points
    from edgewake.protocol.maps.decoding import BadItem

    found = points(line, 1)
    if not found:
        return None  # a comment
    point = found[0]
    if isinstance(point, BadItem):
        raise point.why
    fields: dict[str, Any] = point["tags"]
    put_over(fields, point["fields"])
    put_over(fields, {"measurement": point["measurement"]})
    if "time" in point:
        try:
            put_over(fields, {"t": of_device(point["time"])})
        except ValueError:  # kept beside, as a `t` that says no time
            put_over(fields, {"t_": point["time"]})
            say("no time in time")
    return fields


PARSERS: Final[Mapping[LineFormat, Callable[[bytes], Mapping[str, Any] | None]]] = {
    LineFormat.NMEA: nmea.fields_of,
    LineFormat.GPSD: gpsd.fields_of,
    LineFormat.TEXT: lambda line: {"line": line.decode("utf-8", "replace")},
}
