"""Maps at sources of lines and of documents: their keys, and what they make of a message.

Such a message has no topic of its own, so the configuration says one. The maps themselves are
imported only where a source has any: a small device pays for what it uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from edgewake.edge.intake.intake import Intake
from edgewake.edge.sources.config import SourceConfig, SourceContext, check_streams
from edgewake.edge.sources.items import found
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.plain import Check

if TYPE_CHECKING:
    from edgewake.edge.sources.mqtt.mqtt_maps import SourceMaps

LOOK_S: Final = 2.0
"""Seconds between two looks at a map file."""
TOPIC_BYTES_MAX: Final = 256
"""Bytes of the topic that stands for a source."""


def _topic(text: str) -> str:
    if any(sign in text for sign in "+#\0") or len(text.encode()) > TOPIC_BYTES_MAX:
        raise ValueError(f"expected a topic of at most {TOPIC_BYTES_MAX} bytes, without + and #")
    return text


class MappedConfig(SourceConfig):
    """Maps that read what a source brings (docs/maps.md), in place of its own format."""

    maps: Path | None = None
    """Map file that makes readings of each line or document; read again when it changes. The
    device that it gives is the field `thing`; `payload` of a map says what a message is, and the
    source's own keys for that (`format`, `items`) are not used."""
    presets: tuple[str, ...] = ()
    """Maps that come with Edgewake, by name, where there is no file. `topic` has to be one of
    theirs."""
    maps_text: str | None = None
    """What a map file says, in place of its path: settings that the cloud sets bring their maps
    along so."""
    topic: Annotated[str, Check(_topic)] = ""
    """Topic under which the maps see what comes, e.g. `rtl_433/attic/events` for a preset. Empty:
    `source/STREAM`."""
    streams: Literal["own", "all"] = "own"
    """Which readings of the maps are taken. own: those of `stream`; all: every stream that the maps
    give, each as if it had a source of its own, up to 32 (`ManyStreams`). Losses are of
    `stream`."""

    def __post_init__(self) -> None:
        given = sum(one is not None for one in (self.maps, self.presets or None, self.maps_text))
        if given > 1:
            raise ValueError("expected one of `maps`, `maps_text` and `presets`")
        if not given and (self.topic or self.has_streams):
            raise ValueError("topic, streams: expected `maps`, `maps_text` or `presets` with them")
        check_streams(self)
        wanted = None if self.has_streams else self.stream
        if self.presets:
            from edgewake.edge.sources.mqtt.mqtt_maps import check_presets

            check_presets(self.presets, wanted, topic=self.map_topic)
        if self.maps_text is not None:
            from edgewake.edge.sources.mqtt.mqtt_maps import check_text

            check_text(self.maps_text, wanted, topic=self.map_topic)

    @property
    def has_maps(self) -> bool:
        """Do maps read what comes?"""
        return self.maps is not None or bool(self.presets) or self.maps_text is not None

    @property
    def has_streams(self) -> bool:
        return self.streams == "all"

    @property
    def map_topic(self) -> str:
        """The topic of each message."""
        return self.topic or f"source/{self.stream}"

    def message_maps(self, context: SourceContext) -> MessageMaps | None:
        """The maps of a source that is made; None: it has none. Raises ConfigError."""
        return MessageMaps(self, context) if self.has_maps else None


class MessageMaps:
    """What maps make of the messages of one source."""

    def __init__(self, config: MappedConfig, context: SourceContext) -> None:
        """Raises ConfigError where no map takes the source's topic."""
        from edgewake.edge.sources.mqtt.mqtt_maps import SourceMaps

        self._topic = config.map_topic
        self._clock = context.clock
        self._maps: SourceMaps = SourceMaps(
            config.maps,
            config.presets,
            stream=config.stream,
            zone=config.time.zone,
            text=config.maps_text,
            others=context.streams,
            has_devices=config.has_devices,
            has_streams=config.has_streams,
        )
        if not self._maps.takes(self._topic):
            raise ConfigError(
                f"maps = {config.maps}: no map takes the topic {self._topic!r} of this source "
                "(its key `topic`)"
            )
        self._looked_s = context.clock.monotonic_s()
        self._looking: asyncio.Future[None] | None = None

    def bodies(self, intake: Intake, message: bytes) -> list[dict[str, Any]]:
        """The objects in a message; what is refused is counted."""
        self._look()
        return self._maps.bodies_of(intake, self._topic, message, self._clock.now_ms())

    def _look(self) -> None:
        """Let the file be read again beside the loop, at most once in LOOK_S."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < LOOK_S or (self._looking and not self._looking.done()):
            return
        self._looked_s = now_s
        self._looking = asyncio.get_running_loop().run_in_executor(None, self._maps.look)


def items_of(intake: Intake, document: bytes, path: str, maps: MessageMaps | None) -> Sequence[Any]:
    """What may be readings in a document, by its maps where it has any. Raises Rejected."""
    return found(document, path) if maps is None else maps.bodies(intake, document)
