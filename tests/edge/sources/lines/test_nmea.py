"""Sentences of NMEA 0183 and reports of gpsd, right and wrong."""

from __future__ import annotations

import time
from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.lines import gpsd, nmea
from edgewake.protocol.errors import Rejected

RMC = "GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W"


def sentence(body: str) -> bytes:
    return f"${body}*{reduce(xor, body.encode(), 0):02X}".encode()


def test_position_speed_course_and_time() -> None:
    assert nmea.fields_of(sentence(RMC)) == {
        "sentence": "RMC", "t": 764426119000, "valid": True, "position_lat": 48.1173,
        "position_lon": 11.5166667, "speed_m_s": 11.524,
        "course_deg": 84.4,
    }  # fmt: skip
    south = nmea.fields_of(sentence("GNRMC,000000.50,A,0130.000,S,00030.000,W,,,010126,,,A"))
    assert south == {
        "sentence": "RMC",
        "t": 1767225600500,
        "valid": True,
        "position_lat": -1.5,
        "position_lon": -0.5,
    }


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ("GPRMC,,V,,,,,,,,,,N", {"valid": False}),
        (
            "GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,",
            {
                "position_lat": 48.1173,
                "position_lon": 11.5166667,
                "fix_quality": 1,
                "satellites": 8,
                "hdop": 0.9,
                "altitude_m": 545.4,
            },
        ),
        ("GPVTG,054.7,T,034.4,M,005.5,N,010.2,K", {"course_deg": 54.7, "speed_m_s": 2.829}),
        ("HEHDT,274.07,T", {"heading_deg": 274.07}),
        (
            "WIMWV,214.8,R,10.0,K,A",
            {"wind_angle_deg": 214.8, "wind_true": False, "wind_m_s": 2.778},
        ),
        ("SDDPT,76.1,-0.5", {"depth_m": 76.1, "depth_offset_m": -0.5}),
    ],
)
def test_other_sentences(body: str, fields: dict[str, object]) -> None:
    assert nmea.fields_of(sentence(body)) == {"sentence": body[2:5], **fields}


@pytest.mark.parametrize("body", ["GPGSV,1,1,00", "PGRME,15.0,M", "X", ""])
def test_a_sentence_of_a_kind_that_is_not_known_gives_nothing(body: str) -> None:
    assert nmea.fields_of(sentence(body)) is None


@pytest.mark.parametrize(
    "line",
    [
        sentence(RMC.replace("230394", "23031994")), sentence(RMC.replace("230394", "2303-1")),
        sentence(RMC.replace("123519", "1 3519")),
        sentence(RMC.replace("123519", "12351_")), sentence(RMC.replace(",N,", ",,")),
        sentence(RMC.replace(",E,", ",X,")),
        sentence(RMC.replace("4807.038", "+807.038")), sentence(RMC.replace("022.4", "0.2.4")),
        sentence(RMC.replace("022.4", "1-2")),
        sentence("GPGGA,123519,4807.038,N,01131.000,E,1_1,08,0.9,545.4,M,46.9,M,,"),
        sentence("GPGGA,123519,4807.038,N,01131.000,E,1,-8,0.9,545.4,M,46.9,M,,"),
        sentence(RMC)[:-1] + b"F", sentence(RMC)[:-3], sentence(RMC).replace(b"4807", b"4808"), b"",
        b"hello", b"$GPRMC*zz",
        sentence("GPRMC,123519,A,9907.038,N,01131.000,E,,,230394,,"),
        sentence("GPRMC,123519,A,4899.038,N,01131.000,E,,,230394,,"),
        sentence("GPRMC,123519,A,4807.038,N,01131.000,E,1e9,,230394,,"), sentence("GPRMC,1"),
        sentence("WIMWV,1,R,1,X,A"),
        sentence("GPRMC,993519,A,4807.038,N,01131.000,E,,,230394,,"),
        sentence("GPRMC,123519,A,4807.038,N,01131.000,E,,,319994,,"),
        sentence("GPGGA," + "1" * 200), b"$GPR\xffMC*00",
    ],
)  # fmt: skip
def test_a_sentence_that_is_wrong_is_refused(line: bytes) -> None:
    with pytest.raises(Rejected):
        nmea.fields_of(line)


def test_the_rest_of_a_sentence_that_was_cut_does_no_harm() -> None:
    assert nmea.fields_of(b"$GPRMC,1235" + sentence(RMC)) == nmea.fields_of(sentence(RMC))


@given(st.binary(max_size=130))
def test_any_bytes_are_fields_nothing_or_refused(line: bytes) -> None:
    for candidate in (
        line,
        sentence("GPRMC," + line.decode("latin-1").replace("*", ""))[:120]
        if line.isascii()
        else line,
    ):
        try:
            nmea.fields_of(candidate)
        except Rejected:
            continue


@given(st.integers(0, len(sentence(RMC)) * 8 - 1))
def test_no_single_flipped_bit_is_taken_for_a_position(bit: int) -> None:
    line = bytearray(sentence(RMC))
    line[bit // 8] ^= 1 << bit % 8
    try:
        found = nmea.fields_of(bytes(line))
    except Rejected:
        return
    assert found is None or found == nmea.fields_of(sentence(RMC)), (
        "the case of the checksum's letters"
    )


def test_reports_of_gpsd() -> None:
    line = (
        b'{"class":"TPV","mode":3,"time":"2026-11-22T08:00:00.500Z","lat":48.1,"lon":11.5,'
        b'"altHAE":500.5,"speed":1.5,"track":90.0}'
    )
    assert gpsd.fields_of(line) == {
        "report": "TPV", "t": 1795334400500, "fix_mode": 3, "position_lat": 48.1,
        "position_lon": 11.5, "altitude_m": 500.5,
        "speed_m_s": 1.5, "course_deg": 90.0,
    }  # fmt: skip
    assert gpsd.fields_of(b'{"class":"SKY","nSat":12,"uSat":7,"hdop":1.1}') == {
        "report": "SKY", "satellites": 12, "satellites_used": 7, "hdop": 1.1,
    }  # fmt: skip
    for nothing in (b'{"class":"VERSION"}', b'{"class":"TPV"}', b"{}"):
        assert gpsd.fields_of(nothing) is None


@pytest.mark.parametrize(
    "line",
    [b"[", b"[]", b'{"class":"TPV","lat":"x"}', b'{"class":"TPV","mode":1,"time":"no"}', b"\xff"],
)
def test_reports_that_are_wrong(line: bytes) -> None:
    with pytest.raises(Rejected):
        gpsd.fields_of(line)


WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            "A",
            "N",
            "S",
            "E",
            "W",
            "K",
            "T",
            "4807.038",
            "01131.000",
            "123519",
            "230394",
            "1e9",
            "nan",
            "-0",
            "9" * 20,
            ".",
        ]
    ),
    st.text("0123456789.-+_eE ", max_size=12),
)


@given(st.sampled_from(sorted(nmea.SENTENCES)), st.lists(WORDS, max_size=14))
def test_whatever_a_receiver_says_the_fields_are_a_sensible_reading_or_it_is_refused(
    kind: str, words: list[str]
) -> None:
    try:
        found = nmea.fields_of(sentence(",".join([f"GP{kind}", *words])))
    except Rejected:
        return
    for name, value in (found or {}).items():
        assert isinstance(value, str if name == "sentence" else int | float), name
        assert name == "sentence" or -1e30 < value < 1e30
    bounds = {"position_lat": 90, "position_lon": 180}
    assert all(abs((found or {}).get(name, 0)) <= bound for name, bound in bounds.items())  # type: ignore[arg-type]


def test_a_time_of_gpsd_without_a_zone_is_utc_wherever_the_device_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        found = gpsd.fields_of(b'{"class":"TPV","time":"2026-01-01T00:00:00.500","lat":1.5}')
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == {"report": "TPV", "position_lat": 1.5, "t": 1_767_225_600_500}


@pytest.mark.parametrize(
    "more",
    [
        '"mode":true',
        '"lat":"1"',
        '"lat":[1]',
        '"lat":1,"time":"yesterday"',
        '"lat":1,"time":"2026-13-01T00:00:00Z"',
    ],
)
def test_a_report_of_gpsd_that_says_no_number_or_no_time_is_refused(more: str) -> None:
    with pytest.raises(Rejected):
        gpsd.fields_of(f'{{"class":"TPV",{more}}}'.encode())
