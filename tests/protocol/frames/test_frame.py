"""Frames: what is encoded is decoded, and everything else is refused with a reason."""

import contextlib

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames.frame import Frame, Gap

NOW = 1_790_000_000_000

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50),
)
names = st.from_regex(r"[a-z][a-z0-9_]{0,10}x", fullmatch=True)


@st.composite
def a_frame(draw: st.DrawFn) -> Frame:
    n = draw(st.integers(1, 20))
    columns = st.lists(scalars, min_size=n, max_size=n)
    return Frame(
        epoch=draw(st.integers(0, frames.COUNTER_MAX)),
        frame=draw(st.integers(0, frames.COUNTER_MAX)),
        seq=draw(st.integers(0, frames.COUNTER_MAX)),
        t=draw(st.lists(st.integers(0, frames.TIME_MS_MAX), min_size=n, max_size=n)),
        fields=draw(st.dictionaries(names, columns, min_size=1, max_size=5)),
    )


@given(a_frame())
def test_a_frame_survives_encoding(frame: Frame) -> None:
    assert frames.decode(frames.encode(frame)) == frame


@given(a_frame())
def test_a_frame_survives_compression(frame: Frame) -> None:
    payload = frames.encode(frame)
    sent, content_type = frames.compress(payload)
    assert (frames.inflate(sent) if content_type == frames.FRAME_ZSTD_TYPE else sent) == payload


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_rejected(payload: bytes) -> None:
    for read in (frames.decode, frames.inflate, lambda p: frames.from_plain(p, received_at=NOW)):
        with contextlib.suppress(Rejected):
            read(payload)


def test_a_gap_frame_takes_the_numbers_it_replaces() -> None:
    gap = Frame(3, 14, 1103, (), {}, gap=Gap("quota", 200), first_frame=12)
    assert frames.decode(frames.encode(gap)) == gap


def body(**changes: object) -> bytes:
    base: dict[str, object] = {
        "epoch": 3,
        "frame": 12,
        "seq": 1,
        "t": [NOW, NOW],
        "fields": {"a": [1, None]},
    }
    return orjson.dumps(
        {name: value for name, value in (base | changes).items() if value is not ...}
    )


BAD_FRAMES = {
    "truncated": (body()[:-9], RejectReason.JSON),
    "NaN": (body().replace(b"null", b"NaN"), RejectReason.JSON),
    "not UTF-8": (body(fields={"a": ["x", "y"]}).replace(b"x", b"\xff"), RejectReason.ENCODING),
    "NUL in a string": (body(fields={"a": ["x\0", "y"]}), RejectReason.ENCODING),
    "depth 1000": (b"[" * 1000 + b"]" * 1000, RejectReason.SHAPE),
    "depth 100000": (b"[" * 100_000, RejectReason.JSON),
    "a list": (b"[1]", RejectReason.SHAPE),
    "no frame number": (body(frame=...), RejectReason.SHAPE),
    "a negative seq": (body(seq=-1), RejectReason.SHAPE),
    "an epoch of true": (body(epoch=True), RejectReason.SHAPE),
    "unequal columns": (body(fields={"a": [1]}), RejectReason.SHAPE),
    "a nested value": (body(fields={"a": [1, {}]}), RejectReason.SHAPE),
    "a reserved field": (body(fields={"device": ["b", "b"]}), RejectReason.SHAPE),
    "a field with a space": (body(fields={"a b": [1, 2]}), RejectReason.SHAPE),
    "no readings": (body(t=[], fields={}), RejectReason.OVERSIZE),
    "year 2101": (body(t=[NOW, 4_133_980_800_000]), RejectReason.TIME),
    "a time of text": (body(t=[NOW, "2026"]), RejectReason.TIME),
    "257 fields": (body(fields={f"f{i}": [1, 2] for i in range(257)}), RejectReason.OVERSIZE),
    "a long string": (body(fields={"a": ["x" * 8193, ""]}), RejectReason.OVERSIZE),
    "over a MiB": (
        body(fields={"a": ["x" * 8000, "y"]}) + b" " * 1024 * 1024,
        RejectReason.OVERSIZE,
    ),
}


@pytest.mark.parametrize(("payload", "reason"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_a_bad_frame_is_rejected_with_its_reason(payload: bytes, reason: RejectReason) -> None:
    with pytest.raises(Rejected) as refused:
        frames.decode(payload)
    assert refused.value.reason is reason


def test_a_decompression_bomb_is_refused_without_being_inflated() -> None:
    for bomb in (
        zstandard.compress(bytes(50_000_000)),
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50_000_000)),
    ):
        with pytest.raises(Rejected) as refused:
            frames.inflate(bomb)
        assert refused.value.reason is RejectReason.OVERSIZE


def test_a_plain_reading_becomes_a_frame_of_one() -> None:
    plain = frames.from_plain(
        b'{"speed":51.2,"door":{"open":true},"tags":["a",1]}', received_at=NOW
    )
    assert plain == Frame(
        None, None, None, [NOW], {"speed": [51.2], "door_open": [True], "tags": ['["a",1]']}
    )


@pytest.mark.parametrize(
    ("payload", "t", "fields"),
    [
        (
            b'{"DS18B20-1":{"Temperature":21.5},"mode":"heat"}',
            NOW,
            {"DS18B20_1_Temperature": [21.5], "mode_": ["heat"]},
        ),
        (b'{"t":"u","lat":1,"received_at":5}', NOW, {"lat": [1], "received_at_": [5], "t_": ["u"]}),
        (b'{"t":"2026-07-01T12:00:00Z","a":1}', 1_782_907_200_000, {"a": [1]}),
        (b'{"t":null,"a":1}', NOW, {"a": [1]}),
        (b'{"t":21,"h":48}', NOW, {"h": [48], "t_": [21]}),
        (b'{"t":21.5,"h":48}', NOW, {"h": [48], "t_": [21.5]}),
        (b'{"t":-3,"t_":7}', NOW, {"t_": [7], "t_856a5aa8": [-3]}),
        (b'{"t":1}', NOW, {"t_": [1]}),
        (b'{"a":{"b":2},"a_b":1}', NOW, {"a_b": [1], "a_b_1eef715d": [2]}),
    ],
)
def test_names_that_are_not_legal_are_made_so(
    payload: bytes, t: int, fields: dict[str, list[object]]
) -> None:
    """They refused the whole reading."""
    found = frames.from_plain(payload, received_at=NOW)
    assert (list(found.t), found.fields) == ([t], fields)


def test_a_plain_reading_may_number_itself() -> None:
    plain = frames.from_plain(b'{"speed":51.2,"t":1790000000001,"seq":7}', received_at=NOW)
    assert plain == Frame(0, 7, 7, [NOW + 1], {"speed": [51.2]})


@pytest.mark.parametrize(
    "payload",
    [b"{}", b'{"t":1790000000000}', b"5", b'{"seq":"x","a":1}', b'{"a":' * 9 + b"1" + b"}" * 9],
)
def test_a_plain_reading_without_sense_is_refused(payload: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        frames.from_plain(payload, received_at=NOW)
    assert refused.value.reason is RejectReason.SHAPE


@pytest.mark.parametrize("t", ["0001-01-01T00:00:00Z", "0001-01-01 00+00", "9999-12-31T23:59:59Z"])
def test_a_date_out_of_bounds_is_no_time(t: str) -> None:
    """Year 1 is what some languages write where there is no time; it cost the reading."""
    found = frames.from_plain(b'{"a":1,"t":"%b"}' % t.encode(), received_at=NOW)
    assert (list(found.t), found.fields) == ([NOW], {"a": [1], "t_": [t]})


def test_the_catalogue_is_told_where_a_field_comes_from_that_was_no_time() -> None:
    assert frames.renamed(b'{"t":21,"h":48}') == {"t_": "t"}
    assert frames.renamed(b'{"t":1790000000000,"h":48}') == {}


def test_1970_and_2099_are_taken_for_the_analysis_to_judge() -> None:
    assert frames.decode(body(t=[0, 4_102_444_799_999])).t == [0, 4_102_444_799_999]


class _Untouchable(dict[str, object]):
    """Counts the names that are looked at."""

    looks = 0

    def items(self):  # type: ignore[no-untyped-def]
        for one in super().items():
            type(self).looks += 1
            yield one


@pytest.mark.parametrize("inner", [1, {}, [1]], ids=["numbers", "empty objects", "lists"])
def test_too_many_fields_are_refused_before_a_look_at_each(inner: object) -> None:
    """An object of 90,000 names cost 280 ns a byte: a device could keep a bridge from all others
    with it.
    """
    _Untouchable.looks = 0
    wide = _Untouchable({f"f{i}": inner for i in range(90_000)})
    with pytest.raises(Rejected) as refused:
        frames.reading_of({"deep": wide, "t": 1}, now_ms=1)
    assert (refused.value.reason, _Untouchable.looks) == (RejectReason.OVERSIZE, 0)


def test_objects_in_one_another_are_bounded_too() -> None:
    body: dict[str, object] = {f"a{i}": {f"b{j}": {} for j in range(200)} for i in range(200)}
    with pytest.raises(Rejected, match="more than 256 objects in one another"):
        frames.reading_of(body, now_ms=1)


def test_keys_of_a_later_version_are_bounded() -> None:
    good = '{"epoch":1,"frame":1,"seq":1,"t":[1],"fields":{"a":[1]},"later":%s}'
    assert frames.decode((good % ("[" + ",".join(["0"] * 1000) + "]")).encode()).frame == 1
    with pytest.raises(Rejected, match="at most 1024 values of a later version"):
        frames.decode((good % ("[" + ",".join(["[]"] * 300_000) + "]")).encode())


def test_a_message_of_too_many_names_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And names in the texts of its strings are none."""
    wide = b"{" + b",".join(b'"f%d":1' % i for i in range(90_000)) + b"}"
    told = {
        "epoch": 1,
        "frame": 1,
        "seq": 1,
        "t": [1] * 9000,
        "fields": {"a": [orjson.dumps({"k": 1, "l": 2}).decode()] * 9000},
    }
    assert len(frames.decode(orjson.dumps(told)).t) == 9000
    monkeypatch.setattr(frames.orjson, "loads", lambda _payload: pytest.fail("it was read"))
    with pytest.raises(Rejected, match="90000 names: expected at most 256 fields"):
        frames.from_plain(wide, received_at=NOW)
    with pytest.raises(Rejected, match=r"9000[0-9] names"):
        frames.decode(b'{"epoch":1,"frame":1,"seq":1,"t":[1],"fields":' + wide + b"}")
