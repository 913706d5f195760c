"""What receivers, sensors and multiplexers really say: no fix yet, other formats between, limits,
makers' own sentences.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.lines import nmea
from edgewake.edge.sources.lines.line_format import LineFormat, LineReader
from edgewake.edge.sources.lines.lines import LineSplitter
from edgewake.protocol.errors import Rejected
from tests.edge.sources.lines.test_nmea import RMC, sentence
from tests.edge.sources.sink import MemorySink, intake_of


def marked(body: str, mark: str = "$") -> bytes:
    return mark.encode() + sentence(body)[1:]


@pytest.mark.parametrize(
    "line",
    [
        marked("AIVDM,1,1,,A,15M67FC000G?ufbE`FepT@3n00Sa,0", "!"),
        marked("AIVDO,1,1,,,15M67FC000G?ufbE`FepT@3n00Sa,0", "!"),
        marked("AIRMC,123519,A,4807.038,N,01131.000,E,,,230394,,", "!"),
        sentence("PGRMC,A,218.8,100,6378137.000,298.257223563,0.0,0.0,0.0,A,3,1,1,4,30"),
        sentence("PGGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,"),
        sentence("PMTK001,314,3"),
        sentence("CCGPQ,RMC"),
        sentence("GPTXT,01,01,02,u-blox ag - www.u-blox.com"),
        sentence("RMC,123519,A"),
        sentence("GPRMCX,123519,A"),
        sentence("GPSDDPT,1,2"),
    ],
    ids=["AIS", "own AIS", "RMC after !", "Garmin's own", "a maker's own GGA", "MediaTek's own",
         "a question", "a text", "no talker", "a letter more",
         "a talker of four"],
)  # fmt: skip
def test_what_is_a_sentence_and_no_reading_gives_nothing_and_is_no_loss(line: bytes) -> None:
    """A ship's multiplexer sends more of these than of any other; each would be a loss that the
    cloud is told of.
    """
    sink = MemorySink()
    assert (
        LineReader(LineFormat.NMEA).readings(intake_of(sink), LineSplitter().feed(line + b"\r\n"))
        == []
    )
    assert sink.lost == {}


@pytest.mark.parametrize(
    "line",
    [
        sentence(RMC).replace(b"$", b"!")[:-2] + b"00",
        sentence(RMC)[:-2] + b"+A",
        sentence("GPVTG,1,T")[:-2] + b" 0",
        sentence(RMC) + b"0",
        sentence(RMC)[:-1],
        sentence(RMC)[:-2] + b"0x",
        sentence(RMC).replace(b"*", b"**"),
        b"$" + b"*00",
        b"*00",
    ],
    ids=[
        "! and a wrong checksum",
        "a sign in it",
        "a space in it",
        "three digits",
        "one digit",
        "a prefix",
        "two stars",
        "nothing",
        "no mark",
    ],
)
def test_a_checksum_is_two_digits_and_right(line: bytes) -> None:
    if line == b"$*00":
        assert nmea.fields_of(line) is None, "an empty sentence, whose checksum is right"
        return
    with pytest.raises(Rejected):
        nmea.fields_of(line)


def test_a_checksum_may_be_in_small_letters_and_spaces_may_follow() -> None:
    good = sentence(RMC)
    for line in (
        good[:-2] + good[-2:].lower(),
        good + b"  ",
        good + b"\r",
        b"  " + good,
        b"\\s:x*00\\" + good,
    ):
        assert nmea.fields_of(line) == nmea.fields_of(good)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("GPRMC,,V,,,,,,,,,,N", {"sentence": "RMC", "valid": False}),
        (
            "GPRMC,123519,V,4807.038,N,01131.000,E,022.4,084.4,230394,,",
            {"sentence": "RMC", "valid": False},
        ),
        ("GPRMC,,A,,,,,,,,,", {"sentence": "RMC", "valid": True}),
        ("GPRMC,123519,A,,,,,,,,,", {"sentence": "RMC", "valid": True}),
        ("GPRMC,,A,,,,,,,230394,,", {"sentence": "RMC", "valid": True}),
        ("GPGGA,,,,,,0,,,,,,,,", {"sentence": "GGA", "fix_quality": 0}),
        ("GPGGA,,,,,,,,,,,,,,", {"sentence": "GGA", "fix_quality": 0}),
        (
            "GPGGA,1,4807.038,N,,E,1,00,,,M,,M,,",
            {"sentence": "GGA", "fix_quality": 1, "satellites": 0},
        ),
        ("GPVTG,,T,,M,0.00,N,0.00,K", {"sentence": "VTG", "speed_m_s": 0.0}),
        ("GPVTG,,T,,M,,N,,K,N", None),
        ("HEHDT,,T", None),
        ("WIMWV,,R,,,V", None),
        ("WIMWV,1,R,1,N,V", None),
        ("SDDPT,,", None),
        ("SDDPT,3.5", {"sentence": "DPT", "depth_m": 3.5}),
    ],
)
def test_a_receiver_without_a_fix_says_what_it_knows(
    body: str, found: dict[str, object] | None
) -> None:
    assert nmea.fields_of(sentence(body)) == found


@pytest.mark.parametrize(("unit", "m_s"), [("N", 5.144), ("M", 10.0), ("K", 2.778), ("S", 4.47)])
def test_wind_comes_in_the_units_of_the_standard(unit: str, m_s: float) -> None:
    found = nmea.fields_of(sentence(f"WIMWV,10,T,10,{unit},A"))
    assert found == {"sentence": "MWV", "wind_angle_deg": 10.0, "wind_true": True, "wind_m_s": m_s}


@pytest.mark.parametrize(
    ("lat", "north", "lon", "east", "found"),
    [
        ("9000.000", "N", "18000.000", "E", (90.0, 180.0)),
        ("9000.000", "S", "18000.000", "W", (-90.0, -180.0)),
        ("0000.000", "N", "00000.000", "W", (0.0, 0.0)),
        ("0059.9999", "S", "00059.9999", "W", (-0.9999983, -0.9999983)),
        ("4807", "N", "01131", "E", (48.1166667, 11.5166667)),
        ("9000.001", "N", "00000.000", "E", None),
        ("0000.000", "N", "18000.001", "E", None),
        ("0060.000", "N", "00000.000", "E", None),
        ("00-1.000", "N", "00000.000", "E", None),
        ("-100.000", "N", "00000.000", "E", None),
        (" 100.000", "N", "00000.000", "E", None),
        ("4807.038", "n", "01131.000", "E", None),
        ("4807.038", "E", "01131.000", "N", None),
        ("²²07.038", "N", "01131.000", "E", None),
    ],
)
def test_a_position_is_on_the_globe_or_none(
    lat: str, north: str, lon: str, east: str, found: tuple[float, float] | None
) -> None:
    line = sentence(f"GPGGA,1,{lat},{north},{lon},{east},1,,,,,,,,")
    if found is None:
        with pytest.raises(Rejected):
            nmea.fields_of(line)
    else:
        fields = nmea.fields_of(line)
        assert fields is not None
        assert (fields["position_lat"], fields["position_lon"]) == found


@pytest.mark.parametrize(
    ("date", "time", "said"),
    [
        ("010180", "000000", "1980-01-01T00:00:00"),
        ("311279", "235959", "2079-12-31T23:59:59"),
        ("290224", "120000", "2024-02-29T12:00:00"),
        ("010126", "235959.999", "2026-01-01T23:59:59.999"),
        ("010126", "000000.", "2026-01-01T00:00:00"),
        ("290225", "120000", None),
        ("000126", "120000", None),
        ("320126", "120000", None),
        ("011326", "120000", None),
        ("010126", "240000", None),
        ("010126", "236000", None),
        ("010126", "235961", None),
        ("1126", "120000", None),
        ("010126", "1200", None),
    ],
)
def test_date_and_time_are_utc_and_of_the_calendar(date: str, time: str, said: str | None) -> None:
    line = sentence(f"GPRMC,{time},A,,,,,,,{date},,")
    if said is None:
        with pytest.raises(Rejected):
            nmea.fields_of(line)
    else:
        fields = nmea.fields_of(line)
        assert fields is not None
        assert fields["t"] == round(
            datetime.fromisoformat(said).replace(tzinfo=UTC).timestamp() * 1000
        )


def test_a_leap_second_is_the_next_second() -> None:
    fields = nmea.fields_of(sentence("GPRMC,235960,A,,,,,,,311216,,"))
    assert fields is not None
    assert fields["t"] == datetime(2017, 1, 1, tzinfo=UTC).timestamp() * 1000


def test_a_sentence_of_just_the_bound_is_read_and_one_byte_more_is_not() -> None:
    body = "GPTXT," + "x" * (nmea.SENTENCE_BYTES_MAX - len("$GPTXT,*00"))
    assert len(sentence(body)) == nmea.SENTENCE_BYTES_MAX
    assert nmea.fields_of(sentence(body)) is None
    with pytest.raises(Rejected):
        nmea.fields_of(sentence(body + "x"))


@given(st.integers(-90 * 10**4, 90 * 10**4), st.integers(-180 * 10**4, 180 * 10**4))
def test_any_place_is_found_again_within_a_metre(lat: int, lon: int) -> None:
    def word(value: int, digits: int) -> str:
        degrees, rest = divmod(abs(value), 10**4)
        return f"{degrees:0{digits}d}{rest * 60 / 10**4:08.5f}"

    line = (
        f"GNGGA,1,{word(lat, 2)},{'N' if lat >= 0 else 'S'},{word(lon, 3)},"
        f"{'E' if lon >= 0 else 'W'},1,,,,,,,,"
    )
    fields = nmea.fields_of(sentence(line))
    assert fields is not None
    assert fields["position_lat"] == pytest.approx(lat / 10**4, abs=1e-6)
    assert fields["position_lon"] == pytest.approx(lon / 10**4, abs=1e-6)
