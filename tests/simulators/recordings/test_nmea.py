"""NMEA 0183 sentences become fixes; damaged ones are said."""

from __future__ import annotations

import pytest

from edgewake.simulators.recordings.nmea import NmeaReader, checked, degrees

RMC = "$GPRMC,123519.50,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*40"
GGA = "$GPGGA,123519.50,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*7A"


def sentence(body: str) -> str:
    checksum = 0
    for byte in body.encode():
        checksum ^= byte
    return f"${body}*{checksum:02X}"


def test_sentences_of_one_moment_become_one_fix():
    reader = NmeaReader()
    assert reader.feed(sentence(RMC[1:-3])) is None
    assert reader.feed(sentence(GGA[1:-3])) is None
    assert reader.finish() == {
        "time": "1994-03-23T12:35:19.500000+00:00", "lat": 48.1173, "lon": 11.5166667,
        "speed_kmh": 41.485, "course_deg": 84.4,
        "altitude_m": 545.4, "satellites": 8, "hdop": 0.9,
    }  # fmt: skip


def test_a_new_moment_closes_the_fix_before():
    reader = NmeaReader()
    reader.feed(sentence(RMC[1:-3]))
    fix = reader.feed(sentence("GNRMC,123520,A,4807.100,N,01131.000,W,,,230394,,"))
    assert fix["lat"] == 48.1173
    assert reader.finish() == {
        "time": "1994-03-23T12:35:20+00:00",
        "lat": 48.1183333,
        "lon": -11.5166667,
    }


def test_a_damaged_sentence_is_refused_by_its_checksum():
    with pytest.raises(ValueError, match="checksum 00: expected"):
        checked("$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*00")


def test_a_position_without_a_fix_is_none():
    reader = NmeaReader()
    reader.feed(sentence("GPRMC,123519,V,,,,,,,230394,,"))
    reader.feed(sentence("GPGGA,123519,,,,,0,00,,,M,,M,,"))
    assert reader.finish() is None


def test_a_fix_before_the_first_date_is_left_out():
    reader = NmeaReader()
    reader.feed(sentence(GGA[1:-3]))
    assert reader.finish() is None


@pytest.mark.parametrize(
    "body",
    [
        "GPRMC,12",
        "GPRMC,123519,A,48,N,01131.000,E,1,1,230394",
        "GPRMC,993519,A,4807.038,N,01131.000,E,1,1,230394",
        "GPRMC,123519,A,4807.038,Q,01131.000,E,1,1,230394",
        "GPRMC,123519,A,4807.038,N,01131.000,E,x,1,230394",
        "GPGGA,1,2",
    ],
)
def test_fields_that_cannot_be_read_are_said(body: str):
    with pytest.raises(ValueError, match=r"expected|must be|could not"):
        NmeaReader().feed(sentence(body))


@pytest.mark.parametrize(
    ("text", "side", "value"),
    [("4807.038", "S", -48.1173), ("00000.6", "W", -0.01), ("17959.99", "E", 179.9998333)],
)
def test_minutes_become_signed_degrees(text: str, side: str, value: float):
    assert degrees(text, side) == value
