"""Makes legal names of the devices and streams that maps find; equal input gives equal names. Pure.

`kitchen/lamp` becomes the device `kitchen.lamp`, `AA:BB:CC` becomes `AA-BB-CC`. A name in
which anything else had to be replaced gets a checksum of itself behind it, so that two devices do
not become one; `[devices]` of a map file gives it a better one.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import Final

from edgewake.protocol.frames.field_names import form
from edgewake.protocol.names import is_device, is_stream

DEVICE_CHARS_MAX: Final = 64
"""The most characters of a device's name (`edgewake.protocol.names`)."""
_SUFFIX_CHARS: Final = 9
"""Length of a checksum with the hyphen before it."""
_NOT_DEVICE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_STREAM: Final = re.compile(r"[^a-z0-9_]+")


@lru_cache(maxsize=65_536)
def device_name(text: str, prefix: str = "") -> str:
    """Makes a legal name of a device. Raises ValueError for an empty text."""
    name = prefix + text
    if is_device(name):
        return name
    if not text.strip():
        raise ValueError("the name of the device is empty")
    name = prefix + text.replace("/", ".").replace(":", "-")
    if is_device(name):
        return name
    plain = _NOT_DEVICE.sub("_", prefix + _in_ascii(text)).strip("_.-") or "device"
    crc = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return f"{plain[: DEVICE_CHARS_MAX - _SUFFIX_CHARS]}-{crc:08x}"


@lru_cache(maxsize=4096)
def stream_name(text: str) -> str:
    """Makes a legal name of a stream. Raises ValueError for a text without a letter."""
    if is_stream(text):
        return text
    name = _NOT_STREAM.sub("_", _in_ascii(text).lower()).strip("_")[:64]
    if name and not name[0].isalpha():
        name = f"s_{name}"[:64]
    if not is_stream(name):
        raise ValueError(f"{text[:80]!r}: a name of a stream needs a letter")
    return name


def _in_ascii(text: str) -> str:
    """Converts a text by the rule for fields, level by level."""
    return "/".join(form(level).strip("_") if level else "" for level in text.split("/"))
