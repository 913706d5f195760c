"""Records: the frame's own bytes stay as they were made; readings come out flat and in order."""

import orjson
import pytest

from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.record import Discipline, Mode, Placement

FRAME = Frame(
    3,
    12,
    1101,
    [1_790_000_000_000, 1_790_000_001_000],
    {"speed": [51.2, None], "street": ["Quay", "Bridge"]},
)


def value() -> bytes:
    return records.encode(
        device="car-07",
        stream="vehicle_position",
        mode=Mode.ACK,
        sent_at=None,
        received_at=5,
        frame_bytes=frames.encode(FRAME),
    )


def test_the_frames_bytes_follow_the_envelope_unchanged() -> None:
    assert value().endswith(frames.encode(FRAME)[1:])
    assert orjson.loads(value())["device"] == "car-07"


def test_a_record_survives_encoding() -> None:
    record = records.decode(value())
    assert (record.device, record.stream, record.mode, record.sent_at, record.received_at) == (
        "car-07",
        "vehicle_position",
        Mode.ACK,
        None,
        5,
    )
    assert record.frame == FRAME


def test_readings_are_flat_in_order_and_leave_null_out() -> None:
    said = value().replace(b'"received_at":5', b'"received_at":1790000000130')
    first, second = records.readings(records.decode(said))
    assert (first["seq"], first["speed"], first["street"]) == (1101, 51.2, "Quay")
    assert (second["seq"], second["t"]) == (1102, 1_790_000_001_000)
    assert "speed" not in second


def test_a_placement_survives_encoding() -> None:
    placement = Placement(Discipline.ORDERED, "vehicle_position", 3, 12, 14, 1101, 5)
    assert placement.encode() == b"o|vehicle_position|3|12|14|1101|5"
    assert Placement.decode(placement.encode()) == placement


def test_the_clocks_are_found_without_reading_the_rest() -> None:
    assert records.times_of(value()) == (None, 5)
    said = records.encode(
        device="a",
        stream="s",
        mode=Mode.ACK,
        sent_at=7,
        received_at=9,
        frame_bytes=frames.encode(FRAME),
    )
    assert records.times_of(said) == (7, 9)


@pytest.mark.parametrize(("shift", "kept_at"), [(0, None), (-3_600_000, None), (0, 9), (20_000, 9)])
def test_what_was_found_out_about_the_clocks_stands_before_the_unchanged_record(
    shift: int, kept_at: int | None
) -> None:
    said = records.with_clocks(value(), shift=shift, kept_at=kept_at)
    record = records.decode(said)
    assert said.endswith(value()[1:])
    assert (record.shift, record.kept_at, record.frame, records.times_of(said)) == (
        shift,
        kept_at,
        FRAME,
        (None, 5),
    )


def test_nothing_is_written_where_nothing_is_wrong() -> None:
    assert records.with_clocks(value(), shift=0, kept_at=None) == value()
