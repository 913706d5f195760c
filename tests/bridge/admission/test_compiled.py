"""What a compiled decoder accepts is what the protocol's own decoder accepts, and means the
same.
"""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.bridge.admission.catalogue import Catalogue
from edgewake.cloud.bridge.admission.compiled import CompiledStreams
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames.field_type import FieldType, types_of_kinds
from edgewake.protocol.frames.stream import FieldInfo, NameKind, Stream

NOW = 1_790_000_000_000
TYPES = {"speed": FieldType.NUMBER, "street": FieldType.STRING, "on": FieldType.BOOLEAN}


def compiled(types: dict[str, FieldType] = TYPES) -> CompiledStreams:
    catalogue = Catalogue(lambda: 0.0)
    row = Stream(name="s", fields={name: FieldInfo(type=kind) for name, kind in types.items()})
    catalogue.follow("s", row.model_dump_json().encode())
    return CompiledStreams(catalogue)


def frame(**change: object) -> bytes:
    body = {
        "epoch": 1,
        "frame": 2,
        "seq": 3,
        "t": [NOW, NOW + 1],
        "fields": {"speed": [1.5, 2], "street": ["a", None]},
    }
    return json.dumps(body | change).encode()


def test_a_frame_of_a_known_stream_is_decoded() -> None:
    assert compiled().frame("s", frame()) == (1, 2, 3, 2)


def test_a_plain_reading_of_a_known_stream_is_a_frame_of_one() -> None:
    found = compiled().plain(
        "s",
        b'{"t":%d,"seq":9,"speed":51.2,"device":"car"}' % (NOW - 5),
        device="car",
        received_at=NOW,
    )
    assert found is not None
    assert frames.decode(found.frame_bytes) == frames.Frame(0, 9, 9, [NOW - 5], {"speed": [51.2]})


@pytest.mark.parametrize(
    ("name", "kind"), [("part_status", NameKind.STREAM), ("top_streets", NameKind.QUERY)]
)
def test_a_name_that_no_device_may_send_gets_no_decoder(name: str, kind: NameKind) -> None:
    """Though the catalogue holds a row of it, and the reading fits."""
    catalogue = Catalogue(lambda: 0.0)
    row = Stream(name=name, kind=kind, fields={"part": FieldInfo(type=FieldType.STRING)})
    catalogue.follow(name, row.model_dump_json().encode())
    assert (
        CompiledStreams(catalogue).plain(name, b'{"part":"x"}', device="car", received_at=NOW)
        is None
    )
    assert CompiledStreams(catalogue).frame(name, frame(fields={"part": ["x", "y"]})) is None


SLOW = {
    "unequal columns": frame(fields={"speed": [1]}),
    "no readings": frame(t=[], fields={}),
    "a new field": frame(fields={"new": [1, 2]}),
    "another type": frame(fields={"speed": ["x", "y"]}),
    "a number for a boolean": frame(fields={"on": [1, 0]}),
    "a float for a counter": frame(seq=1.0),
    "a time after 2100": frame(t=[NOW, 2**52]),
    "a gap": json.dumps(
        {"epoch": 1, "frame": 2, "first_frame": 1, "seq": 3, "gap": {"reason": "quota", "count": 1}}
    ).encode(),
    "a key of a later version": frame(later=1),
    "an escape": json.dumps(
        {"epoch": 1, "frame": 2, "seq": 3, "t": [1], "fields": {"street": ["\0"]}}
    ).encode(),
    "a long string": frame(fields={"street": ["x" * 9000, None]}),
    "no UTF-8": frame().replace(b'"a"', b'"\xff"'),
    "a control character": frame().replace(b'"a"', b'"\x01"'),
    "over a mebibyte": frame() + b" " * (1 << 20),
}


@pytest.mark.parametrize("payload", SLOW.values(), ids=SLOW)
def test_all_else_is_left_to_the_decoder_that_explains(payload: bytes) -> None:
    assert compiled().frame("s", payload) is None


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b'{"t":1}',
        b'{"t":21,"speed":1}',
        b'{"device":"other","speed":1}',
        b'{"position":{"lat":1}}',
        b'{"speed":[1]}',
    ],
)
def test_a_plain_reading_that_is_not_simple_is_left_to_it_too(payload: bytes) -> None:
    assert compiled().plain("s", payload, device="car", received_at=NOW) is None


def test_an_unknown_stream_and_a_very_wide_one_have_no_decoder() -> None:
    assert compiled().frame("other", frame()) is None
    assert (
        compiled({f"f{i}": FieldType.NUMBER for i in range(200)}).frame(
            "s", frame(fields={"f1": [1, 2]})
        )
        is None
    )


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NAMES = st.sampled_from(["speed", "street", "on", "t", "new"])
COLUMNS = st.dictionaries(NAMES, st.lists(VALUES, max_size=3), max_size=3)
COUNTERS = st.integers(-1, 3) | st.floats(0, 3) | st.none()
FRAMES = st.fixed_dictionaries(
    {
        "epoch": COUNTERS,
        "frame": COUNTERS,
        "seq": COUNTERS,
        "t": st.lists(st.integers(-1, NOW) | st.floats(0, 9), max_size=3),
        "fields": COLUMNS,
    }
)
PLAIN = st.dictionaries(
    st.sampled_from(["speed", "street", "on", "t", "seq", "epoch", "device", "new"]),
    VALUES,
    max_size=6,
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", ":\t")])


@given(FRAMES, SEPARATORS, st.booleans())
def test_what_is_accepted_is_accepted_by_the_protocol_too_and_is_the_same_frame(
    body: object, separators: tuple[str, str], escaped: bool
) -> None:
    payload = json.dumps(body, separators=separators, ensure_ascii=escaped).encode(
        "utf-8", "surrogatepass"
    )
    if (found := compiled().frame("s", payload)) is not None:
        expected, kinds = frames.decode_with_kinds(payload, device="car")
        assert found == (expected.epoch, expected.frame, expected.seq, len(expected.t))
        assert types_of_kinds(kinds).items() <= TYPES.items()


@given(PLAIN, SEPARATORS, st.booleans())
def test_a_plain_reading_that_is_accepted_means_what_the_protocol_says(
    body: object, separators: tuple[str, str], escaped: bool
) -> None:
    payload = json.dumps(body, separators=separators, ensure_ascii=escaped).encode(
        "utf-8", "surrogatepass"
    )
    if (found := compiled().plain("s", payload, device="car", received_at=NOW)) is not None:
        expected, kinds = frames.from_plain_with_kinds(payload, received_at=NOW, device="car")
        assert orjson.loads(found.frame_bytes) == orjson.loads(frames.encode(expected))
        assert (found.epoch, found.seq) == (expected.epoch, expected.seq)
        assert types_of_kinds(kinds).items() <= TYPES.items()
