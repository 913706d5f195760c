"""What a device's first configuration reads: presets and maps as sources, and a first map file.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def choices() -> list[tuple[str, str]]:
    """What one may have: a word, and what it is."""
    kinds = {
        "host_metrics": "this machine: processor, memory, disks, network",
        "serial_lines": "a GPS receiver or another thing on a serial line",
        "modbus_tcp": "a meter that speaks Modbus TCP",
        "file_tail": "a program that writes lines into a file",
        "http_poll": "a thing with an address that answers JSON",
        "http_intake": "programs that post JSON to this machine",
    }
    return [*kinds.items(), *((name, presets.about(name)) for name in presets.names())]


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
    found = [f'[[source]]\ntype = "{kind}"\n{SOURCES[kind]}' for kind in having.kinds]
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


def _mapped(maps: Maps, what: str, having: Having) -> list[str]:
    """A source for each stream; what a message itself names is said in a comment."""
    host, _, port = having.broker.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        raise LocalError(f"broker of the devices {having.broker!r}: expected host:port")
    texts = [one.stream for one in maps.maps if not one.is_ignored]
    streams = dict.fromkeys(one.constant for one in texts if one is not None and one.constant)
    zone = "" if having.zone == "UTC" else f"\ntime = {{ zone = {_quoted(having.zone)} }}"
    address = f"broker = {{ host = {_quoted(host.strip('[]'))}, port = {int(port)} }}"
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
