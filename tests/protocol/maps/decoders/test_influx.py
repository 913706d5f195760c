"""InfluxDB's line protocol."""

from __future__ import annotations

import time
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
    "line",
    ['disk,model=WD\\ 3.5" v=1', 'disk,model="WD v=1', 'disk" v=1', 'disk v"=1', '# of 5" each',
     ' # of 5"', ' disk,model="WD v=1', 'disk v=1"', r'disk,a=b\ " v=1', "disk,a=b\\"],
)  # fmt: skip
@pytest.mark.parametrize("after", ["\n", "\r\n", " 1790000000000000000\n"])
def test_a_quote_that_begins_no_text_costs_no_line_after_it(line: str, after: str) -> None:
    """A disk of 3.5" in a tag took all lines of its message with it."""
    *_, one_more, last = points(f'{line}{after}b v=1\nc t="x\ny",v=2\n'.encode())
    assert (one_more["fields"], last["fields"]) == ({"v": 1.0}, {"t": "x\ny", "v": 2.0})


def test_a_quote_in_a_tag_is_a_letter_of_it() -> None:
    assert one('disk,model=WD\\ 3.5",path="/ t="x, y=\\"1\\" z",v=1 5') == {
        "measurement": "disk",
        "tags": {"model": 'WD 3.5"', "path": '"/'},
        "fields": {"t": 'x, y="1" z', "v": 1.0},
        "time": 5,
    }


def test_blanks_before_the_fields_and_the_time_are_one() -> None:
    assert one("a,b=c   x=1,y=2   5 ") == {
        "measurement": "a", "tags": {"b": "c"}, "fields": {"x": 1.0, "y": 2.0}, "time": 5,
    }  # fmt: skip


def test_what_has_quotes_without_end_is_read_once() -> None:
    """A message of a megabyte whose quotes never end costs what its length does."""
    began = time.process_time()
    assert len(points(b'a t="' + b'\\"=' * 200_000)) == 1
    assert len(points((b'a,b=" x=1' + b"=" * 90 + b"\n") * 2_000, most=3_000)) == 2_000
    assert time.process_time() - began < 5


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
