"""What a device's first configuration reads: presets and maps as sources, and a first map file.

Pure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from edgewake.edge.commands.first_config import SOURCES
from edgewake.protocol.errors import ConfigError, LocalError
from edgewake.protocol.maps import presets
from edgewake.protocol.maps.compiling import compile_maps, compile_presets
from edgewake.protocol.maps.names import stream_name
from edgewake.protocol.maps.rule import Maps


@dataclass(frozen=True, slots=True, kw_only=True)
class Having:
    """What somebody says that he has."""

    kinds: Sequence[str] = ()
    """Kinds of sources."""
    presets: Sequence[str] = ()
    broker: str = "127.0.0.1:1883"
    """Where devices of presets and maps publish to, host:port."""
    maps: str = ""
    """Path of a map file, as the configuration is to say it."""
    maps_text: str = ""
    """What is in it."""
    zone: str = "UTC"
    answers: Mapping[str, str] = field(default_factory=dict)
    """Kind → where it is, for those of `QUESTIONS` that were asked."""


ABOUT: Final[Mapping[str, str]] = {
    "host_metrics": "this machine: processor, memory, disks, network",
    "kernel_sensors": "thermometers and other sensors that Linux knows: hwmon, iio, 1-Wire",
    "mqtt_subscribe": "a broker with topics of your own: a map file is written for them",
    "serial_lines": "a GPS receiver or another thing on a serial line",
    "modbus_tcp": "a meter that speaks Modbus TCP",
    "modbus_rtu": "a meter that speaks Modbus on a serial line",
    "opcua": "a controller with an OPC UA server",
    "sparkplug": "a plant that speaks Sparkplug B",
    "can": "a car or a machine on a CAN bus: OBD-II, or a DBC file",
    "ble": "Bluetooth beacons: Ruuvi, Xiaomi, BTHome",
    "file_tail": "a program that writes lines into a file",
    "exec": "a program that prints what it measured",
    "http_poll": "a thing with an address that answers JSON",
    "http_lines": "an address that answers lines without end",
    "sse_pull": "an address of Server-Sent Events",
    "websocket_pull": "an address of a WebSocket",
    "tcp_lines": "a program that sends lines to who connects, such as gpsd",
    "udp_lines": "programs that send datagrams to this machine",
    "http_intake": "programs that post JSON to this machine",
}
"""Kinds of sources that one may have, and what they are."""
QUESTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "serial_lines": ("path", "The serial line"),
    "modbus_tcp": ("host", "Address of the meter"),
    "modbus_rtu": ("path", "The serial line of the meter"),
    "opcua": ("url", "Address of the OPC UA server"),
    "can": ("channel", "The CAN bus"),
    "file_tail": ("path", "The file"),
    "http_poll": ("url", "The address that answers JSON"),
    "http_lines": ("url", "The address that answers lines"),
    "sse_pull": ("url", "The address of the events"),
    "websocket_pull": ("url", "The address of the WebSocket"),
    "tcp_lines": ("host", "The machine that sends lines"),
}
"""Kind → the key that says where it is, and how that is asked."""
SPARKPLUG: Final = "sparkplug"


def choices() -> list[tuple[str, str]]:
    """What one may have: a word, and what it is."""
    return [*ABOUT.items(), *((name, presets.about(name)) for name in presets.names())]


def place_of(kind: str) -> str:
    """Where a kind of source of `QUESTIONS` is, as its first table has it."""
    table = tomllib.loads(SOURCES[kind])
    return str(table[QUESTIONS[kind][0]])


def chosen(answer: str) -> Having:
    """What an answer means: words or numbers of the list, with commas. Raises LocalError."""
    listed = [word for word, _ in choices()]
    kinds, named = [], []
    for word in (one.strip() for one in answer.split(",")):
        if word.isascii() and word.isdecimal() and 0 < int(word[:4]) <= len(listed):
            word = listed[int(word[:4]) - 1]
        if word in SOURCES:
            kinds.append(word)
        elif word in presets.names():
            named.append(word)
        elif word:
            raise LocalError(f"{word!r}: expected numbers or words of the list, with commas")
    return Having(kinds=kinds, presets=named)


def tables(having: Having) -> str:
    """The `[[source]]`s. Raises LocalError with what is wrong."""
    unknown = [kind for kind in having.kinds if kind not in SOURCES]
    if unknown:
        raise LocalError(f"source {unknown[0]!r}: expected one of {', '.join(SOURCES)}")
    found = [_table(kind, having) for kind in having.kinds]
    try:
        for name in having.presets:
            maps = compile_presets([name], zone=having.zone)
            found += _mapped(maps, f"presets = {_quoted([name])}", having)
        if having.maps:
            maps = compile_maps(having.maps_text, having.maps, zone=having.zone)
            found += _mapped(maps, f"maps = {_quoted(having.maps)}", having)
    except ConfigError as error:
        raise LocalError(str(error)) from error
    return "\n\n".join(found)


def _table(kind: str, having: Having) -> str:
    text = SOURCES[kind]
    if kind in having.answers:
        before = f"{QUESTIONS[kind][0]} = {_quoted(place_of(kind))}"
        text = text.replace(before, f"{QUESTIONS[kind][0]} = {_quoted(having.answers[kind])}")
    if kind == SPARKPLUG:
        text = f"{text}\n{_address(having)}"
    return f'[[source]]\ntype = "{kind}"\n{text}'


def _address(having: Having) -> str:
    """The devices' broker. Raises LocalError."""
    host, _, port = having.broker.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        raise LocalError(f"broker of the devices {having.broker!r}: expected host:port")
    return f"broker = {{ host = {_quoted(host.strip('[]'))}, port = {int(port)} }}"


def _mapped(maps: Maps, what: str, having: Having) -> list[str]:
    """A source for each stream; what a message itself names is said in a comment."""
    texts = [one.stream for one in maps.maps if not one.is_ignored]
    streams = dict.fromkeys(one.constant for one in texts if one is not None and one.constant)
    zone = "" if having.zone == "UTC" else f"\ntime = {{ zone = {_quoted(having.zone)} }}"
    address = _address(having)
    found = [
        f'[[source]]\ntype = "mqtt_subscribe"\nstream = "{stream}"\n{what}{zone}\n{address}'
        for stream in streams
    ]
    if not found:
        found.append(
            f"# {what}: its messages name their streams: a source for each of them, such as\n"
            f'# [[source]]\n# type = "mqtt_subscribe"\n# stream = "..."\n# {what}\n# {address}'
        )
    return found


def first_map(topic: str) -> str:
    """A map file for a topic such as `home/{device}/{kind}`. Raises LocalError."""
    first = topic.split("/")[0] or topic.split("/")[-1]
    has_device = "{device}" in topic
    last = topic.split("/")[-1]
    is_value = last.startswith("{") and last.endswith("}") and last != "{device}"
    try:
        stream = stream_name(first.strip("{}+#") or "readings")
    except ValueError:
        stream = "readings"
    lines = [
        "# What becomes of a message: edgewake map try, edgewake map watch; all keys: docs/maps.md",
        "[[map]]",
        f"topic  = {_quoted(topic)}",
        *(['device = "{device}"'] if has_device else []),
        f'stream = "{stream}"',
        f"value  = {_quoted(last if is_value else 'value')}    # of a message that is one value",
        '# time = "auto"             # where the messages say theirs',
    ]
    text = "\n".join(lines) + "\n"
    try:
        compile_maps(text, "--topic")
    except ConfigError as error:
        raise LocalError(str(error)) from error
    return text


def _quoted(value: object) -> str:
    """Format a value for TOML, which accepts JSON's strings and lists."""
    return orjson.dumps(value).decode()
