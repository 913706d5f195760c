"""A publish becomes a record, or is refused with its reason."""

import contextlib

import mqtt5
import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.bridge.admission.admit import Admitted, admit_status, can_answer
from edgewake.cloud.bridge.admission.admit import admit as admit_now
from edgewake.cloud.bridge.admission.catalogue import AwaitsCatalogueError, Catalogue, NotNow
from edgewake.cloud.bridge.admission.envelope import Envelope, Message
from edgewake.cloud.bridge.admission.expand_compact import expand_compact
from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.admission.records import is_answerable
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import compact, record
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames.compact import COMPACT_TYPE, Compact
from edgewake.protocol.frames.frame import FRAME_TYPE, FRAME_ZSTD_TYPE, Frame, Gap
from edgewake.protocol.frames.packed import PACKED_TYPE, pack
from edgewake.protocol.frames.record import Discipline, Mode, Placement, content_of
from edgewake.protocol.maps import presets
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
from tests.payloads.corpus import broken, messages, payload_of

NOW = 1_790_000_000_000
FRAME = Frame(3, 12, 1101, [NOW, NOW + 1], {"speed": [51.2, None]})


def publish(
    payload: bytes,
    *,
    topic: str = "ew/v1/car/up/pos",
    qos: int = 1,
    response_topic: str | None = "ew/v1/car/ack",
    **more: object,
) -> mqtt5.PublishPacket:
    quality = mqtt5.QoS.AT_LEAST_ONCE if qos else mqtt5.QoS.AT_MOST_ONCE
    return mqtt5.PublishPacket(
        topic,
        payload,
        qos=quality,
        packet_id=7 if qos else None,
        response_topic=response_topic,
        **more,
    )


def admit(message: Envelope, catalogue: Catalogue, *, received_at: int) -> Admitted:
    """Admit a message; what is new in it is confirmed at once."""
    with contextlib.suppress(AwaitsCatalogueError):
        return admit_now(message, catalogue, received_at=received_at)
    for row in catalogue.unpublished():
        catalogue.follow(row.name, row.model_dump_json().encode())
    return admit_now(message, catalogue, received_at=received_at)


def a_catalogue() -> Catalogue:
    return Catalogue(lambda: 0.0)


def admitted(
    packet: mqtt5.PublishPacket, catalogue: Catalogue | None = None
) -> tuple[record.Record, Placement]:
    result = admit(packet, catalogue or a_catalogue(), received_at=NOW)
    return record.decode(result.value), Placement.decode(result.placement)


def refusal(packet: mqtt5.PublishPacket) -> RejectReason:
    with pytest.raises(Rejected) as refused:
        admit(packet, a_catalogue(), received_at=NOW)
    return refused.value.reason


def test_a_frames_own_bytes_pass_unchanged_behind_the_envelope() -> None:
    payload = frames.encode(FRAME)
    result = admit(publish(payload, content_type=FRAME_TYPE), a_catalogue(), received_at=NOW)
    assert result.value.endswith(payload[1:])
    assert result.device == "car"


def test_a_compressed_frame_passes_inflated_and_ordered() -> None:
    packed = zstandard.ZstdCompressor().compress(frames.encode(FRAME))
    taken, placement = admitted(publish(packed, content_type=FRAME_ZSTD_TYPE))
    assert (taken.device, taken.stream, taken.mode, taken.frame) == ("car", "pos", Mode.ACK, FRAME)
    assert placement == Placement(Discipline.ORDERED, "pos", 3, 12, 12, 1101, 2)


def test_a_gap_frame_takes_the_numbers_it_replaces() -> None:
    gap = frames.encode(Frame(3, 14, 1103, (), {}, gap=Gap("quota", 200), first_frame=13))
    _, placement = admitted(publish(gap, content_type=FRAME_TYPE))
    assert placement == Placement(Discipline.ORDERED, "pos", 3, 13, 14, 1103, 200)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_frame_whose_device_waits_for_no_answer_is_waited_for_by_nobody(qos: int) -> None:
    taken, placement = admitted(
        publish(frames.encode(FRAME), content_type=FRAME_TYPE, qos=qos, response_topic=None)
    )
    assert (taken.mode, placement.discipline) == (Mode.ONE_WAY, Discipline.NUMBERED)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_frame_whose_device_waits_for_the_answer_is_ordered_whatever_its_qos(qos: int) -> None:
    taken, placement = admitted(publish(frames.encode(FRAME), content_type=FRAME_TYPE, qos=qos))
    assert (taken.mode, placement.discipline) == (Mode.ACK, Discipline.ORDERED)


SENT_AT = NOW - 70


def compacted(
    content_type: str, body: bytes, topic: str = "ew/v1/car/up/pos"
) -> mqtt5.PublishPacket:
    payload = compact.encode(
        Compact(SENT_AT, FRAME.epoch or 0, FRAME.frame or 0, content_type, body)
    )
    packet = mqtt5.PublishPacket(
        topic, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7, content_type=COMPACT_TYPE
    )
    found = expand_compact(packet)
    assert isinstance(found, mqtt5.PublishPacket)
    return found


@pytest.mark.parametrize("form", ["json", "zstd", "packed"])
def test_every_compact_message_is_the_record_of_the_message_that_it_stands_for(form: str) -> None:
    text = frames.encode(FRAME)
    bodies = {
        "json": (FRAME_TYPE, text),
        "zstd": (FRAME_ZSTD_TYPE, zstandard.compress(text)),
        "packed": (PACKED_TYPE, pack(FRAME) or b""),
    }
    whole = publish(text, content_type=FRAME_TYPE, user_properties=[("sent_at", str(SENT_AT))])
    found = compacted(*bodies[form])
    assert admit(found, a_catalogue(), received_at=NOW) == admit(
        whole, a_catalogue(), received_at=NOW
    )
    assert (found.packet_id, found.response_topic, found.correlation_data) == (
        7,
        "ew/v1/car/acks",
        b"pos|3|12",
    )


def test_a_compact_message_is_answered_also_where_its_frame_is_refused() -> None:
    found = compacted(PACKED_TYPE, (pack(FRAME) or b"")[:-1])
    assert refusal(found) is RejectReason.ENCODING
    assert is_answerable(found)


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("ew/v1/car/up/pos", b"\xff", RejectReason.ENCODING),
        ("ew/v1/car/up/pos", b"\x01\x09\x01\x01", RejectReason.VERSION),
        ("ew/v1/car/up/POS", b"\x01\x00\x01\x01{}", RejectReason.TOPIC),
    ],
)
def test_a_compact_message_that_says_no_frame_is_refused(
    topic: str, payload: bytes, reason: RejectReason
) -> None:
    found = expand_compact(mqtt5.PublishPacket(topic, payload, content_type=COMPACT_TYPE))
    assert isinstance(found, mqtt5.PublishPacket)
    assert refusal(found) is reason
    assert not is_answerable(found)


def test_a_packed_frame_that_unpacks_to_too_much_is_refused() -> None:
    """256 fields of 256 readings, all the same: two kilobytes."""
    bomb = pack(
        Frame(3, 12, 1101, [NOW] * 256, {f"f{n}": [123456789.0123456] * 256 for n in range(256)})
    )
    assert bomb is not None
    assert len(bomb) < 8_000
    assert refusal(publish(bomb, content_type=PACKED_TYPE)) is RejectReason.OVERSIZE


def test_a_compact_message_is_not_taken_without_its_answer() -> None:
    packet = mqtt5.PublishPacket(
        "ew/v1/car/up/pos",
        compact.encode(Compact(1, 3, 12, FRAME_TYPE, frames.encode(FRAME))),
        content_type="ew/2",
    )
    assert refusal(packet) is RejectReason.VERSION


def test_a_message_needs_no_mqtt() -> None:
    result = admit(Message("ew/v1/car/up/pos", b'{"speed":1}'), a_catalogue(), received_at=NOW)
    assert record.decode(result.value).frame.fields == {"speed": [1]}


def test_a_plain_reading_is_a_frame_of_one_and_its_seq_removes_repeats() -> None:
    taken, placement = admitted(
        publish(b'{"t":%d,"seq":9,"speed":51.2,"device":"car"}' % (NOW - 5))
    )
    assert taken.frame == Frame(0, 9, 9, [NOW - 5], {"speed": [51.2]})
    assert placement == Placement(
        Discipline.NUMBERED,
        "pos",
        0,
        9,
        9,
        9,
        1,
        content_of(b'{"t":%d,"seq":9,"speed":51.2,"device":"car"}' % (NOW - 5)),
    )


def test_a_form_of_time_that_was_converted_is_said_of_its_stream_once() -> None:
    """A device that sends seconds looked like one that sends ms."""
    catalogue = Catalogue(lambda: 0.0)
    for form in (b"1790000000", b'"2026-07-01T12:00:00Z"', b"1790000000000", b"21", b"1790000001"):
        admit(publish(b'{"t":%s,"v":1}' % form), catalogue, received_at=NOW)
        for row in catalogue.unpublished():
            catalogue.follow(row.name, row.model_dump_json().encode())
    known = catalogue.sendable("pos")
    assert known is not None
    assert known.times == {"t (s)": "car", "t (iso)": "car"}
    admit(publish(b'{"t":1790000002,"v":1}'), catalogue, received_at=NOW)
    assert catalogue.unpublished() == []


def test_a_plain_reading_without_a_number_is_free() -> None:
    taken, placement = admitted(publish(b'{"speed":1}', content_type="application/json"))
    assert (taken.frame.t, placement.discipline) == ([NOW], Discipline.FREE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1790000000000", NOW), ("-5", None), ("now", None), ("9" * 17, None), ("٣", None)],
)
def test_sent_at_is_taken_where_it_is_a_time(text: str, expected: int | None) -> None:
    taken, _ = admitted(publish(b'{"speed":1}', user_properties=[("x", "y"), ("sent_at", text)]))
    assert taken.sent_at == expected


@pytest.mark.parametrize("t", [0, 21, 86_400_000, -5, 4_133_980_800_000])
def test_what_is_no_time_is_a_field(t: int) -> None:
    taken, _ = admitted(publish(b'{"speed":1,"t":%d}' % t))
    assert (taken.frame.t, taken.frame.fields) == ([NOW], {"speed": [1], "t_": [t]})


@pytest.mark.parametrize("t", [31_536_000_000, 4_070_908_800_000])
def test_years_1971_and_2099_pass(t: int) -> None:
    taken, _ = admitted(publish(b'{"speed":1,"t":%d}' % t))
    assert taken.frame.t == [t]


BODY = b'"epoch":1,"frame":1,"seq":1,"t":[5],"fields":{"a":[1]}}'

REFUSED = {
    "bad JSON": (b'{"a":', None, RejectReason.JSON),
    "NaN": (b'{"a":nan}', None, RejectReason.JSON),
    "Infinity by exponent": (b'{"a":1e999}', None, RejectReason.JSON),
    "depth 1000": (b'{"a":' * 1000 + b"1" + b"}" * 1000, None, RejectReason.SHAPE),
    "array depth 1000": (b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}", None, RejectReason.SHAPE),
    "depth 5000": (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", None, RejectReason.JSON),
    "NUL": (b'{"a":"x\\u0000y"}', None, RejectReason.ENCODING),
    "bad UTF-8": (b'{"a":"\xff"}', None, RejectReason.ENCODING),
    "no object": (b"[1]", None, RejectReason.SHAPE),
    "no field": (b"{}", None, RejectReason.SHAPE),
    "year 2101": (
        b'{"epoch":1,"frame":1,"seq":1,"t":[4133980800000],"fields":{"a":[1]}}',
        FRAME_TYPE,
        RejectReason.TIME,
    ),
    "a time that is none": (
        b'{"epoch":1,"frame":1,"seq":1,"t":[-5],"fields":{"a":[1]}}',
        FRAME_TYPE,
        RejectReason.TIME,
    ),
    "long string": (b'{"a":"' + b"x" * 9000 + b'"}', None, RejectReason.OVERSIZE),
    "over 1 MiB": (b'{"a":"' + b"x" * (1 << 20) + b'"}', None, RejectReason.OVERSIZE),
    "foreign device": (b'{"a":1,"device":"other"}', None, RejectReason.FOREIGN_DEVICE),
    "frame of a foreign device": (b'{"device":"other",' + BODY, FRAME_TYPE,
        RejectReason.FOREIGN_DEVICE),
    "frame that forges its arrival": (b'{"received_at":5,' + BODY, FRAME_TYPE, RejectReason.SHAPE),
    "frame number 0": (b"{" + BODY.replace(b'"frame":1', b'"frame":0'), FRAME_TYPE,
        RejectReason.SHAPE),
    "deep unknown key": (b'{"x":' + b"[" * 900 + b"]" * 900 + b"," + BODY, FRAME_TYPE,
        RejectReason.SHAPE),
    "truncated frame": (b"{" + BODY[:-3], FRAME_TYPE, RejectReason.JSON),
    "unequal columns": (b"{" + BODY.replace(b"[5]", b"[5,6]"), FRAME_TYPE, RejectReason.SHAPE),
    "unknown version": (b"{" + BODY, "application/vnd.edgewake.frame.v9", RejectReason.VERSION),
    "not zstd": (b"{" + BODY, FRAME_ZSTD_TYPE, RejectReason.ENCODING),
    "truncated zstd": (zstandard.ZstdCompressor().compress(frames.encode(FRAME))[:-5],
        FRAME_ZSTD_TYPE, RejectReason.ENCODING),
    "zstd bomb": (zstandard.ZstdCompressor().compress(bytes(50 << 20)), FRAME_ZSTD_TYPE,
        RejectReason.OVERSIZE),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    payload, content_type, reason = REFUSED[name]
    assert refusal(publish(payload, content_type=content_type)) is reason


def test_a_zstd_bomb_that_hides_its_size_is_stopped_at_the_bound() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50 << 20))
    assert refusal(publish(bomb, content_type=FRAME_ZSTD_TYPE)) is RejectReason.OVERSIZE


def test_a_frame_that_names_its_own_device_passes() -> None:
    taken, _ = admitted(publish(b'{"device":"car",' + BODY, content_type=FRAME_TYPE))
    assert taken.device == "car"


def test_unknown_keys_of_a_later_version_survive() -> None:
    result = admit(
        publish(b'{"quality":{"gps":3},' + BODY, content_type=FRAME_TYPE),
        a_catalogue(),
        received_at=NOW,
    )
    assert orjson.loads(result.value)["quality"] == {"gps": 3}


@pytest.mark.parametrize(
    "topic",
    [
        "ew/v1/other/ack",
        "ew/v1/car/#",
        "ew/v1/car/+/x",
        "ew/v1/car/up/pos",
        "ew/v1/car/status",
        "ew/v1/carx/ack",
        "$SYS/x",
        "",
    ],
)
def test_an_answer_goes_to_the_devices_own_topics_only(topic: str) -> None:
    """A filter would make the broker end the bridge's connection; an intake topic would make a
    loop.
    """
    assert not can_answer(topic, b"1", "car")


@pytest.mark.parametrize("correlation", [None, b"", b'"', b"\\", b"\n", b"\xff", b"x" * 193])
def test_correlation_data_that_cannot_stand_in_joined_answers_is_refused_there_and_good_elsewhere(
    correlation: bytes | None,
) -> None:
    assert not can_answer("ew/v1/car/acks", correlation, "car")
    assert can_answer("ew/v1/car/ack", correlation, "car")
    assert (
        refusal(publish(b'{"a":1}', response_topic="ew/v1/car/acks", correlation_data=correlation))
        is RejectReason.RESPONSE_TOPIC
    )


def test_a_foreign_response_topic_is_refused() -> None:
    assert (
        refusal(publish(b'{"a":1}', response_topic="ew/v1/other/ack"))
        is RejectReason.RESPONSE_TOPIC
    )


def test_long_correlation_data_is_refused() -> None:
    assert (
        refusal(publish(b'{"a":1}', response_topic="ew/v1/car/ack", correlation_data=bytes(2000)))
        is RejectReason.OVERSIZE
    )


@pytest.mark.parametrize(
    "topic", ["ew/v1/c r/up/pos", "ew/v1/car/up/Pos", "ew/v1/car/up/pos/x", "ew/v2/car/up/pos"]
)
def test_a_bad_name_is_refused(topic: str) -> None:
    assert refusal(publish(b'{"a":1}', topic=topic)) is RejectReason.TOPIC


@given(
    st.binary(max_size=200),
    st.sampled_from([None, "application/json", FRAME_TYPE, FRAME_ZSTD_TYPE]),
)
def test_no_bytes_raise_anything_but_a_refusal(payload: bytes, content_type: str | None) -> None:
    with contextlib.suppress(Rejected):
        admit(publish(payload, content_type=content_type), a_catalogue(), received_at=NOW)


def status(payload: bytes) -> DeviceStatus:
    return admit_status(publish(payload, topic=topics.status("car")), received_at=NOW)


@pytest.mark.parametrize(
    "payload", [b"offline", b" Offline\n", b'"offline"', b'{"state": "OFFLINE"}']
)
def test_a_plain_device_says_its_state_by_one_word(payload: bytes) -> None:
    assert status(payload) == DeviceStatus(
        device="car", state=DeviceState.OFFLINE, plain=True, received_at=NOW
    )


def test_a_status_is_stamped_with_its_arrival() -> None:
    assert status(b'{"device":"car","state":"online","backlog_readings":5}') == DeviceStatus(
        device="car", state=DeviceState.ONLINE, backlog_readings=5, received_at=NOW
    )


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"x", RejectReason.JSON),
        (b"[]", RejectReason.SHAPE),
        (b'{"device":"car","state":"asleep"}', RejectReason.SHAPE),
        (b'{"device":"other","state":"online"}', RejectReason.FOREIGN_DEVICE),
        (
            b'{"device":"car","state":"online","lost_readings":"1' + b"0" * 30 + b'"}',
            RejectReason.SHAPE,
        ),
        (
            b'{"device":"car","state":"online","version":"' + b"x" * 5000 + b'"}',
            RejectReason.OVERSIZE,
        ),
    ],
)
def test_a_malformed_status_is_refused(payload: bytes, reason: RejectReason) -> None:
    with pytest.raises(Rejected) as refused:
        status(payload)
    assert refused.value.reason is reason


MAPPER = Mapper(compile_presets(presets.names()), "home-")
GOOD = ("zigbee2mqtt/room", b'{"last_seen":"2026-03-01T08:15:30Z","temperature":21.5}')


def of_a_map(topic: str, payload: bytes, catalogue: Catalogue) -> list[record.Record]:
    """What of a device's own message comes into Kafka."""
    found = []
    for part in MAPPER.parts(mqtt5.PublishPacket(topic, payload), NOW):
        if part.refusal is None and isinstance(part.packet, mqtt5.PublishPacket):
            if part.packet.topic.endswith("/status"):
                admit_status(part.packet, received_at=NOW)
                continue
            with contextlib.suppress(Rejected, NotNow):
                admitted_ = admit(part.packet, catalogue, received_at=NOW)
                found.append(record.decode(admitted_.value))
    return found


@pytest.mark.parametrize("preset", presets.names())
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_no_bytes_of_a_device_stop_what_another_one_says(preset: str, data: st.DataObject) -> None:
    """Of every preset: the payloads of its documentation, cut off, torn and made of anything."""
    catalogue = a_catalogue()
    own = [one for name, one in messages() if name == preset]
    for _ in range(3):
        message = data.draw(st.sampled_from(own))
        of_a_map(message["topic"], data.draw(broken(payload_of(message))), catalogue)
    (good,) = of_a_map(*GOOD, catalogue)
    assert (good.device, good.frame.t) == ("home-room", [1_772_352_930_000])
    assert good.frame.fields == {"temperature": [21.5]}
