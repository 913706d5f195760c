"""InfluxDB's line protocol."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.protocol.errors import Rejected
from edgewake.protocol.maps.decoders.influx import points
from edgewake.protocol.maps.decoding import BadItem


def one(line: str) -> dict[str, Any]:
    (point,) = points(line.encode())
    assert isinstance(point, dict), point
    return point


def test_a_line_has_measurement_tags_fields_and_time() -> None:
    assert one('cpu,host=a,room=2 x=1.5,n=3i,up=t,name="a b" 1790000000000000000') == {
        "measurement": "cpu",
        "tags": {"host": "a", "room": "2"},
        "fields": {"x": 1.5, "n": 3, "up": True, "name": "a b"},
        "time": 1_790_000_000_000_000_000,
    }


def test_a_backslash_escapes_what_would_part_and_stays_before_all_else() -> None:
    assert one(r'a\ b,c\=d=e\,f g\\h=1,t="x\"\\y\n"') == {
        "measurement": "a b",
        "tags": {"c=d": "e,f"},
        "fields": {"g\\h": 1.0, "t": 'x"\\y\\n'},
    }


def test_a_line_break_in_quotes_ends_no_line_and_remarks_are_left_out() -> None:
    found = points(b'# remark\n\na t="x\ny"\r\nb v=1')
    assert [(point["measurement"], point["fields"]) for point in found] == [
        ("a", {"t": "x\ny"}), ("b", {"v": 1.0}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "why"),
    [("cpu", "a measurement and fields"), (",a=1 x=1", "a measurement before"),
     ("a,b x=1", "name=value"), ("a x=", "name=value"), ("a x=1 2 3", "and no more"),
     ("a x=1 soon", "an integer"), ("a x=nan", "a finite number"), ("a x=1_0", "finite number"),
     ("a x=9223372036854775808i", "64 bits"), ("a x=-1u", "64 bits"),
     ("a x=hello", "a number, text in quotes")],
)  # fmt: skip
def test_a_wrong_line_costs_itself_alone(line: str, why: str) -> None:
    bad, good = (
        points(f"{line}\nb v=1".encode()) if '"' not in line else (*points(line.encode()), {})
    )
    assert isinstance(bad, BadItem)
    assert why in str(bad.why)
    assert not isinstance(good, BadItem)


def test_no_more_lines_are_read_than_asked_for() -> None:
    assert len(points(b"a x=1\n" * 10, most=3)) == 3


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Rejected, match="encoding"):
        points(b"\xff\xfe a=1")
