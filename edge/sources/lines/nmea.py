"""Sentences of NMEA 0183 to fields.

Pure. The forms are those of the standard as receivers use it; the talker (GP, GN, …) is left out.

`$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*6A` gives event time,
position_lat, position_lon, speed_m_s, course_deg. A sentence of a kind that is not known gives
none, nor does a maker's own (`$P…`) or one that carries another format (`!AIVDM…`); one whose
checksum is wrong, or missing, is Rejected: serial lines drop bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import xor
from typing import Final

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.frame import Scalar

SENTENCE_BYTES_MAX: Final = 120
"""Bytes of a sentence. The standard says 82; receivers with many satellites write a few more."""
KNOT_M_S: Final = 1852 / 3600
MILE_M_S: Final = 1609.344 / 3600
PROPRIETARY: Final = "P"
"""First letter of a maker's own sentences, whatever follows: Garmin's PGRMC tells how a sensor is
set and has nothing to do with RMC."""
_CHECKSUM: Final = re.compile(rb"[0-9A-Fa-f]{2}")
_NUMBER: Final = re.compile(r"-?(\d+\.?\d*|\.\d+)", re.ASCII)
_DATE: Final = re.compile(r"\d{6}", re.ASCII)
_TIME: Final = re.compile(r"\d{6}(\.\d*)?", re.ASCII)
CENTURY_PIVOT: Final = 80
"""Years of two digits: 80 to 99 are 19…, the others 20…."""


def fields_of(line: bytes) -> Mapping[str, Scalar] | None:
    """The fields of a sentence; None for an unknown kind. Raises Rejected.

    `t` is among them where the sentence has date and time.
    """
    mark, words = _words(line)
    parse = SENTENCES.get(words[0][-3:])
    if parse is None or len(words[0]) != 5 or mark != "$" or words[0].startswith(PROPRIETARY):
        return None
    try:
        found = parse(words)
    except (ValueError, LookupError) as error:
        raise Rejected(
            RejectReason.SHAPE, f"a sentence {words[0]} that cannot be read: {error}"
        ) from error
    return {"sentence": words[0][-3:], **found} if found else None


def _words(line: bytes) -> tuple[str, list[str]]:
    """The sentence's first character, `$` or `!`, and its words up to `*`. Raises Rejected.

    The checksum is verified.
    """
    # What stands before is the rest of a sentence that was cut.
    start = max(line.rfind(b"$"), line.rfind(b"!"))
    if start < 0 or len(line) - start > SENTENCE_BYTES_MAX:
        raise Rejected(RejectReason.SHAPE, "expected a sentence of NMEA 0183")
    body, star, said = line[start + 1 :].strip().partition(b"*")
    try:
        right = (
            star and _CHECKSUM.fullmatch(said) is not None and int(said, 16) == reduce(xor, body, 0)
        )
        text = body.decode("ascii")
    except ValueError as error:
        raise Rejected(RejectReason.ENCODING, "a sentence with bytes that are not ASCII") from error
    if not right:
        raise Rejected(RejectReason.SHAPE, "a sentence whose checksum is wrong")
    return chr(line[start]), text.split(",")


def _rmc(words: Sequence[str]) -> Mapping[str, Scalar]:
    """Recommended minimum: time, status, position, speed, course, date."""
    if words[2] != "A":
        return {"valid": False}
    return _without_none(
        {
            "t": _time(words[9], words[1]),
            "valid": True,
            **_position(words[3:7]),
            "speed_m_s": _scaled(words[7], KNOT_M_S),
            "course_deg": _number(words[8]),
        }
    )


def _gga(words: Sequence[str]) -> Mapping[str, Scalar]:
    """Fix: position, quality, satellites, dilution, altitude."""
    return _without_none(
        {
            **_position(words[2:6]),
            "fix_quality": _count(words[6]) or 0,
            "satellites": _count(words[7]),
            "hdop": _number(words[8]),
            "altitude_m": _number(words[9]),
        }
    )


def _vtg(words: Sequence[str]) -> Mapping[str, Scalar]:
    """Course and speed over ground."""
    return _without_none(
        {"course_deg": _number(words[1]), "speed_m_s": _scaled(words[5], KNOT_M_S)}
    )


def _hdt(words: Sequence[str]) -> Mapping[str, Scalar]:
    """True heading."""
    return _without_none({"heading_deg": _number(words[1])})


def _mwv(words: Sequence[str]) -> Mapping[str, Scalar]:
    """Wind."""
    if words[5] != "A":
        return {}
    factor = {"N": KNOT_M_S, "M": 1.0, "K": 1 / 3.6, "S": MILE_M_S}[words[4]]
    return _without_none(
        {
            "wind_angle_deg": _number(words[1]),
            "wind_true": words[2] == "T",
            "wind_m_s": _scaled(words[3], factor),
        }
    )


def _dpt(words: Sequence[str]) -> Mapping[str, Scalar]:
    """Depth below the transducer."""
    return _without_none(
        {
            "depth_m": _number(words[1]),
            "depth_offset_m": _number(words[2]) if len(words) > 2 else None,
        }
    )


SENTENCES: Final[Mapping[str, Callable[[Sequence[str]], Mapping[str, Scalar]]]] = {
    "RMC": _rmc, "GGA": _gga, "VTG": _vtg, "HDT": _hdt, "MWV": _mwv, "DPT": _dpt,
}  # fmt: skip
"""Kinds of sentences that give readings."""


def _without_none(found: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    return {name: value for name, value in found.items() if value is not None}


def _number(word: str) -> float | None:
    if not word:
        return None
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"{word!r} is not a number")
    return float(word)


def _count(word: str) -> int | None:
    if not word:
        return None
    if not word.isdigit():
        raise ValueError(f"{word!r} is not a whole number")
    return int(word)


def _scaled(word: str, factor: float) -> float | None:
    value = _number(word)
    return None if value is None else round(value * factor, 3)


def _position(words: Sequence[str]) -> Mapping[str, Scalar]:
    """Degrees from `4807.038,N,01131.000,E`; nothing where there is no fix."""
    lat, north, lon, east = words
    if not lat or not lon:
        return {}
    if north not in ("N", "S") or east not in ("E", "W"):
        raise ValueError(f"{north!r}, {east!r}: no side of the equator and the meridian")
    return {
        "position_lat": _degrees(lat, 2, 90, north == "S"),
        "position_lon": _degrees(lon, 3, 180, east == "W"),
    }


def _degrees(word: str, digits: int, bound: int, negative: bool) -> float:
    degrees, minutes = word[:digits], _number(word[digits:]) or 0.0
    value = int(degrees) + minutes / 60 if degrees.isdigit() else -1.0
    if not 0 <= value <= bound or not 0 <= minutes < 60:
        raise ValueError(f"{word!r} is not an angle")
    return round(-value if negative else value, 7)


def _time(date: str, time: str) -> int | None:
    """Ms since 1970 of `230394` and `123519.25`; None where the receiver does not know them yet."""
    if not date or not time:
        return None
    if not _DATE.fullmatch(date) or not _TIME.fullmatch(time):
        raise ValueError(f"{date!r} {time!r} is not a date and time")
    year = int(date[4:6])
    seconds = float(time[4:])
    century = 1900 if year >= CENTURY_PIVOT else 2000
    day = datetime(
        century + year, int(date[2:4]), int(date[:2]), int(time[:2]), int(time[2:4]), tzinfo=UTC
    )
    if not 0 <= seconds < 61:
        raise ValueError(f"{time!r} is not a time")
    return round((day.timestamp() + seconds) * 1000)
