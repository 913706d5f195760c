"""What may pass the bridge: a message becomes a Kafka record, or is Rejected with its reason.

No I/O, no business logic.

Checked: topic, content type, size (also inflated), JSON, shape, times, field types against the
stream catalogue, no other device's name, no answer on another device's topic. A frame's own bytes
pass unchanged behind the envelope; a plain device's object becomes a frame of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import orjson
from pydantic import ValidationError

from edgewake.cloud.bridge.admission import request_key
from edgewake.cloud.bridge.admission.catalogue import Catalogue, Learner, NotNow
from edgewake.cloud.bridge.admission.compiled import CompiledStreams
from edgewake.cloud.bridge.admission.envelope import Envelope
from edgewake.cloud.bridge.admission.items import (
    Aside,
    with_odd,
    without_words,
    without_wrong,
)
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import compact, packed, record
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames.ack import is_joinable
from edgewake.protocol.frames.compact import COMPACT_TYPE
from edgewake.protocol.frames.event_time import way
from edgewake.protocol.frames.frame import (
    COUNTER_MAX,
    FRAME_BYTES_MAX,
    FRAME_TYPE,
    FRAME_ZSTD_TYPE,
    Frame,
    Kinds,
)
from edgewake.protocol.frames.packed import PACKED_TYPE
from edgewake.protocol.frames.record import Discipline, Mode, Placement
from edgewake.protocol.ops.device import DeviceState, DeviceStatus

CORRELATION_BYTES_MAX: Final = 1024
"""Bytes of correlation data that are carried back. More is rejected (oversize): every waiting
message holds its own."""
STATUS_BYTES_MAX: Final = 4096
"""Bytes of a device's status."""
WORD_BYTES_MAX: Final = 64
"""Bytes of a status that is one word."""
_STATES: Final = {state.value: state for state in DeviceState}
_OUR_TYPES: Final = "application/vnd.edgewake"

parse_up = lru_cache(maxsize=65_536)(topics.parse_up)


class Admitted(NamedTuple):
    """A record for `ew.up`: key `device`, header PLACEMENT_HEADER `placement`."""

    device: str
    value: bytes
    placement: bytes
    aside: Sequence[Aside] = ()
    """Readings that were set aside: each is a dead letter."""


_Taken: TypeAlias = tuple[bytes, Placement, Sequence[Aside]]
"""A frame that passes, its place, and the readings that were set aside. A bare tuple: one is made
for every message."""


def admit(
    message: Envelope,
    catalogue: Catalogue,
    *,
    received_at: int,
    compiled: CompiledStreams | None = None,
    gateway: str = "",
) -> Admitted:
    """Check a message on `ew/v1/<device>/up/<stream>`, or of a thing behind a gateway.

    Raises Rejected, NotNow or AwaitsCatalogueError. The caller has checked whether the gateway may
    speak for it.

    `compiled`: the decoders of known streams, tried first. `gateway`: who named the device, where
    its topic does not say so.
    """
    topic = parse_up(message.topic)
    device, stream, via = topic.device, topic.stream, topic.via
    check_answer(message, topic.sender)
    mode = Mode.ONE_WAY if message.response_topic is None else Mode.ACK
    content_type = message.content_type
    aside: Sequence[Aside] = ()
    if content_type == COMPACT_TYPE:  # `expand_compact` has left it as it is
        compact.decode(message.payload)
        raise Rejected(RejectReason.VERSION, "a compact message where none is expected")
    if content_type is None or not content_type.startswith(_OUR_TYPES):
        payload, placement, aside = _plain_at_once(
            message.payload, device, stream, received_at, compiled
        ) or _admit_plain(
            message.payload, device, stream, Learner(catalogue, via or gateway), received_at
        )
        if placement.discipline is Discipline.FREE and message.user_properties:
            keyed = request_key.placement_of(message.user_properties, stream, message.payload)
            placement = keyed or placement
    else:
        # A one_way frame may be lost, so nobody may wait for its number.
        discipline = Discipline.ORDERED if mode is Mode.ACK else Discipline.NUMBERED
        if content_type == PACKED_TYPE:
            learner = Learner(catalogue, via or gateway)
            payload, placement, aside = _admit_packed(
                message.payload, device, stream, learner, discipline
            )
        else:
            payload = _json_of(message.payload, content_type)
            payload, placement, aside = _frame_at_once(
                payload, stream, discipline, None if via else compiled
            ) or _admit_frame(
                payload, device, stream, Learner(catalogue, via or gateway), discipline
            )
    if via:
        placement = placement._replace(via=via, newest=_newest(payload))
    return Admitted(
        device=device,
        value=record.encode(
            device=device,
            stream=stream,
            mode=mode,
            sent_at=_sent_at(message),
            received_at=received_at,
            frame_bytes=payload,
            via=via,
        ),
        placement=placement.encode(),
        aside=aside,
    )


def _newest(frame_bytes: bytes) -> int:
    """The latest event time of a checked frame; 0 of a gap."""
    return max(orjson.loads(frame_bytes).get("t", ()), default=0)


def _plain_at_once(
    payload: bytes, device: str, stream: str, received_at: int, compiled: CompiledStreams | None
) -> _Taken | None:
    """A reading in order of a known stream; None where `_admit_plain` must decide."""
    reading = (
        None
        if compiled is None
        else compiled.plain(stream, payload, device=device, received_at=received_at)
    )
    if reading is None:
        return None
    epoch, seq, frame_bytes = reading
    if seq is None:
        return frame_bytes, Placement(Discipline.FREE, stream, 0, 0, 0, 0, 1), ()
    content = record.content_of(payload)
    placement = Placement(Discipline.NUMBERED, stream, epoch or 0, seq, seq, seq, 1, content)
    return frame_bytes, placement, ()


def _admit_plain(
    payload: bytes, device: str, stream: str, catalogue: Learner, received_at: int
) -> _Taken:
    frame, kinds = frames.from_plain_with_kinds(payload, received_at=received_at, device=device)
    placement = _placement(
        Discipline.FREE if frame.frame is None else Discipline.NUMBERED, stream, frame
    )
    if frame.frame is not None:
        placement = placement._replace(content=record.content_of(payload))
    frame, kinds = catalogue.read(stream, frame, kinds)
    expected, given = catalogue.expected(stream)

    def check(one: Frame) -> None:
        found = kinds if one is frame else frames.check_columns(one.t, one.fields)
        catalogue.check(device, stream, found, lambda: frames.renamed(payload))

    plain = frame if given else without_words(frame, expected)
    sound = plain
    aside: Sequence[Aside] = ()
    try:
        check(sound)
    except (Rejected, NotNow) as why:
        if given or _reason(why) is not RejectReason.FIELD_TYPE:
            raise
        sound, aside = with_odd(sound, expected)
        try:
            check(sound)
        except NotNow as too_many:  # no room for the text, which is to cost nobody the reading
            if _reason(too_many) is not RejectReason.QUOTA:
                raise
            sound, aside = with_odd(plain, expected, has_room=False)
            check(sound)
    (t,) = frame.t
    if t != received_at and b"%d" % t not in payload:
        catalogue.learn_time(device, stream, way("t", frames.time_form(payload)))
    return frames.encode(sound), placement, aside


def _reason(why: Rejected | NotNow) -> RejectReason:
    return why.reason if isinstance(why, Rejected) else why.refusal.reason


def _json_of(payload: bytes, content_type: str) -> bytes:
    if content_type == FRAME_ZSTD_TYPE:
        return frames.inflate(payload)
    if content_type != FRAME_TYPE:
        raise Rejected(
            RejectReason.VERSION,
            f"content type {content_type[:100]!r}: expected {FRAME_TYPE}[+zstd] or plain JSON",
        )
    return payload


def _admit_packed(
    payload: bytes, device: str, stream: str, catalogue: Learner, discipline: Discipline
) -> _Taken:
    frame, kinds = packed.unpack(payload)
    placement = _placement(discipline, stream, frame)
    frame, aside = _checked(frame, kinds, device, stream, catalogue)
    text = frames.encode(frame)
    if len(text) > FRAME_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE,
            f"frame unpacks to {len(text)} bytes: expected at most {FRAME_BYTES_MAX}",
        )
    return text, placement, aside


def _frame_at_once(
    payload: bytes, stream: str, discipline: Discipline, compiled: CompiledStreams | None
) -> _Taken | None:
    """A frame in order of a known stream; None where `_admit_frame` must decide."""
    head = None if compiled is None else compiled.frame(stream, payload)
    if head is None or head.frame <= 0:
        return None
    epoch, number, seq, readings = head
    return payload, Placement(discipline, stream, epoch, number, number, seq, readings), ()


def _admit_frame(
    payload: bytes, device: str, stream: str, catalogue: Learner, discipline: Discipline
) -> _Taken:
    frame, kinds = frames.decode_with_kinds(payload, device=device)
    placement = _placement(discipline, stream, frame)
    checked, aside = _checked(frame, kinds, device, stream, catalogue)
    return payload if checked is frame else frames.encode(checked), placement, aside


def _checked(
    frame: Frame, kinds: Kinds, device: str, stream: str, catalogue: Learner
) -> tuple[Frame, Sequence[Aside]]:
    """The frame as the catalogue takes it, and the readings that were set aside.

    Raises Rejected, NotNow or AwaitsCatalogueError.
    """
    frame, kinds = catalogue.read(stream, frame, kinds)
    try:
        catalogue.check(device, stream, kinds)
    except (Rejected, NotNow) as why:
        expected, given = catalogue.expected(stream)
        found = (
            without_wrong(frame, expected, given=given)
            if _reason(why) is RejectReason.FIELD_TYPE
            else None
        )
        if found is None:
            raise
        catalogue.check(device, stream, frames.check_columns(found[0].t, found[0].fields))
        return found
    return frame, ()


def _placement(discipline: Discipline, stream: str, frame: Frame) -> Placement:
    if discipline is Discipline.FREE:
        return Placement(discipline, stream, 0, 0, 0, 0, 1)
    epoch, last, seq = frame.epoch or 0, frame.frame or 0, frame.seq or 0
    first = last if frame.first_frame is None else frame.first_frame
    if discipline is Discipline.ORDERED and not 1 <= first <= last:
        raise Rejected(
            RejectReason.SHAPE,
            f"frame {first} to {last}: expected numbers from 1, the first not above the last",
        )
    return Placement(
        discipline,
        stream,
        epoch,
        first,
        last,
        seq,
        len(frame.t) if frame.gap is None else frame.gap.count,
    )


def admit_status(message: Envelope, *, received_at: int) -> DeviceStatus:
    """Check a publish on `ew/v1/<device>/status`; raises Rejected."""
    device = topics.parse_status(message.topic)
    check_answer(message, device)
    if len(message.payload) > STATUS_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE,
            f"status of {len(message.payload)} bytes: expected at most {STATUS_BYTES_MAX}",
        )
    plain = _plain_state(message.payload)
    if plain is not None:
        return DeviceStatus(device=device, state=plain, plain=True, received_at=received_at)
    try:
        body = orjson.loads(message.payload)
    except orjson.JSONDecodeError as error:
        raise Rejected(
            RejectReason.JSON, f"status: expected online, offline or JSON: {error}"
        ) from error
    try:
        status = DeviceStatus.checked(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise Rejected(
            RejectReason.SHAPE, f"status: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error
    if status.device != device:
        raise Rejected(
            RejectReason.FOREIGN_DEVICE,
            f"status of {status.device[:100]!r} on a topic of {device!r}",
        )
    return replace(status, received_at=received_at)


def _plain_state(payload: bytes) -> DeviceState | None:
    """What a plain device says by one word, or by an object with nothing but its state."""
    if len(payload) > WORD_BYTES_MAX:
        return None
    word: object = payload.decode("utf-8", "replace")
    try:
        found = orjson.loads(payload)
        word = found["state"] if isinstance(found, dict) and found.keys() == {"state"} else found
    except orjson.JSONDecodeError:
        pass
    return _STATES.get(word.strip().lower()) if isinstance(word, str) else None


def check_answer(message: Envelope, device: str) -> None:
    """May the device be answered where it asks? Raises Rejected(response_topic | oversize)."""
    topic, correlation = message.response_topic, message.correlation_data
    if topic is not None and not can_answer(topic, correlation, device):
        raise Rejected(
            RejectReason.RESPONSE_TOPIC,
            f"response topic {topic[:200]!r}: expected {topics.ack(device)}, "
            f"or {topics.acks(device)} and correlation data of 1 to 192 printable characters "
            "without quote and backslash",
        )
    if correlation is not None and len(correlation) > CORRELATION_BYTES_MAX:
        raise Rejected(
            RejectReason.OVERSIZE,
            f"correlation data of {len(correlation)} bytes: expected at most "
            f"{CORRELATION_BYTES_MAX}",
        )


def can_answer(topic: str, correlation: bytes | None, device: str) -> bool:
    """Is it one of the two topics on which this device is answered, and does the answer fit there?

    A bridge may write nowhere else.
    """
    return topic == topics.ack(device) or (
        topic == topics.acks(device) and is_joinable(correlation)
    )


def _sent_at(message: Envelope) -> int | None:
    """The user property `sent_at`; None where it is missing or not a time.

    A wrong clock harms only its own device.
    """
    for name, value in message.user_properties:
        if (
            name == "sent_at"
            and value.isascii()
            and value.isdigit()
            and len(value) <= 16
            and int(value) <= COUNTER_MAX
        ):
            return int(value)
    return None
