"""What a dead letter becomes when it is given back: decided without Kafka."""

from __future__ import annotations

import orjson
import pytest
import zstandard

from edgewake.cloud.bridge.admission.catalogue import AwaitsCatalogueError, NotNow
from edgewake.cloud.bridge.admission.items import without_wrong
from edgewake.cloud.ops.letters.letter_replay import (
    COPIES_APART_MS,
    FORGOTTEN_AT_ONCE,
    FirstKept,
    Replay,
    Replays,
    prepare,
)
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import FRAME_TYPE, FRAME_ZSTD_TYPE, Frame, Gap, encode
from edgewake.protocol.frames.packed import PACKED_TYPE, pack
from edgewake.protocol.frames.stream import FieldInfo, NameKind, Stream
from edgewake.protocol.ops.replay_row import ReplayRow
from tests.ops.builders import frame

RECEIVED_AT = 1_790_000_000_000
NOW = RECEIVED_AT + 3 * 86_400_000


def letter(topic: str = "ew/v1/car-7/up/s", content_type: str = "") -> DeadLetter:
    return DeadLetter(
        reason=RejectReason.FIELD_TYPE,
        detail="d",
        topic=topic,
        part="bridge-1",
        received_at=RECEIVED_AT,
        content_type=content_type,
    )


def stream(kind: FieldType, *, revision: int = 0) -> Stream:
    return Stream(name="s", fields={"v": FieldInfo(type=kind, revision=revision)})


def prepared(payload: bytes, content_type: str = "", kind: FieldType = FieldType.NUMBER) -> Replay:
    return prepare(letter(content_type=content_type), payload, stream(kind), now_ms=NOW)


def test_a_plain_reading_keeps_the_times_at_which_it_came() -> None:
    made = record.decode(prepared(b'{"v": 1}').value)
    assert (made.device, made.stream, made.received_at, list(made.frame.t), made.kept_at) == (
        "car-7",
        "s",
        RECEIVED_AT,
        [RECEIVED_AT],
        NOW,
    )


def test_a_frame_keeps_its_numbers_and_its_bytes() -> None:
    sent = encode(frame(12))
    replay = prepared(sent, FRAME_TYPE)
    assert record.decode(replay.value).frame == frame(12)
    assert replay.value.endswith(sent[1:])
    assert prepared(zstandard.compress(sent), FRAME_ZSTD_TYPE) == replay


@pytest.mark.parametrize(
    ("topic", "payload", "row", "refused"),
    [
        ("ew/v1/car-7/up/s", b'{"w": 1}', stream(FieldType.NUMBER), AwaitsCatalogueError),
        ("ew/v1/car-7/up/s", b'{"v": 1}', None, AwaitsCatalogueError),
        ("ew/v1/car-7/up/s", b'{"v": 1}', Stream(name="s", kind=NameKind.QUERY), Rejected),
        ("ew/v1/car-7/up/s", b'{"v": 1', stream(FieldType.NUMBER), Rejected),
        ("ew/v1/car-7/up/s", b'{"v": 1, "device": "car-8"}', stream(FieldType.NUMBER), Rejected),
        ("ew/v1/car-7/up/part_status", b'{"v": 1}', None, Rejected),
        ("ew/v1/car-7/status", b"{}", None, Rejected),
        ("ew.up car-7", b"{}", None, Rejected),
    ],
)
def test_what_the_bridges_would_not_accept_now_stays_a_letter(
    topic: str, payload: bytes, row: Stream | None, refused: type[Exception]
) -> None:
    with pytest.raises(refused):
        prepare(letter(topic), payload, row, now_ms=NOW)


def test_a_frame_of_another_type_stays_a_letter_until_somebody_decides() -> None:
    texts = encode(frame(12)._replace(fields={"v": ["21.5"] * len(frame(12).t)}))
    with pytest.raises(NotNow):
        prepare(letter(content_type=FRAME_TYPE), texts, stream(FieldType.NUMBER), now_ms=NOW)


DECIDED = Stream(
    name="s",
    fields={
        "v": FieldInfo(type=FieldType.NUMBER, revision=1),
        "w": FieldInfo(type=FieldType.NUMBER),
    },
)
TEXTS = Frame(
    epoch=3,
    frame=12,
    seq=40,
    t=[RECEIVED_AT + i for i in range(5)],
    fields={"v": ["21,5 °C", "warm", "on", None, "n/a"], "w": [1, 2, 3, 4, 5]},
)


@pytest.mark.parametrize("form", [FRAME_TYPE, FRAME_ZSTD_TYPE, PACKED_TYPE])
def test_a_frame_is_read_by_the_type_that_was_decided(form: str) -> None:
    """It was refused again and again, with all that was right in it."""
    sent = encode(TEXTS)
    forms = {FRAME_TYPE: sent, FRAME_ZSTD_TYPE: zstandard.compress(sent), PACKED_TYPE: pack(TEXTS)}
    found = prepare(letter(content_type=form), forms[form] or b"", DECIDED, now_ms=NOW)
    made = record.decode(found.value)
    assert made.frame == TEXTS._replace(
        fields={
            "v": [21.5, None, 1, None, None],
            "w": [1, 2, 3, 4, 5],
            "v_odd": [None, "warm", None, None, None],
        }
    )
    assert found.learns is not None
    assert found.learns.fields["v_odd"].type is FieldType.STRING
    assert found.is_unique
    again = prepare(letter(content_type=form), forms[form] or b"", found.learns, now_ms=NOW)
    assert again.same == found.same == "car-7|s|3|12|12"


def test_texts_that_an_agent_put_beside_are_values_again() -> None:
    """Its first value was a word, so it took the numbers after it for odd."""
    sent = encode(TEXTS._replace(
        t=TEXTS.t[:3],
        fields={"v": ["fast", None, "slow"], "v_odd": [None, "21.5", None]},
    ))  # fmt: skip
    row = DECIDED.model_copy(
        update={"fields": {**DECIDED.fields, "v_odd": FieldInfo(type=FieldType.STRING)}}
    )
    found = prepare(letter(content_type=FRAME_TYPE), sent, row, now_ms=NOW)
    assert record.decode(found.value).frame.fields == {
        "v": [None, 21.5, None],
        "v_odd": ["fast", None, "slow"],
    }


@pytest.mark.parametrize("taken_by", [FieldType.NUMBER, FieldType.BOOLEAN])
def test_a_frame_whose_texts_can_stand_nowhere_stays_a_letter(taken_by: FieldType) -> None:
    row = DECIDED.model_copy(
        update={"fields": {**DECIDED.fields, "v_odd": FieldInfo(type=taken_by)}}
    )
    with pytest.raises(Rejected, match="field 'v'"):
        prepare(letter(content_type=FRAME_TYPE), encode(TEXTS), row, now_ms=NOW)


def test_of_a_reading_that_was_set_aside_only_what_was_wrong_comes_back() -> None:
    """The rest passed with its frame, and was counted once more."""
    odd = TEXTS._replace(fields={"v": [1, 2, "21.5", 4, 5], "w": [1, 2, 3, 4, 5]})
    kept = without_wrong(odd, {"v": FieldType.NUMBER, "w": FieldType.NUMBER}, given=False)
    assert kept is not None
    (aside,) = kept[1]
    assert aside.payload == orjson.dumps({"t": RECEIVED_AT + 2, "v": "21.5", "w": 3})
    origin = letter().model_copy(update={"detail": aside.detail})
    found = prepare(origin, aside.payload, DECIDED, now_ms=NOW)
    made = record.decode(found.value).frame
    assert (made.t, made.fields) == ([RECEIVED_AT + 2], {"v": [21.5]})
    copy = prepare(origin, aside.payload, DECIDED, now_ms=NOW)
    first = row(found, 10)
    assert remembered(first).find(11, RECEIVED_AT, received_at=RECEIVED_AT, replay=copy) == first, (
        "the bridge took the frame twice, and set the reading aside twice"
    )


@pytest.mark.parametrize("revision", [0, 1], ids=["learnt", "decided"])
def test_a_plain_reading_with_an_odd_value_comes_back_with_its_text_beside(revision: int) -> None:
    """It was refused for good after the decision, and what was right in it with it."""
    row = stream(FieldType.NUMBER, revision=revision)
    found = prepare(letter(), b'{"v": "warm"}', row, now_ms=NOW)
    assert record.decode(found.value).frame.fields == {"v": [None], "v_odd": ["warm"]}
    assert found.learns is not None
    assert found.learns.fields["v_odd"].type is FieldType.STRING
    again = prepare(letter(), b'{"v": "warm"}', found.learns, now_ms=NOW)
    assert (again.value, again.learns) == (found.value, None)


@pytest.mark.parametrize("content_type", ["", "application/json", "text/plain; charset=utf-8"])
def test_an_odd_value_that_can_stand_nowhere_keeps_its_letter(content_type: str) -> None:
    """Told by its sender to be JSON, it was given back with null in its place and no word."""
    row = stream(FieldType.NUMBER)
    row = row.model_copy(
        update={"fields": row.fields | {"v_odd": row.fields["v"]}},
    )
    with pytest.raises(Rejected, match="field 'v': expected a number, found a string"):
        prepare(letter(content_type=content_type), b'{"v": "warm"}', row, now_ms=NOW)


def test_a_frame_is_not_given_back_without_some_of_its_readings() -> None:
    times = list(range(RECEIVED_AT, RECEIVED_AT + 8))
    odd = encode(Frame(1, 1, 8, times, {"v": [*range(7), "warm"]}, first_frame=1))
    with pytest.raises(Rejected, match="field 'v'"):
        prepare(letter(content_type=FRAME_TYPE), odd, stream(FieldType.NUMBER), now_ms=NOW)


def test_a_letter_that_lacks_more_than_a_text_waits_for_its_device() -> None:
    with pytest.raises(AwaitsCatalogueError):
        prepare(letter(), b'{"v": "warm", "w": 1}', stream(FieldType.NUMBER), now_ms=NOW)


def test_a_statement_of_loss_is_not_given_back() -> None:
    gap = encode(
        Frame(epoch=1, frame=4, seq=30, t=[], fields={}, gap=Gap("quota", 20), first_frame=3)
    )
    with pytest.raises(Rejected, match="expected readings"):
        prepared(gap, FRAME_TYPE)


def row(replay: Replay, offset: int, received_at: int = RECEIVED_AT) -> ReplayRow:
    return ReplayRow(
        letter=offset,
        letter_at=received_at,
        received_at=received_at,
        same=replay.same or "none",
        device="car-7",
        stream="s",
        partition=0,
        offset=5,
        replayed_at=NOW,
        holder="ann",
    )


def remembered(*rows: ReplayRow) -> Replays:
    replays = Replays()
    for one in rows:
        replays.change(one.key, one.model_dump_json().encode())
    return replays


PLAIN = prepared(b'{"v": 1}')
NUMBERED = prepared(b'{"v": 1, "seq": 5}')
FRAME = prepared(encode(frame(12)), FRAME_TYPE)
DAY = 86_400_000


@pytest.mark.parametrize(
    ("before", "now", "later_ms", "is_copy"),
    [
        (FRAME, FRAME, 0, True),
        (FRAME, FRAME, 30 * DAY, True),  # numbers of an agent are never used again
        (FRAME, prepared(encode(frame(13)), FRAME_TYPE), 0, False),
        (NUMBERED, NUMBERED, COPIES_APART_MS, True),
        (NUMBERED, NUMBERED, DAY, False),  # a plain device counts anew after each start
        (NUMBERED, prepared(b'{"v": 2, "seq": 5}'), 0, False),
        (PLAIN, PLAIN, 0, False),  # nothing tells two equal readings from two copies of one
    ],
)
def test_another_letter_with_a_copy_of_the_same_message_is_found(
    before: Replay, now: Replay, later_ms: int, is_copy: bool
) -> None:
    first = row(before, 10)
    found = remembered(first).find(
        11, RECEIVED_AT + later_ms, received_at=RECEIVED_AT + later_ms, replay=now
    )
    assert found == (first if is_copy else None)


def test_a_letter_is_found_again_and_not_taken_for_one_of_an_earlier_topic() -> None:
    replays = remembered(row(PLAIN, 10))
    assert replays.find(10, RECEIVED_AT, received_at=RECEIVED_AT, replay=PLAIN) is not None
    assert replays.find(10, RECEIVED_AT + 1, received_at=RECEIVED_AT + 1, replay=PLAIN) is None


def test_rows_go_when_their_letters_and_all_copies_of_them_are_gone() -> None:
    rows = [row(PLAIN, i, RECEIVED_AT + i) for i in range(2 * FORGOTTEN_AT_ONCE)]
    replays = remembered(*rows)
    at = RECEIVED_AT + COPIES_APART_MS
    assert replays.outlived(FirstKept(10_000, at)) == []
    assert replays.outlived(FirstKept(3, at + 1000)) == rows[:3]
    assert len(list(replays.outlived(FirstKept(10_000, at + 1000)))) == FORGOTTEN_AT_ONCE
    replays.change(rows[0].key, None)
    assert len(replays) == len(rows) - 1


def test_a_row_that_cannot_be_read_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="letter"):
        Replays().change("1|1", orjson.dumps({"offset": 1}))
