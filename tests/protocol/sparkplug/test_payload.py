"""Values of Sparkplug's payloads become fields."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.protocol import varint
from edgewake.protocol.sparkplug.host import (
    Odd,
)
from edgewake.protocol.sparkplug.payload import value_of
from tests.protocol.sparkplug.test_host import Heard, T, values


@pytest.mark.parametrize(
    ("raw", "datatype", "value"),
    [
        (0xFF, 1, -1), (0xFFFFFFFF, 1, -1), (0xFFFB, 2, -5), (0xFFFFFFFF, 3, -1),
        (2**64 - 7, 4, -7), (2**64 - 7, 8, 2**64 - 7), (1, 11, True), (float("nan"), 10, None),
        (b"\x01\x00\xff\xff", 23, [1, -1]), (b"\x00\x00\x80\x3f", 30, [1.0]),
        (b"ab\0c\0", 33, ["ab", "c"]), (b"\x03\0\0\0\xa0", 32, [True, False, True]),
        (b"\x01\x02", 17, "0102"),
    ],
)  # fmt: skip
def test_values_by_their_types(raw: Any, datatype: int, value: Any) -> None:
    assert value_of(raw, datatype) == value


def field(number: int, value: bytes | int | str) -> bytes:
    """A field on the wire, written by the numbers of the specification and not by our schema."""
    if isinstance(value, int):
        return varint.encode(number << 3) + varint.encode(value)
    data = value.encode() if isinstance(value, str) else value
    return varint.encode(number << 3 | 2) + varint.encode(len(data)) + data


def metric_of(name: str, datatype: int, *value: bytes) -> bytes:
    return field(2, field(1, name) + field(4, datatype) + b"".join(value))


def test_a_data_set_is_a_list_of_its_rows() -> None:
    rows = [(7, "on"), (2**32 - 3, "off")]
    table = field(1, 2) + field(2, "level") + field(2, "word") + field(3, 3) + field(3, 12)
    for level, word in rows:
        cells = field(1, field(1, level)) + field(1, field(6, word))
        table += field(4, cells)
    data = field(1, T) + metric_of("alarms", 16, field(17, table)) + field(3, 0)
    heard = Heard()
    (found,) = values(heard("NBIRTH", data))
    assert found == {"alarms": [{"level": 7, "word": "on"}, {"level": -3, "word": "off"}]}


def test_a_data_set_that_contradicts_itself_is_refused() -> None:
    table = field(1, 2) + field(2, "level") + field(2, "word") + field(3, 3)
    data = field(1, T) + metric_of("alarms", 16, field(17, table)) + field(3, 0)
    (odd,) = Heard()("NBIRTH", data)
    assert (isinstance(odd, Odd) and odd.is_lost, "as many types" in str(odd)) == (True, True)


def test_a_template_is_the_metrics_in_it_and_its_definition_measures_nothing() -> None:
    def motor(*members: bytes, is_definition: int = 0) -> bytes:
        return field(18, b"".join(members) + field(4, "Motor") + field(5, is_definition))

    rpm, temp = metric_of("rpm", 3, field(10, 2**32 - 5)), metric_of("temp", 10, field(10, 0))
    inner = metric_of("fan", 19, motor(metric_of("on", 11, field(14, 1))))
    data = field(1, T)
    data += metric_of("_types_/Motor", 19, motor(rpm, temp, is_definition=1))
    data += metric_of("m1", 19, motor(rpm, inner)) + field(3, 0)
    heard = Heard()
    assert values(heard("NBIRTH", data)) == [{"m1/rpm": -5, "m1/fan/on": True}]
    # Later a part of it comes, without the type that its birth said.
    part = field(2, field(1, "rpm") + field(10, 2**32 - 6))
    later = field(2, field(1, "m1") + field(1, "m1") + field(18, part))
    assert values(heard("NDATA", field(1, T) + later + field(3, 1))) == [{"m1/rpm": -6}]


def quality(code: int) -> bytes:
    """Properties of a metric: its unit, and its quality."""
    unit, said = field(1, 12) + field(8, "Cel"), field(1, 3) + field(3, code)
    return field(9, field(1, "engUnit") + field(1, "Quality") + field(2, unit) + field(2, said))


@pytest.mark.parametrize(("code", "is_good"), [(192, True), (216, True), (0, False), (500, False)])
def test_a_value_that_its_node_calls_bad_or_stale_is_no_measurement(
    code: int, is_good: bool
) -> None:
    """As an edge node says the last values once more whose controller is dead."""
    speed, level = field(10, 7) + quality(code), field(10, 5)
    metrics = [("bdSeq", 4, field(11, 0)), ("speed", 3, speed), ("level", 3, level)]
    data = field(1, T) + b"".join(metric_of(*one) for one in metrics) + field(3, 0)
    events = Heard()("NBIRTH", data)
    kept = {"speed": 7} if is_good else {"speed": None, "speed_odd": "7"}
    assert values(events) == [kept | {"level": 5}]
    odd = [Odd("values that their node calls bad or stale")]
    assert [one for one in events if isinstance(one, Odd)] == ([] if is_good else odd)


def test_the_text_of_a_bad_value_takes_no_other_metrics_place() -> None:
    bad = metric_of("speed", 3, field(10, 7) + quality(0))
    data = field(1, T) + bad + metric_of("speed_odd", 3, field(10, 9)) + field(3, 0)
    kept = {"speed": None, "speed_odd": 9, "speed_odd_": "7"}
    assert values(Heard()("NBIRTH", data)) == [kept]


def test_the_quality_of_a_template_is_that_of_the_values_in_it() -> None:
    rpm = metric_of("rpm", 3, field(10, 5))
    motor = metric_of("m1", 19, field(18, rpm + field(4, "Motor")), quality(0))
    assert values(Heard()("NBIRTH", field(1, T) + motor + field(3, 0))) == [
        {"m1/rpm": None, "m1/rpm_odd": "5"}
    ]


def test_templates_in_templates_have_a_bound() -> None:
    inner = metric_of("x", 3, field(10, 1))
    for _ in range(20):
        inner = metric_of("t", 19, field(18, inner))
    (odd,) = Heard()("NBIRTH", field(1, T) + inner + field(3, 0))
    assert isinstance(odd, Odd)
    assert odd.is_lost
