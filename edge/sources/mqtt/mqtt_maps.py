"""Maps of a source, imported only where it has any: a small device pays for what it uses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewake.edge.intake.intake import Intake
from edgewake.edge.things.streams import STREAM
from edgewake.protocol.discovery.home_assistant import described
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.frames.field_names import put_over
from edgewake.protocol.maps.applying import Mapped, Outcome, ReadEvent, apply
from edgewake.protocol.maps.compiling import compile_maps, compile_presets
from edgewake.protocol.maps.contents import binary_event
from edgewake.protocol.maps.map_file import MapFile
from edgewake.protocol.maps.path import MISSING
from edgewake.protocol.maps.rule import Map, Maps
from edgewake.protocol.maps.topic import Crossing
from edgewake.protocol.names import THING, THING_ONLINE, THING_SEQ

if TYPE_CHECKING:
    import mqtt5


class SourceMaps:
    """The maps of one source: they give the readings of its stream."""

    def __init__(
        self,
        path: Path | None,
        presets: Sequence[str],
        *,
        stream: str,
        zone: str,
        takes_all: bool = False,
        text: str | None = None,
        others: frozenset[str] = frozenset(),
        has_devices: bool = False,
        has_streams: bool = False,
    ) -> None:
        """`takes_all`: are readings of other streams taken too? Raises ConfigError.

        `text`: a map file's text, in place of its path. `others`: streams that have sources.
        `has_devices`: are things devices of their own, with a presence? `has_streams`: is each
        reading of the stream that its map gives?
        """
        self._file = MapFile(path, presets, zone=zone, text=text)
        self._stream = stream
        self._others = others - {stream}
        self._has_devices = has_devices
        self._has_streams = has_streams
        self._crossing = Crossing(self._file.maps.filters)
        if not takes_all and not has_streams:
            _check_stream(self._file.maps, stream)

    @property
    def filters(self) -> Sequence[str]:
        """The topic filters to subscribe to."""
        return self._file.maps.filters

    def look(self) -> None:
        """Read the file again where it changed. Blocking."""
        if self._file.look():
            self._crossing = Crossing(self._file.maps.filters)

    def is_repeat(self, topic: str, numbers: Sequence[int] | None) -> bool:
        """Comes a message once more, by another filter? `numbers`: of its subscriptions."""
        return self._crossing.is_repeat(topic, numbers)

    def outcome(self, topic: str, payload: bytes, now_ms: int, document: Any = MISSING) -> Outcome:
        """What becomes of a message; `document`: what it says, where it was read already."""
        return apply(self._file.maps, topic, payload, now_ms, document=document)

    def all_bodies(self, readings: Sequence[Mapped], named: str) -> list[dict[str, Any]]:
        """The objects of readings of whatever stream.

        The name of another one is the field `named`, where all of them are in one.
        """
        found: list[dict[str, Any]] = []
        for one in readings:
            body = self._body(one)
            if not self._has_streams and one.stream not in ("", self._stream):
                put_over(body, {named: one.stream})
            found.append(body)
        return found

    def _body(self, reading: Mapped) -> dict[str, Any]:
        """The object, which says its stream where the source has several."""
        body = self._of_thing(reading)
        body.pop(STREAM, None)  # only a map says it
        if stream := self.other(reading):
            body[STREAM] = stream
        return body

    def takes(self, topic: str) -> bool:
        """Is there a map of this topic?"""
        return bool(self._file.maps.route(topic))

    def bodies(
        self, intake: Intake, packet: mqtt5.PublishPacket, now_ms: int
    ) -> list[dict[str, Any]]:
        """`bodies_of` a packet, which may be an event in binary mode."""
        payload = bytes(packet.payload)
        event = partial(binary_event, payload, packet.content_type, packet.user_properties)
        return self.bodies_of(intake, packet.topic, payload, now_ms, event)

    def bodies_of(
        self,
        intake: Intake,
        topic: str,
        payload: bytes,
        now_ms: int,
        event: ReadEvent | None = None,
    ) -> list[dict[str, Any]]:
        """The objects of this source's stream in a message; what is refused or odd is counted."""
        maps = self._file.maps
        if not maps.route(topic):  # a subscription of before, which the broker kept
            intake.remark("messages of topics without a map passed over")
            return []
        outcome = apply(maps, topic, payload, now_ms, event=event)
        own = [one for one in outcome.readings if self._is_own(one.stream)]
        self._note_announced(outcome.readings, topic, intake, now_ms)
        if self._is_of_another(outcome):
            return []
        for one in outcome.refused:
            intake.refuse(one.why.reason, one.why.detail, one.readings)
        for what in outcome.remarks:
            intake.remark(what)
        for reading in own:
            intake.note_units(reading.units, self.other(reading))
        return [self._body(one) for one in own]

    def _note_announced(
        self, readings: Sequence[Mapped], topic: str, intake: Intake, now_ms: int
    ) -> None:
        """Tell what devices announce of fields that are this source's."""
        for one in readings:
            found = described(self._file.maps, one, now_ms, topic=topic)
            if found is not None and self._is_own(found.stream):
                is_other = self._has_streams and found.stream not in ("", self._stream)
                stream = found.stream if is_other else ""
                intake.note_words({found.path: found.words}, stream)

    def other(self, reading: Mapped) -> str:
        """The stream of a reading, where that is another one than the source's own."""
        is_other = self._has_streams and reading.stream != self._stream
        return reading.stream if is_other else ""

    def _is_own(self, stream: str) -> bool:
        if stream in ("", self._stream):
            return True
        return self._has_streams and stream not in self._others

    def _of_thing(self, reading: Mapped) -> dict[str, Any]:
        """The object, with the device of the map, its number and its presence as fields."""
        if not reading.device:
            return reading.body
        body = reading.body
        meant: dict[str, Any] = {THING: reading.device}
        if "seq" in body:
            meant[THING_SEQ] = body.pop("seq")
        if self._has_devices and reading.is_there is not None:
            meant[THING_ONLINE] = reading.is_there
        put_over(body, meant)
        return body

    def _is_of_another(self, outcome: Outcome) -> bool:
        """Is a message of a stream that another source gives? Then that one speaks of it."""
        of = [one for one in self._file.maps.maps if one.name == outcome.map]
        return bool(of) and all(self._gives_another(one) for one in of)

    def _gives_another(self, one: Map) -> bool:
        return one.stream is not None and one.stream.constant in self._others


def check_presets(presets: Sequence[str], stream: str | None, *, topic: str = "") -> None:
    """Are there such presets, and do they give this stream? None: any. Raises ValueError.

    `topic`: the one that all messages have.
    """
    try:
        _check(compile_presets(presets), stream, topic)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def check_text(text: str, stream: str | None, *, topic: str = "") -> None:
    """Is it a map file, and does it give this stream? None: any. Raises ValueError.

    `topic`: the one that all messages have.
    """
    try:
        _check(compile_maps(text, "maps_text"), stream, topic)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _check(maps: Maps, stream: str | None, topic: str) -> None:
    """Raises ConfigError."""
    _check_stream(maps, stream)
    if topic and not maps.route(topic):
        listed = ", ".join(maps.filters)
        raise ConfigError(f"topic: no map takes {topic!r}: expected one of {listed}")


def _check_stream(maps: Maps, stream: str | None) -> None:
    """Can the maps give a source of this stream anything? Raises ConfigError."""
    if stream is None:
        return
    texts = [one.stream for one in maps.maps if not one.is_ignored]
    known = {one.constant for one in texts if one is not None}
    if None in texts or None in known or stream in known:
        return
    listed = ", ".join(sorted(name for name in known if name))
    raise ConfigError(f"no map gives the stream {stream!r}: expected one of {listed}")
