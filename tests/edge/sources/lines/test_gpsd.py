"""Reports of gpsd."""

from __future__ import annotations

import pytest

from edgewake.edge.sources.lines import gpsd
from edgewake.protocol.errors import Rejected, RejectReason


@pytest.mark.parametrize(
    ("report", "found"),
    [
        (b'{"class":"VERSION","release":"3.22"}', None),
        (b'{"class":"DEVICES","devices":[]}', None),
        (b'{"lat":1}', None),
        (b'{"class":["TPV"],"lat":1}', None),
        (b'{"class":"TPV","mode":1}', {"report": "TPV", "fix_mode": 1}),
        (b'{"class":"TPV","device":"/dev/x"}', None),
        (b'{"class":"SKY","satellites":[{"PRN":1}],"hdop":1.2,"uSat":7}',
            {"report": "SKY", "hdop": 1.2, "satellites_used": 7}),
        (b'{"class":"TPV","lat":0,"lon":-0.5,"time":"2026-01-01T00:00:00.5Z"}',
         {"report": "TPV", "position_lat": 0, "position_lon": -0.5, "t": 1767225600500}),
        (b'{"class":"TPV","lat":1,"time":5}', {"report": "TPV", "position_lat": 1}),
        (b'{"class":"TPV","lat":1,"time":"2026-01-01T01:00:00+01:00"}',
            {"report": "TPV", "position_lat": 1, "t": 1767225600000}),
    ],
)  # fmt: skip
def test_reports_of_gpsd_give_what_they_know(
    report: bytes, found: dict[str, object] | None
) -> None:
    assert gpsd.fields_of(report) == found


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"class":"TPV"', RejectReason.JSON), (b"[]", RejectReason.SHAPE),
        (b"5", RejectReason.SHAPE),
        (b'{"class":"TPV","lat":"1"}', RejectReason.FIELD_TYPE),
        (b'{"class":"TPV","lat":true}', RejectReason.FIELD_TYPE),
        (b'{"class":"TPV","lat":1,"time":"now"}', RejectReason.TIME),
        (b'{"class":"TPV","lat":1,"time":"2026-13-01T00:00:00Z"}', RejectReason.TIME),
    ],
)  # fmt: skip
def test_a_report_that_is_none_is_refused_with_its_reason(
    line: bytes, reason: RejectReason
) -> None:
    with pytest.raises(Rejected) as refused:
        gpsd.fields_of(line)
    assert refused.value.reason is reason


def test_older_gpsds_write_nan_for_what_they_do_not_know() -> None:
    assert gpsd.fields_of(b'{"class":"TPV","lat":1.5,"altHAE":NaN,"speed":null}') == {
        "report": "TPV",
        "position_lat": 1.5,
    }
    assert gpsd.fields_of(b'{"class":"TPV","lat":NaN}') is None
