"""NMEA 0183 position sentences, RMC and GGA of any talker, as one fix per moment. Pure.

    $GPRMC,hhmmss.ss,A,ddmm.mm,N,dddmm.mm,W,knots,course,ddmmyy,…*hh
    $GPGGA,hhmmss.ss,ddmm.mm,N,dddmm.mm,W,quality,satellites,hdop,altitude,M,…*hh

RMC brings the date, GGA the height; sentences of the same time of day become one fix: {"time": ISO
text, "lat", "lon", "speed_kmh", "course_deg", "altitude_m", "satellites", "hdop"}, what was not
said left out. Other sentences are passed over. Raises ValueError for a bad checksum and for fields
that cannot be read.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from functools import reduce
from typing import Any, Final

KNOT_KMH: Final = 1.852


def is_sentence(line: str) -> bool:
    """Does a line look like NMEA 0183?"""
    text = line.strip()
    return len(text) >= 9 and text[0] in "$!" and text[-3] == "*"


def checked(line: str) -> list[str]:
    """The fields of a sentence whose checksum is right, the address first; raises ValueError."""
    text = line.strip()
    if not is_sentence(text):
        raise ValueError(f"not NMEA 0183: {text[:30]!r}")
    body, _, said = text[1:].rpartition("*")
    found = reduce(lambda checksum, byte: checksum ^ byte, body.encode("ascii", "replace"), 0)
    if said.upper() != f"{found:02X}":
        raise ValueError(f"checksum {said}: expected {found:02X}")
    return body.split(",")


def degrees(text: str, side: str) -> float:
    """`ddmm.mm` and its side of the world as signed degrees; raises ValueError."""
    point = text.find(".") if "." in text else len(text)
    if point < 3 or side not in set("NSEW"):
        raise ValueError(f"position {text!r} {side!r}: expected ddmm.mm and N, S, E or W")
    value = int(text[: point - 2]) + float(text[point - 2 :]) / 60
    return round(-value if side in "SW" else value, 7)


class NmeaReader:
    """Puts the sentences of one moment together."""

    def __init__(self) -> None:
        self._date: date | None = None
        self._clock = ""
        self._fix: dict[str, Any] = {}

    def feed(self, line: str) -> dict[str, Any] | None:
        """Read a sentence; a fix where it begins another moment. Raises ValueError."""
        if not line.strip():
            return None
        address, *fields = checked(line)
        kind = address[2:]
        if kind not in {"RMC", "GGA"} or not fields or not fields[0]:
            return None
        new = _rmc(fields) if kind == "RMC" else _gga(fields)
        done = self.finish() if fields[0] != self._clock else None
        self._clock = fields[0]
        if kind == "RMC" and len(fields) > 8 and fields[8]:
            self._date = datetime.strptime(fields[8], "%d%m%y").date()  # noqa: DTZ007 - a date has no zone
        self._fix |= new
        return done

    def finish(self) -> dict[str, Any] | None:
        """The fix that is still open; None without one, or before a date was sent."""
        fix, self._fix = self._fix, {}
        if "lat" not in fix or self._date is None:
            return None
        return {"time": datetime.combine(self._date, _time(self._clock), UTC).isoformat(), **fix}


def _time(text: str) -> time:
    seconds = float(text[4:])
    return time(int(text[:2]), int(text[2:4]), int(seconds), round(seconds % 1 * 1e6) % 1_000_000)


def _rmc(fields: list[str]) -> dict[str, Any]:
    if len(fields) < 9:
        raise ValueError(f"RMC of {len(fields)} fields: expected 9 or more")
    _time(fields[0])
    if fields[1] != "A":
        return {}
    fix: dict[str, Any] = {
        "lat": degrees(fields[2], fields[3]),
        "lon": degrees(fields[4], fields[5]),
    }
    if fields[6]:
        fix["speed_kmh"] = round(float(fields[6]) * KNOT_KMH, 3)
    if fields[7]:
        fix["course_deg"] = float(fields[7])
    return fix


def _gga(fields: list[str]) -> dict[str, Any]:
    if len(fields) < 9:
        raise ValueError(f"GGA of {len(fields)} fields: expected 9 or more")
    _time(fields[0])
    if fields[5] in {"", "0"}:
        return {}
    fix: dict[str, Any] = {
        "lat": degrees(fields[1], fields[2]),
        "lon": degrees(fields[3], fields[4]),
    }
    for name, at in (("satellites", 6), ("hdop", 7), ("altitude_m", 8)):
        if fields[at]:
            fix[name] = int(fields[at]) if name == "satellites" else float(fields[at])
    return fix
