"""What every source's configuration has, and how a kind of source is found by its `type`.

A kind is a class of configuration that makes its source. Those that come with Edgewake are listed
in `BUILT_IN`; any installed package adds its own by an entry point of the group `edgewake.sources`.
A kind is imported when a configuration names it and never before: a small device pays for what it
has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from edgewake.edge.intake.field_book import ALL
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.processors.config import FieldName, StreamName
from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.event_time import AUTO, TimeRule, zone_of
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.names import is_field
from edgewake.protocol.plain import Check, ConfigTable, checker, key

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pydantic import ValidationInfo
    from pydantic_core import CoreSchema

    from edgewake.edge.downlink.feeds import Feeds
    from edgewake.edge.sources.source import Source

RENAMED_MAX: Final = 256
"""Names that a source may give to fields: as many as a reading has."""
GROUP: Final = "edgewake.sources"
BUILT_IN: Final[Mapping[str, str]] = {
    "host_metrics": "edgewake.edge.sources.machines.host_metrics:HostMetricsConfig",
    "json_lines": "edgewake.edge.sources.lines.json_lines:JsonLinesConfig",
    "file_tail": "edgewake.edge.sources.lines.file_tail:FileTailConfig",
    "udp_lines": "edgewake.edge.sources.lines.udp_lines:UdpLinesConfig",
    "exec": "edgewake.edge.sources.lines.exec:ExecConfig",
    "kernel_sensors": "edgewake.edge.sources.machines.kernel_sensors:KernelSensorsConfig",
    "http_poll": "edgewake.edge.sources.web.http_poll:HttpPollConfig",
    "http_lines": "edgewake.edge.sources.web.http_lines:HttpLinesConfig",
    "http_intake": "edgewake.edge.sources.web.http_intake:HttpIntakeConfig",
    "sse_pull": "edgewake.edge.sources.web.sse_pull:SsePullConfig",
    "websocket_pull": "edgewake.edge.sources.web.websocket_pull:WebSocketPullConfig",
    "tcp_lines": "edgewake.edge.sources.lines.tcp_lines:TcpLinesConfig",
    "serial_lines": "edgewake.edge.sources.lines.serial_lines:SerialLinesConfig",
    "mqtt_subscribe": "edgewake.edge.sources.mqtt.mqtt_subscribe:MqttSubscribeConfig",
    "sparkplug": "edgewake.edge.sources.mqtt.sparkplug:SparkplugConfig",
    "modbus_tcp": "edgewake.edge.sources.machines.modbus_tcp:ModbusTcpConfig",
    "modbus_rtu": "edgewake.edge.sources.machines.modbus_rtu:ModbusRtuConfig",
    "opcua": "edgewake.edge.sources.machines.opcua:OpcUaConfig",
    "ble": "edgewake.edge.sources.machines.ble:BleConfig",
    "can": "edgewake.edge.sources.machines.can_bus:CanConfig",
    "subscription": "edgewake.edge.sources.subscription:SubscriptionConfig",
}
"""`type` → where its configuration is. No entry point of another package takes one of these
names."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source gets from the agent."""

    device: str
    clock: Clock
    position: Callable[[str], str | None]
    """How far the source of this name had read when its last readings were accepted; None: never
    read. Does not block."""
    feeds: Feeds | None = None
    """The way to streams of others; None: there is none."""
    streams: frozenset[str] = frozenset()
    """Streams that sources of the agent give."""


def _zone(name: str) -> str:
    zone_of(name)
    return name


def _declared(fields: dict[str, FieldType]) -> dict[str, FieldType]:
    for name in fields:
        if name != ALL and not is_field(name):
            raise ValueError(
                f"unknown field name {name!r}: expected the name that a field has here, such as "
                "`DS18B20_1`, or *"
            )
    return fields


def _renamed(names: dict[str, str]) -> dict[str, str]:
    if len(names) > RENAMED_MAX:
        raise ValueError(f"expected at most {RENAMED_MAX} names")
    if len(set(names.values())) < len(names):
        raise ValueError("two fields get one name")
    return names


class TimeConfig(ConfigTable):
    """When a reading of this source happened."""

    field: str = ""
    """Field that holds the time; one inside of others by names joined with dots, e.g. `data.ts`.
    `auto`: the first of ts, time, timestamp, tst, last_seen, … that holds what can only be a time;
    the status says which. Empty: `t`, or the time when it came."""
    format: str = AUTO
    """auto: a number by its size, text by ISO 8601; s, ms, us, ns: a number of these since 1970;
    iso; or a pattern of strptime, such as `%d.%m.%Y %H:%M:%S`."""
    zone: Annotated[str, Check(_zone)] = "UTC"
    """Zone of times that do not say theirs, e.g. `Europe/Berlin`."""
    unreadable: Literal["now", "refuse"] = "now"
    """What happens where the field is missing or holds no time. now: the reading is of the time
    when it came, counted; refuse: it is refused."""
    other_units: Literal["convert", "refuse"] = "convert"
    """What happens to a `t` that can only be seconds, micro- or nanoseconds. convert: it is made
    ms, counted; refuse: the reading is refused."""

    def rule(self) -> TimeRule:
        """The rule that the intake applies."""
        return TimeRule(
            self.field,
            self.format,
            zone_of(self.zone),
            self.other_units == "convert",
            self.unreadable == "refuse",
        )


class SourceConfig(ConfigTable):
    """The keys that every source has."""

    type: str
    """The kind of source."""
    stream: StreamName
    """Name of the stream: 1-64 of a-z 0-9 _, a letter first."""
    lane: Lane = Lane.NORMAL
    """urgent: sent first, and its part of the window is its own; bulk: fewest commits, sent last,
    the first to go at the quota."""
    mode: Mode = Mode.ACK
    """ack: logged and kept until the cloud has it; one_way: never logged, may be lost."""
    send: bool = True
    """false: the stream stays on the device, for chains that send less instead. It is kept until
    they have read it, up to `log.consumer_bytes`."""
    policy: Policy | None = None
    """What happens when its queue is full. block: the source waits, and whoever sends to it feels
    it; drop_newest: readings are dropped, counted, and said by a gap. None: as is usual for this
    kind."""
    queue_bytes_max: int | None = key(default=None, ge=64 << 10)
    """Bytes of memory that its stream's readings may take before they are durable; one call of the
    source may exceed it by what it brings. None: as much as `log.queue_bytes_max` leaves it."""
    fields: Annotated[dict[str, FieldType], Check(_declared)] = key(default_factory=dict)
    """Types of fields: number, string or boolean, `*` for all that are not named, e.g. `{
    temperature = "number" }`. A number may come as text then, with a unit or without (`21.5 °C`),
    as ON and OFF, or as true. A field that is not declared has the type of its first value. A value
    of another type is null, and its text is kept in `<field>_odd`."""
    rename: Annotated[dict[str, FieldName], Check(_renamed)] = key(default_factory=dict)
    """Fields that get names of your choice: the name that comes, one inside of others by names
    joined with dots → the name here, e.g. `{ "event.time" = "starts_at", "venue.id" = "thing" }`.
    `fields` means the names here; `time` those that come."""
    time: TimeConfig = TimeConfig()
    things: Literal["field", "devices"] = "field"
    """What the field `thing` means, which maps and some kinds of sources give: a thing behind this
    device. field: it stays a field, and all readings are this device's. devices: each thing is a
    device of its own in the cloud (docs/gateways.md), with its own numbers, gaps, rate and
    presence, as far as `[[gateway]]` of the bridges allows this device to send for it."""
    things_max: int = key(default=1000, ge=1, le=10_000)
    """Things that have streams of their own here; readings of others are lost, and a gap says how
    many. Each costs some KB of memory."""

    @property
    def has_devices(self) -> bool:
        """Are things devices of their own?"""
        return self.things == "devices"

    @property
    def has_streams(self) -> bool:
        """Does it give readings of several streams?"""
        return False

    def source(self, context: SourceContext) -> Source:
        """Make the source. Whatever it raises is said, and it is asked again later."""
        raise NotImplementedError

    def owns(self) -> str | None:
        """What no second source may read too, in words; None: anybody may."""
        return None


STREAMS_NEED: Final = (
    '`streams = "all"` is for readings that are kept, sent and of the lane normal: expected no '
    "`mode`, `send` or `lane` with it"
)


def check_streams(config: SourceConfig) -> None:
    """May it give readings of several streams? Raises ValueError."""
    is_usual = config.mode is Mode.ACK and config.send and config.lane is Lane.NORMAL
    if config.has_streams and not is_usual:
        raise ValueError(STREAMS_NEED)


def kinds() -> dict[str, EntryPoint]:
    """Every kind that is installed, by its `type`. Imports none of them."""
    from importlib.metadata import EntryPoint, entry_points

    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    return found | {name: EntryPoint(name, path, GROUP) for name, path in BUILT_IN.items()}


def kind(name: str) -> type[SourceConfig]:
    """The configuration of one kind. Raises ValueError with what to do."""
    from importlib.metadata import EntryPoint

    path = BUILT_IN.get(name)
    entry = EntryPoint(name, path, GROUP) if path else kinds().get(name)
    if entry is None:
        raise ValueError(
            f"no kind of source is called {name!r}: known are {', '.join(sorted(kinds()))}"
        )
    try:
        found = entry.load()
    except ModuleNotFoundError as error:
        raise ValueError(
            f"sources of type {name!r} need the Python module {error.name!r}: {_install(name)}"
        ) from error
    except Exception as error:  # whatever a package does when it is imported
        raise ValueError(
            f"sources of type {name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, SourceConfig)):
        raise ValueError(
            f"{entry.value}: expected a subclass of edgewake.edge.sources.config.SourceConfig"
        )
    return found


EXTRA: Final = "edge"
"""Installs the libraries of built-in kinds."""
EXTRAS: Final[Mapping[str, str]] = {
    "modbus_tcp": "edge-modbus",
    "modbus_rtu": "edge-modbus",
    "opcua": "edge-opcua",
    "ble": "edge-ble",
    "can": "edge-can",
    "sparkplug": "formats",
}
"""Built-in kinds whose library few devices need → the extra that installs it."""


def _install(name: str) -> str:
    return (
        f"pip install 'edgewake[{EXTRAS.get(name, EXTRA)}]'"
        if name in BUILT_IN
        else "its package was not installed completely"
    )


class _ByType:
    """In `Annotated`: one table `[[source]]` as what its `type` says."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: object) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(_configured)


def _configured(value: Any, info: ValidationInfo) -> SourceConfig:
    from pydantic_core import PydanticCustomError

    if isinstance(value, SourceConfig):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError("model_type", "expected an object")
    name = value.get("type")
    if not isinstance(name, str):
        raise ValueError("type is missing")
    table = checker(kind(name))
    if info.mode == "json":  # as `parse` reads it: strictly, yet a path comes as text
        return table.validate_json(json.dumps(value), strict=True)
    return table.validate_python(value)


AnySource = Annotated[SourceConfig, _ByType()]
