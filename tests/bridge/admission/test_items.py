"""One bad reading does not take the good ones of its frame with it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edgewake.cloud.bridge.admission.admit import Admitted, admit
from edgewake.cloud.bridge.admission.catalogue import (
    DEVICE_FIELDS_MAX,
    AwaitsCatalogueError,
    Catalogue,
    NotNow,
)
from edgewake.cloud.bridge.admission.envelope import Message
from edgewake.cloud.bridge.admission.items import ITEMS_MAX
from edgewake.protocol import topics
from edgewake.protocol.downlink.downlink import REQUESTS
from edgewake.protocol.downlink.request import request_of
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import packed, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import FRAME_TYPE, Frame
from edgewake.protocol.frames.packed import PACKED_TYPE
from edgewake.protocol.frames.stream import FieldInfo, Stream


def _taken(
    stream: str, fields: dict[str, list[Any]], catalogue: Catalogue, *, is_packed: bool = False
) -> Admitted:
    count = len(next(iter(fields.values())))
    frame = Frame(1, 1, 11, [1_790_000_000_000 + i for i in range(count)], fields)
    payload, kind = (
        (packed.pack(frame), PACKED_TYPE) if is_packed else (frames.encode(frame), FRAME_TYPE)
    )
    assert payload is not None
    message = Message(topics.up("dev", stream), payload, kind, topics.ack("dev"), b"1")
    while True:
        try:
            return admit(message, catalogue, received_at=5)
        except AwaitsCatalogueError:
            for row in catalogue.unpublished():
                catalogue.follow(row.name, row.model_dump_json().encode())


def _catalogue(revision: int = 0, /, **fields: FieldType) -> Catalogue:
    catalogue = Catalogue(lambda: 0.0)
    row = Stream(
        name="temps",
        first_device="dev",
        fields={
            name: FieldInfo(type=kind, revision=revision, first_device="dev")
            for name, kind in fields.items()
        },
    )
    catalogue.follow("temps", row.model_dump_json().encode())
    return catalogue


def test_a_text_among_numbers_is_set_aside_and_the_numbers_pass() -> None:
    found = _taken(
        "temps", {"v": [21.5, "nan", 18.1], "room": ["a", "b", "c"]}, _catalogue(v=FieldType.NUMBER)
    )
    kept = record.decode(found.value).frame
    assert (kept.seq, kept.fields) == (11, {"v": [21.5, None, 18.1], "room": ["a", "b", "c"]})
    (aside,) = found.aside
    assert orjson.loads(aside.payload) == {"t": 1_790_000_000_001, "v": "nan", "room": "b"}
    assert aside.detail == (
        "reading 12: field 'v': expected a number, found a string; what was right passed"
    )
    assert record.Placement.decode(found.placement).readings == 3


def test_of_a_new_field_the_first_value_decides() -> None:
    found = _taken("temps", {"v": [None, True, 3, False]}, Catalogue(lambda: 0.0))
    assert record.decode(found.value).frame.fields == {"v": [None, True, None, False]}
    assert [orjson.loads(one.payload)["v"] for one in found.aside] == [3]


def test_a_frame_that_has_the_wrong_type_throughout_waits_for_a_decision() -> None:
    with pytest.raises(NotNow):
        _taken("temps", {"v": ["on", "off", None]}, _catalogue(v=FieldType.NUMBER))


def test_a_frame_with_too_many_wrong_readings_is_refused_whole() -> None:
    with pytest.raises(Rejected, match="mixes"):
        _taken("temps", {"v": ["x"] * (ITEMS_MAX + 1) + [1.0]}, _catalogue(v=FieldType.NUMBER))


@pytest.mark.parametrize("is_packed", [False, True], ids=["json", "packed"])
def test_a_request_with_an_object_as_body_is_told_so_and_the_good_one_beside_it_is_asked(
    is_packed: bool,
) -> None:
    """The agent flattens the object: the frame has a column that no request has."""
    fields = {
        "id": ["r-1", "r-2"],
        "name": ["route", "route"],
        "body": ["to the depot", None],
        "body_to": [None, "depot"],
    }
    found = _taken(REQUESTS, fields, Catalogue(lambda: 0.0), is_packed=is_packed)
    good, bad = record.readings(record.decode(found.value))
    assert request_of(good).body == "to the depot"
    assert "wrong" not in good
    assert bad["id"] == "r-2"
    assert "field 'body_to': expected none" in str(bad["wrong"])
    assert [orjson.loads(one.payload)["body_to"] for one in found.aside] == ["depot"]


def test_a_frame_of_bad_requests_alone_is_refused() -> None:
    with pytest.raises(Rejected, match="expected the fields"):
        _taken(
            REQUESTS,
            {"id": ["r-1"], "name": ["route"], "body_to": ["depot"]},
            Catalogue(lambda: 0.0),
        )


def _plain(body: dict[str, Any], catalogue: Catalogue) -> tuple[dict[str, Any], Admitted]:
    """The reading of a plain device that asks for an answer, and all that came of its message."""
    message = Message(topics.up("dev", "temps"), orjson.dumps(body), None, topics.ack("dev"), b"1")
    while True:
        try:
            found = admit(message, catalogue, received_at=5)
        except AwaitsCatalogueError:
            for row in catalogue.unpublished():
                catalogue.follow(row.name, row.model_dump_json().encode())
        else:
            fields = record.decode(found.value).frame.fields
            return {name: column[0] for name, column in fields.items()}, found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"v": "warm", "n": 1}, {"v": None, "n": 1, "v_odd": "warm"}),
        ({"v": True}, {"v": None, "v_odd": "True"}),
        ({"v": "x" * 300}, {"v": None, "v_odd": "x" * 200}),
        ({"v": 1.5, "room": 7}, {"v": 1.5, "room": None, "room_odd": "7"}),
        ({"v": "", "room": "a"}, {"v": None, "room": "a"}),
        ({"v": None, "room": "a"}, {"v": None, "room": "a"}),
    ],
)
@pytest.mark.parametrize("revision", [0, 1], ids=["learnt", "decided"])
def test_an_odd_value_of_a_plain_reading_costs_itself_and_stands_beside(
    body: dict[str, Any], expected: dict[str, Any], revision: int
) -> None:
    """It cost the whole reading, and a device that waits for answers stood still at it."""
    catalogue = _catalogue(revision, v=FieldType.NUMBER, room=FieldType.STRING)
    found, admitted = _plain(body, catalogue)
    assert (found, list(admitted.aside)) == (expected, [])


LONG = "v" * 62


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"v": "warm", "v_odd": "mine"}, {"v": None, "v_odd": "mine"}),
        ({"v": "warm", "n": 1}, {"v": None, "n": 1}),
        ({LONG: "warm"}, {LONG: None}),
    ],
    ids=["taken", "another type", "too long"],
)
def test_what_cannot_stand_beside_is_set_aside_and_the_rest_of_its_reading_passes(
    body: dict[str, Any], expected: dict[str, Any]
) -> None:
    beside = FieldType.STRING if "v_odd" in body else FieldType.NUMBER
    known = {"v": FieldType.NUMBER, "v_odd": beside, LONG: FieldType.NUMBER}
    found, admitted = _plain(body, _catalogue(**known))
    assert found == expected
    assert [orjson.loads(one.payload) for one in admitted.aside] == [{"t": 5, **body}]


def test_a_device_without_room_for_one_more_field_sets_aside_what_was_odd() -> None:
    full = {f"f{n}": FieldType.NUMBER for n in range(DEVICE_FIELDS_MAX)}
    found, admitted = _plain({"f0": "warm", "f1": 2}, _catalogue(**full))
    assert found == {"f0": None, "f1": 2}
    assert "field 'f0': expected a number, found a string" in admitted.aside[0].detail


@pytest.mark.parametrize("word", ["unavailable", "N/A", "unknown", "none", " nan ", ""])
def test_a_word_for_no_value_tells_no_type(word: str) -> None:
    """A sensor that was away at the first reading made its field a text for ever."""
    catalogue = Catalogue(lambda: 0.0)
    assert _plain({"v": word, "n": 1}, catalogue)[0] == {"v": None, "n": 1}
    assert _plain({"v": 21.5, "n": 2}, catalogue)[0] == {"v": 21.5, "n": 2}
    assert catalogue.expected("temps")[0] == {"v": FieldType.NUMBER, "n": FieldType.NUMBER}


def test_a_word_for_no_value_is_a_text_where_the_field_is_one() -> None:
    found, _ = _plain({"v": "unknown"}, _catalogue(v=FieldType.STRING))
    assert found == {"v": "unknown"}


def test_a_request_of_a_plain_device_with_a_wrong_value_is_refused() -> None:
    message = Message(topics.up("dev", REQUESTS), b'{"id":1,"name":"route"}', None, None, None)
    with pytest.raises(Rejected, match="expected the fields"):
        admit(message, Catalogue(lambda: 0.0), received_at=5)
