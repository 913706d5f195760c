"""What the bridges know of streams and their fields, and how they agree on it. No I/O.

`check` compares a reading with what is *confirmed*: what came back on `ew.streams`, merged in the
topic's order (`StreamTable`). What is new is proposed; `unpublished` gives the rows for the topic.
Until a proposal came back the message waits (AwaitsCatalogueError): a type is decided by the
topic's order before anything of that type is accepted, however many bridges learn it at once.

Every device has a share of the streams and fields that are learnt, so that no device can use them
up for others; who is refused is told what was expected before a topic is made. Where waiting or an
operator can help the refusal is NotNow, else it is final.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from edgewake.cloud.bridge.admission.allowance import BY_MAPS, BY_NOBODY, Account
from edgewake.cloud.bridge.admission.items import as_decided
from edgewake.protocol.downlink.downlink import ANSWER_FIELDS, ANSWERS, REQUEST_FIELDS, REQUESTS
from edgewake.protocol.errors import Rejected, RejectReason, RemoteError
from edgewake.protocol.frames.ack import Later, LaterReason
from edgewake.protocol.frames.field_names import (
    ODD,
    PATH_CHARS_MAX,
    UNIT_CHARS_MAX,
    WORDS_CHARS_MAX,
    form,
)
from edgewake.protocol.frames.field_type import FieldType, types_of_kinds
from edgewake.protocol.frames.frame import Frame, Kinds, check_columns
from edgewake.protocol.frames.stream import (
    STREAMS_MAX,
    TIME_FORMS_MAX,
    FieldInfo,
    NameKind,
    Stream,
    StreamTable,
    merge,
)
from edgewake.protocol.frames.units import as_written
from edgewake.protocol.names import is_reserved
from edgewake.protocol.ops.device import FieldsSaid

STREAM_FIELDS_MAX: Final = 1024
"""Fields of one stream, of all its devices together."""
DEVICE_STREAMS_MAX: Final = 32
"""Streams learnt from one device; it may send any number that others were first to send."""
DEVICE_FIELDS_MAX: Final = 256
"""Fields learnt from one device, in all streams together."""
GATEWAY_TIMES: Final = 4
"""How many times as many all things behind one gateway may be the first to send together, for it
may name as many as its rule allows; in one stream they have half of the fields at most."""
MAPS_TIMES: Final = 10
"""All devices that maps name have this many times as much."""
NEW_STREAMS_BURST: Final = 50
"""Streams that one bridge may add at once; each makes a Kafka topic."""
NEW_STREAMS_PER_S: Final = 5.0
"""Streams a second that it may add after that."""
FIELD_TYPE_RETRY_MS: Final = 30_000
"""Wait of a device whose field has another type than the one seen first: an operator decides, not a
second."""
QUOTA_RETRY_MS: Final = 300_000
HEARD_MAX: Final = 10_000
"""Streams of devices whose units are remembered as said, some hundred bytes each: a map says them
with each message. Beyond the bound all are heard once more."""
_GIVEN: Final = {ANSWERS: ANSWER_FIELDS, REQUESTS: REQUEST_FIELDS}
"""Streams that the operations API reads: no device decides their fields for others."""
"""Wait of a device that used up a share: until somebody removes a stream."""


class NotNow(RemoteError):
    """A message that may be accepted later.

    `later` answers a device that can be answered, `refusal` makes the dead letter of another.
    """

    def __init__(self, later: Later, reason: RejectReason) -> None:
        super().__init__(later.detail)
        self.later = later
        self.refusal = Rejected(reason, later.detail)


def too_much(device: str, wait_s: float) -> NotNow:
    """A device sends more than one may."""
    who = f"device {device!r} sends" if device else "topics that name no device bring"
    detail = (
        f"{who} more in a second than one may ([device] of bridge.toml): "
        f"expected nothing for {wait_s:.1f} s"
    )
    return NotNow(Later(LaterReason.QUOTA, round(wait_s * 1000), detail), RejectReason.QUOTA)


def too_many_names(gateway: str, thing: str) -> NotNow:
    """A gateway names more things than one may."""
    who = "maps and requests" if gateway in ("", BY_MAPS, BY_NOBODY) else f"gateway {gateway!r}"
    detail = (
        f"{thing!r} would be one more new name than {who} may give in a day: expected names "
        "that came before"
    )
    return NotNow(Later(LaterReason.QUOTA, QUOTA_RETRY_MS, detail), RejectReason.QUOTA)


def over_share(account: Account, wait_s: float) -> NotNow:
    """Why an account has to wait."""
    if account.is_one_too_many and account.shared is not None:
        return too_many_names(account.learns_by, account.device)
    return too_much(account.device, wait_s)


class AwaitsCatalogueError(Exception):
    """A message with a new stream or field that is on its way to the catalogue.

    Check it again when the catalogue has it.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream


class OtherTypesError(Rejected):
    """A field of a message has another type than an operator has decided."""

    def __init__(self, detail: str, decided: Mapping[str, FieldType]) -> None:
        """`decided`: what an operator has decided of the message's fields."""
        super().__init__(RejectReason.FIELD_TYPE, detail)
        self.decided = decided


class Catalogue:
    """Streams and their fields' types. `monotonic_s` is the clock of the bound on new streams."""

    def __init__(
        self, monotonic_s: Callable[[], float], *, reads_by_decision: bool = False
    ) -> None:
        """`reads_by_decision`: are values read by the types that an operator has decided?

        Of dead letters that come back they are; from a device a value of another type is odd.
        """
        self._reads_by_decision = reads_by_decision
        self._confirmed = StreamTable()
        self._proposed: dict[str, Stream] = {}
        """Rows that are on their way to the topic, until they come back."""
        self._sendable: dict[str, Stream] = {}
        """The confirmed rows of streams that devices may send."""
        self._types: dict[str, dict[str, FieldType]] = {}
        """Their fields' types."""
        self._odd: set[str] = set()
        """Streams that have fields for odd values of others."""
        self._unpublished: dict[str, Stream] = {}
        self._last: dict[str, Kinds] = {}
        """What was found right last time; mostly the next message is like it."""
        self._device_streams: Counter[str] = Counter()
        self._device_fields: Counter[str] = Counter()
        self._gateway_streams: Counter[str] = Counter()
        self._gateway_fields: Counter[str] = Counter()
        self._told: dict[str, set[tuple[str, str]]] = {}
        self._heard: dict[tuple[str, str, str], tuple[Stream | None, dict[str, str]]] = {}
        """Device, stream and gateway → the units that were said last, and the row that they met."""
        """Stream → its fields of which a unit or path was proposed."""
        self.changes = 0
        """Grows with each record of the topic."""
        self._monotonic_s = monotonic_s
        self._tokens = float(NEW_STREAMS_BURST)
        self._tokens_s = monotonic_s()
        self.foreseen: frozenset[str] = frozenset()
        """Streams that an operator has named, as the maps in use do: new ones come at once."""

    def check(
        self,
        device: str,
        stream: str,
        kinds: Kinds,
        renamed: Callable[[], Mapping[str, str]] = dict,
        *,
        gateway: str = "",
    ) -> None:
        """Are these columns of this stream's types?

        `renamed`: field → its original name, called where a field is new. `gateway`: who named the
        device, where that is not the device itself. Raises
        AwaitsCatalogueError, Rejected(field_type | name) or NotNow(field_type | quota).
        """
        if self._last.get(stream) == kinds:
            return
        try:
            types = types_of_kinds(kinds)
        except TypeError as error:
            raise Rejected(RejectReason.FIELD_TYPE, f"stream {stream!r}: {error}") from error
        known = self._types.get(stream)
        if known is None or not types.items() <= known.items():
            row = self._confirmed.get(stream)
            self._check_name(stream, row)
            self._check_types(stream, row, types)
            self._propose(device, stream, types, renamed, gateway)
            raise AwaitsCatalogueError(stream)
        self._last[stream] = kinds

    def _check_name(self, stream: str, row: Stream | None) -> None:
        if is_reserved(stream):
            raise Rejected(
                RejectReason.NAME,
                f"stream {stream!r} is reserved for the system: expected another name",
            )
        if row is not None and row.kind is NameKind.QUERY:
            raise Rejected(
                RejectReason.NAME,
                f"{stream!r} is the name of a query: expected another name for a stream",
            )

    def _check_types(self, stream: str, row: Stream | None, types: Mapping[str, FieldType]) -> None:
        if not types.items() <= _GIVEN.get(stream, types).items():
            raise Rejected(
                RejectReason.FIELD_TYPE,
                f"stream {stream!r}: expected the fields {_GIVEN[stream]}, found {types}"[:500],
            )
        for name, found in types.items():
            info = None if row is None else row.fields.get(name)
            if info is None or info.type is found:
                continue
            detail = f"field {name!r} of stream {stream!r}: expected a {info.type}, found a {found}"
            if info.revision:
                raise OtherTypesError(detail, self.decided(stream, types))
            hint = "; the type is the first reading's, and an operator can change it"
            raise NotNow(
                Later(LaterReason.FIELD_TYPE, FIELD_TYPE_RETRY_MS, detail + hint),
                RejectReason.FIELD_TYPE,
            )

    def _propose(
        self,
        device: str,
        stream: str,
        types: Mapping[str, FieldType],
        renamed: Callable[[], Mapping[str, str]],
        gateway: str,
    ) -> None:
        """Put what is new into a row for the topic.

        What other devices of this bridge proposed before stays in it.
        """
        row = self._proposed.get(stream) or self._confirmed.get(stream)
        new = {name: kind for name, kind in types.items() if row is None or name not in row.fields}
        if row is not None and not new:
            return  # proposed already, maybe with another type: the topic decides
        self._check_shares(device, stream, row, len(new))
        if gateway:
            self._check_gateway(gateway, stream, row, len(new))
        if row is None:
            if stream not in self.foreseen:
                self._take_token(stream)
            row = Stream(name=stream, first_device=device, first_via=gateway)
        paths = renamed()
        learnt = {
            name: FieldInfo(
                type=kind,
                first_device=device,
                first_via=gateway,
                path=paths.get(name, "")[:PATH_CHARS_MAX],
            )
            for name, kind in new.items()
        }
        proposed = row.model_copy(update={"fields": {**row.fields, **learnt}})
        pending = self._unpublished.get(stream)  # perhaps units that nobody has seen yet
        self._proposed[stream] = proposed
        self._unpublished[stream] = proposed if pending is None else merge(pending, proposed)

    def _check_shares(self, device: str, stream: str, row: Stream | None, new_fields: int) -> None:
        proposed = [one for name, one in self._proposed.items() if name not in self._confirmed]
        if row is None:
            streams = sum(one.kind is NameKind.STREAM for one in self._confirmed.values()) + len(
                proposed
            )
            if streams >= STREAMS_MAX:
                raise _over_quota(
                    f"stream {stream!r} would be one more than {STREAMS_MAX}, the bound of all "
                    "devices together"
                )
            own = self._device_streams[device] + sum(one.first_device == device for one in proposed)
            if own >= DEVICE_STREAMS_MAX:
                raise _over_quota(
                    f"stream {stream!r} would be one more than {DEVICE_STREAMS_MAX} that device "
                    f"{device!r} may be the first to send"
                )
        elif len(row.fields) + new_fields > STREAM_FIELDS_MAX:
            raise _over_quota(
                f"stream {stream!r} would have {len(row.fields) + new_fields} fields: expected at "
                f"most {STREAM_FIELDS_MAX}"
            )
        own = self._device_fields[device] + sum(
            info.first_device == device and name not in self._types.get(stream, ())
            for stream, one in self._proposed.items()
            for name, info in one.fields.items()
        )
        if own + new_fields > DEVICE_FIELDS_MAX:
            raise _over_quota(
                f"stream {stream!r}: {own + new_fields} fields would be learnt from device "
                f"{device!r}: expected at most {DEVICE_FIELDS_MAX}"
            )

    def _check_gateway(
        self, gateway: str, stream: str, row: Stream | None, new_fields: int
    ) -> None:
        """Leave room for others, however many devices it names."""
        is_nobody = gateway in (BY_MAPS, BY_NOBODY)
        who = "maps and requests" if is_nobody else f"gateway {gateway!r}"
        times = MAPS_TIMES if is_nobody else GATEWAY_TIMES
        new = {name: one for name, one in self._proposed.items() if name not in self._confirmed}
        if row is None:
            own = self._gateway_streams[gateway]
            own += sum(one.first_via == gateway for one in new.values())
            if own >= times * DEVICE_STREAMS_MAX:
                raise _over_quota(
                    f"stream {stream!r} would be one more than {times * DEVICE_STREAMS_MAX} that "
                    f"devices named by {who} may be the first to send"
                )
        else:
            here = sum(info.first_via == gateway for info in row.fields.values()) + new_fields
            if here > STREAM_FIELDS_MAX // 2:
                raise _over_quota(
                    f"stream {stream!r} would have {here} fields of devices named by {who}: "
                    f"expected at most {STREAM_FIELDS_MAX // 2}"
                )
        own = self._gateway_fields[gateway] + new_fields
        own += sum(
            info.first_via == gateway and name not in self._types.get(of, ())
            for of, one in self._proposed.items()
            for name, info in one.fields.items()
        )
        if own > times * DEVICE_FIELDS_MAX:
            raise _over_quota(
                f"stream {stream!r}: {own} fields would be learnt from devices named by "
                f"{who}: expected at most {times * DEVICE_FIELDS_MAX}"
            )

    def _take_token(self, stream: str) -> None:
        now_s = self._monotonic_s()
        self._tokens = min(
            float(NEW_STREAMS_BURST), self._tokens + (now_s - self._tokens_s) * NEW_STREAMS_PER_S
        )
        self._tokens_s = now_s
        if self._tokens < 1:
            wait_ms = round(1000 * (1 - self._tokens) / NEW_STREAMS_PER_S)
            detail = (
                f"stream {stream!r} is new, and new streams come faster than "
                f"{NEW_STREAMS_PER_S:g} a second"
            )
            raise NotNow(Later(LaterReason.QUOTA, max(1000, wait_ms), detail), RejectReason.QUOTA)
        self._tokens -= 1

    def learn_units(
        self, device: str, stream: str, units: Mapping[str, str], *, gateway: str = ""
    ) -> None:
        """Put units that maps or devices say into the stream's row.

        `units`: path of a field → its unit. `gateway`: who named the device. The first says: the
        device that a field was learnt from, or its gateway, and where that is nobody the first one.
        Another one's unit changes nothing; it is kept beside (`FieldInfo.other_unit`), as a problem
        that an operator ends by deciding the unit.
        """
        key, row = (device, stream, gateway), self._confirmed.get(stream)
        met, heard = self._heard.get(key, (None, None))
        if met is row and heard == units:
            return  # nothing has changed since, and there is one for each message
        if len(self._heard) >= HEARD_MAX:
            self._heard.clear()
        self._heard[key] = (row, dict(units))
        self.learn_words(
            device, stream, {path: {"unit": unit} for path, unit in units.items()}, gateway=gateway
        )

    def learn_words(
        self,
        device: str,
        stream: str,
        words: Mapping[str, Mapping[str, str]],
        *,
        gateway: str = "",
    ) -> None:
        """Put what is said of fields into the stream's row, as `learn_units` does.

        `words`: path of a field → its `unit`, `label` and `classes`.
        """
        said = {form(path): known for path, known in words.items()}
        self._learn(device, stream, said, gateway=gateway)

    def has_field(self, stream: str, path: str) -> bool:
        """Is there such a field, by the path that it comes by?"""
        row = self._confirmed.get(stream)
        return row is not None and form(path) in row.fields

    def learn_fields(self, device: str, fields: FieldsSaid) -> None:
        """Put what an agent says of fields into the catalogue: see `learn_units`."""
        for stream, said in fields.items():
            self._learn(device, stream, said)

    def _learn(
        self, device: str, stream: str, said: Mapping[str, Mapping[str, str]], *, gateway: str = ""
    ) -> None:
        """Fill in units and paths. Nobody waits for it, and each is proposed once."""
        row = self._confirmed.get(stream)
        if row is None:
            return
        told = self._told.setdefault(stream, set())
        found: dict[str, FieldInfo] = {}
        for name, words in said.items():
            before = row.fields.get(name)
            if before is None:
                continue
            info = before
            for what, news in _news_of(info, words, device, gateway).items():
                if (name, what) not in told:
                    told.add((name, what))
                    info = info.model_copy(update={what: news})
            if info is not before:
                found[name] = info
        if found:
            wanted = row.model_copy(update={"fields": {**row.fields, **found}})
            pending = self._unpublished.get(stream)
            self._unpublished[stream] = wanted if pending is None else merge(pending, wanted)

    def learn_time(self, device: str, stream: str, how: str) -> None:
        """Put a form in which plain devices send their time into the stream's row, once."""
        row = self._confirmed.get(stream)
        if row is None or how in row.times or len(row.times) >= TIME_FORMS_MAX:
            return
        told = self._told.setdefault(stream, set())
        if ("t", how) in told:
            return
        told.add(("t", how))
        wanted = row.model_copy(update={"times": {**row.times, how: device}})
        pending = self._unpublished.get(stream)
        self._unpublished[stream] = wanted if pending is None else merge(pending, wanted)

    def decided(self, stream: str, names: Iterable[str]) -> Mapping[str, FieldType]:
        """The types of these fields that an operator has decided."""
        row = self._confirmed.get(stream)
        fields = {} if row is None else row.fields
        return {
            name: fields[name].type for name in names if name in fields and fields[name].revision
        }

    def read(self, stream: str, frame: Frame, kinds: Kinds) -> tuple[Frame, Kinds]:
        """A frame and its kinds as they are to be checked: see `reads_by_decision`."""
        decided = self.decided(stream, frame.fields) if self._reads_by_decision else None
        if not decided:
            return frame, kinds
        found = as_decided(frame, decided, self._types.get(stream, {}))
        return (frame, kinds) if found is frame else (found, check_columns(found.t, found.fields))

    def is_waiting(self, stream: str) -> bool:
        """Is something of this stream proposed that has not come back?"""
        return stream in self._proposed

    @property
    def is_awaited(self) -> bool:
        """Is anything proposed that has not come back?"""
        return bool(self._proposed)

    def unpublished(self) -> list[Stream]:
        """Take the rows to publish since the last call: proposals, and merged rows it lacks."""
        rows = list(self._unpublished.values())
        self._unpublished.clear()
        return rows

    def follow(self, name: str, value: bytes | None) -> None:
        """Take in a record of `ew.streams`. Raises ValueError for one that cannot be read."""
        self.changes += 1
        before = self._confirmed.get(name)
        is_merged = self._confirmed.apply(name, value)
        after = self._confirmed.get(name)
        self._count(before, -1)
        self._count(after, 1)
        self._last.pop(name, None)
        self._note_sendable(name, after)
        if after is None:
            self._told.pop(name, None)
            self._unpublished.pop(name, None)
        if after is not None and not is_merged:
            pending = self._unpublished.get(name)
            self._unpublished[name] = after if pending is None else merge(after, pending)
        proposed = self._proposed.get(name)
        if proposed is None:
            return
        if (
            after is None
            or after.kind is NameKind.QUERY
            or proposed.fields.keys() <= after.fields.keys()
        ):
            del self._proposed[name]

    def _note_sendable(self, name: str, row: Stream | None) -> None:
        self._sendable.pop(name, None)
        self._types.pop(name, None)
        self._odd.discard(name)
        if row is not None and row.kind is NameKind.STREAM and not is_reserved(name):
            self._sendable[name] = row
            self._types[name] = {field: info.type for field, info in row.fields.items()}
            if any(field.endswith(ODD) for field in row.fields):
                self._odd.add(name)

    def _count(self, row: Stream | None, by: int) -> None:
        if row is None:
            return
        if row.kind is NameKind.STREAM and row.first_device:
            _add(self._device_streams, row.first_device, by)
        if row.kind is NameKind.STREAM and row.first_via:
            _add(self._gateway_streams, row.first_via, by)
        for info in row.fields.values():
            if info.first_via:
                _add(self._gateway_fields, info.first_via, by)
            if info.first_device:
                _add(self._device_fields, info.first_device, by)

    def expected(self, stream: str) -> tuple[Mapping[str, FieldType], bool]:
        """The types of a stream's fields as far as they are known, and whether they are fixed."""
        if stream in _GIVEN:
            return _GIVEN[stream], True
        return self._types.get(stream, {}), False

    def sendable(self, stream: str) -> Stream | None:
        """The confirmed row of a stream that devices may send.

        None also for the name of a query and for the system's own streams.
        """
        return self._sendable.get(stream)

    def has_odd(self, stream: str) -> bool:
        """Has it a field for odd values of another one? Most have none, and all are asked."""
        return stream in self._odd


class Learner(NamedTuple):
    """The catalogue, for a message that comes by a gateway; empty: by its own device."""

    catalogue: Catalogue
    gateway: str = ""

    def check(
        self,
        device: str,
        stream: str,
        kinds: Kinds,
        renamed: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """See `Catalogue.check`."""
        self.catalogue.check(device, stream, kinds, renamed, gateway=self.gateway)

    def expected(self, stream: str) -> tuple[Mapping[str, FieldType], bool]:
        """See `Catalogue.expected`."""
        return self.catalogue.expected(stream)

    def learn_time(self, device: str, stream: str, how: str) -> None:
        """See `Catalogue.learn_time`."""
        self.catalogue.learn_time(device, stream, how)

    def read(self, stream: str, frame: Frame, kinds: Kinds) -> tuple[Frame, Kinds]:
        """See `Catalogue.read`."""
        return self.catalogue.read(stream, frame, kinds)


def _news_of(
    info: FieldInfo, words: Mapping[str, str], device: str, gateway: str
) -> Mapping[str, str]:
    """What of a device's words about a field is new, with another unit as its `other_unit`."""
    found: dict[str, str] = {}
    is_shared = gateway in (BY_MAPS, BY_NOBODY)  # these stand for many devices
    speakers = {device} if is_shared or not gateway else {device, gateway}
    first = {info.first_device, info.first_via} - {""}
    is_first = not first or bool(first & speakers)
    unit = as_written(words.get("unit", ""))
    bounds = (("path", PATH_CHARS_MAX), ("label", WORDS_CHARS_MAX), ("classes", WORDS_CHARS_MAX))
    for what, chars_max in bounds:
        text = words.get(what, "")
        if is_first and text and not getattr(info, what) and _is_sound(text, chars_max):
            found[what] = text
    if not unit or info.unit_revision or not _is_sound(unit, UNIT_CHARS_MAX):
        return found
    if is_first and not info.unit:
        found["unit"] = unit
    elif as_written(info.unit) not in ("", unit) and not info.other_unit:
        found["other_unit"] = f"{unit} by {device}"
    return found


def _is_sound(text: str, chars_max: int) -> bool:
    return text.isprintable() and len(text) <= chars_max


def _add(counts: Counter[str], key: str, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]


def _over_quota(detail: str) -> NotNow:
    return NotNow(Later(LaterReason.QUOTA, QUOTA_RETRY_MS, detail), RejectReason.QUOTA)
