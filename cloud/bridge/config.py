"""The bridge's configuration: bridge.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from edgewake.cloud.bridge.admission.allowance import DeviceConfig
from edgewake.cloud.bridge.admission.gateways import RULES_MAX, GatewayRule, Pattern
from edgewake.cloud.bridge.feeds import FeedConfig
from edgewake.cloud.bridge.http_config import HttpConfig, ThingsBoardConfig
from edgewake.cloud.bridge.sparkplug_config import SparkplugConfig
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.traces.config import SampledConfig
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.config import Config
from edgewake.protocol.frames.event_time import zone_of
from edgewake.protocol.frames.frame import FRAME_BYTES_MAX
from edgewake.protocol.plain import key


def _zone(name: str) -> str:
    zone_of(name)
    return name


class MqttConfig(BrokerConfig):
    """Where the MQTT broker is, and what it keeps for this bridge."""

    site: str | None = key(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")
    """Name of this broker, the same for all bridges on it: they adopt each other's sessions. None:
    host:port."""

    share_key_file: Path | None = None
    """File with the key that all bridges of an installation have and nobody else, mode 0600: 32
    hexadecimal digits or more. It makes the name under which they share the messages, which a
    device that knew it could swallow. Lines below it are keys of before. None only where the broker
    knows nobody by certificate or password: there everybody may do everything anyway."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_key_file is None and (self.ca_file is not None or self.username is not None):
            raise ValueError(
                "share_key_file is missing: a device that knows the name of the bridges' group "
                "swallows what others send"
            )

    @property
    def site_name(self) -> str:
        """The broker's name in the register of sessions."""
        return self.site or f"{self.host}:{self.port}"


class MapsConfig(Config):
    """Devices that publish to topics of their own (docs/maps.md)."""

    file: Path | None = None
    """Map file; read again when it changes. None: `presets` alone, or no maps."""
    pushed: bool = False
    """true: the maps that operators give to all bridges (`edgewake map push`) are used; those of
    `file` or `presets` as long as there are none. The broker's access list has to let the bridge
    read their topics."""
    presets: tuple[str, ...] = ()
    """Maps that come with Edgewake, by name, if no file is given; a file names its own."""
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,31})?$")
    """Begins the name of every device that comes by a map. Needed where the broker knows devices by
    certificate or password: with a prefix that none of these has, who may write a mapped topic can
    write in the name of no other device."""
    zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    """Zone of times that do not say theirs, e.g. `Europe/Berlin`."""
    devices: Annotated[tuple[Pattern, ...], Field(max_length=100)] = ()
    """Names that devices may have which come by a map, the prefix included, `*` for any characters:
    what is of another is refused. None: any."""

    @property
    def are_wanted(self) -> bool:
        """Are there any?"""
        return self.file is not None or bool(self.presets) or self.pushed


class BridgeConfig(Config):
    """One bridge; any number run side by side under different names."""

    name: str = Field(default="bridge-1", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name in logs, Kafka and the broker (client id `bridge:<installation>:<name>`); stable, so
    that a restart gets back what was not acknowledged. Of two processes of one name the one that
    started first ends."""
    mqtt: MqttConfig = MqttConfig()
    """[mqtt]"""
    kafka: KafkaConfig = KafkaConfig()
    """[kafka]"""
    feed: FeedConfig = FeedConfig()
    """[feed]"""
    device: DeviceConfig = DeviceConfig()
    """[device]"""
    maps: MapsConfig = MapsConfig()
    """[maps]"""
    gateway: Annotated[tuple[GatewayRule, ...], Field(max_length=RULES_MAX)] = ()
    """[[gateway]]: which devices may send for which things behind them. Without one nobody may
    where the broker knows devices by certificate or password, and everybody where it does not."""
    http: HttpConfig = HttpConfig()
    """[http]"""
    sparkplug: SparkplugConfig = SparkplugConfig()
    """[sparkplug]"""
    thingsboard: ThingsBoardConfig = ThingsBoardConfig()
    """[thingsboard]"""
    traces: SampledConfig = SampledConfig()
    """[traces]"""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of Prometheus metrics, /healthz and /readyz; none: neither."""
    metrics_host: str = "127.0.0.1"
    """Address of /metrics and /healthz; 0.0.0.0 where Prometheus asks from another container or
    machine. Nothing there is secret."""
    inflight_messages_max: int = Field(default=4000, ge=1, le=65_535)
    """Messages taken from the broker and not yet in Kafka (MQTT's Receive Maximum); at the bound
    the broker waits."""
    inflight_bytes_max: int = Field(default=64 << 20, ge=2 * FRAME_BYTES_MAX)
    """Bytes taken and not yet in Kafka; at the bound the bridge stops reading its connection."""

    @property
    def knows_devices(self) -> bool:
        """Does the broker know devices by certificate or password?"""
        return self.mqtt.ca_file is not None or self.mqtt.username is not None

    @property
    def speaks_thingsboard(self) -> bool:
        """Does it answer devices of ThingsBoard, by MQTT or HTTP?"""
        return self.thingsboard.port is not None or self.http.port is not None

    @model_validator(mode="after")
    def _check_maps(self) -> Self:
        if self.maps.file is not None and self.maps.presets:
            raise ValueError(
                "maps: expected `file` or `presets`; a file names its own: presets = [...]"
            )
        if self.maps.are_wanted and self.knows_devices and not self.maps.prefix:
            raise ValueError(
                "maps.prefix is missing: where the broker knows devices by certificate or "
                "password, names of mapped devices begin with a prefix that no other device has, "
                'e.g. "zb-"'
            )
        if self.sparkplug.host_id is not None and self.knows_devices and not self.sparkplug.prefix:
            raise ValueError(
                "sparkplug.prefix is missing: where the broker knows devices by certificate or "
                "password, names of Sparkplug's begin with a prefix that no other device has, "
                'e.g. "sp-"'
            )
        if (
            self.thingsboard.port is not None
            and self.knows_devices
            and (self.thingsboard.tokens_file is None or not self.thingsboard.prefix)
        ):
            raise ValueError(
                "thingsboard: where the broker knows devices by certificate or password, expected "
                "a `tokens_file`, and a `prefix` that names of other devices do not begin with, "
                'e.g. "tb-"'
            )
        if self.http.port is not None and self.knows_devices and not self.http.prefix:
            raise ValueError(
                "http.prefix is missing: where the broker knows devices by certificate or "
                "password, names that HTTP payloads give begin with a prefix that no other device "
                'has, e.g. "web-"'
            )
        return self
