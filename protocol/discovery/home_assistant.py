"""Joins what devices announce of their values with the fields that these become. Pure.

An announcement (a reading of one of STREAMS) says the name, unit and classes of one value, on which
topic it will come, and by a template of Home Assistant where it is in the message there. Which
field of which stream that is, the maps decide: they are given two messages that the template fits
and that differ in this value alone, and the field that differs is the one.

A template that computes (`value_json.t / 10`) is not joined: its unit is that of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from edgewake.protocol.frames.field_names import ODD, UNIT_CHARS_MAX, WORDS_CHARS_MAX
from edgewake.protocol.maps.applying import Mapped, apply
from edgewake.protocol.maps.rule import Maps

STREAMS: Final = ("ha_discovery", "homie_description")
"""Streams of announcements, as the presets `home-assistant` and `homie` name them."""
BESIDE: Final = "."
"""Begins the topic of a value that comes beside its announcement: `.` stands for the announcement's
topic without its last level, as in `./engine/speed`."""
TEMPLATE_CHARS_MAX: Final = 512
"""The most characters of a template that is looked at."""
DEPTH_MAX: Final = 16
"""The deepest value in a message, and the highest place in a list on the way to it."""
_PAIRS: Final = ((21.5, 1021.5), (21, 1021), ("ON", "OFF"), (True, False), ("on", "off"))
"""Values that a message is tried with, until one pair makes a difference: maps may take numbers
alone, or switches alone."""
_STEP: Final = r"(?:\.\w+|\[\s*(?:'[^']+'|\"[^\"]+\"|\d+)\s*\])"
_FILTERS: Final = r"(?:\s*\|\s*(?:float|int|round|default|is_defined)\b(?:\([^()|]*\))?)*"
_TEMPLATE: Final = re.compile(
    rf"\{{\{{-?\s*(?:value_json(?P<path>{_STEP}+)|value){_FILTERS}\s*-?\}}\}}"
)
_STEPS: Final = re.compile(r"\.(\w+)|'([^']+)'|\"([^\"]+)\"|(\d+)")


class Described(NamedTuple):
    """What is announced of a field."""

    device: str
    """As the maps name it; empty: they give none."""
    stream: str
    """Empty: the maps give none."""
    path: str
    """The field, by the path in which it comes."""
    words: Mapping[str, str] = MappingProxyType({})
    """`unit`, `label` and `classes`, as far as they are said."""


def described(
    maps: Maps, announced: Mapped, now_ms: int, *, topic: str = "", prefix: str = ""
) -> Described | None:
    """The field of an announcement that came on a topic.

    None: it is another reading, or no map makes a field of what it announces.
    """
    if announced.stream not in STREAMS:
        return None
    body = announced.body
    words = _words(body)
    topic = _topic(body, topic)
    is_whole = body.get("value_template") is None
    matched = _TEMPLATE.fullmatch("{{ value }}" if is_whole else _text(body, "value_template"))
    if not words or not topic or matched is None:
        return None
    steps = _steps(matched["path"] or "")
    if steps is None:
        return None
    for pair in _PAIRS:
        found = [apply(maps, topic, _message(steps, one), now_ms, prefix=prefix) for one in pair]
        readings = [each.readings for each in found]
        for first, second in zip(*readings, strict=False):
            if first.stream not in STREAMS and (path := _difference(first.body, second.body)):
                return Described(first.device, first.stream, path, words)
    return None


def _words(body: Mapping[str, Any]) -> dict[str, str]:
    classes = filter(None, (_text(body, "device_class"), _text(body, "state_class")))
    found = {
        "unit": _text(body, "unit"),
        "label": _text(body, "name"),
        "classes": ", ".join(classes),
    }
    most = {"unit": UNIT_CHARS_MAX}
    return {
        name: text
        for name, text in found.items()
        if text and len(text) <= most.get(name, WORDS_CHARS_MAX)
    }


def _topic(body: Mapping[str, Any], announced_at: str) -> str:
    """Where the values come; `~` at either end stands for the base topic."""
    topic, base = _text(body, "state_topic"), _text(body, "base_topic")
    if topic == BESIDE or topic.startswith(f"{BESIDE}/"):
        return announced_at.rpartition("/")[0] + topic.removeprefix(BESIDE)
    if base and topic.startswith("~"):
        return base + topic[1:]
    return topic[:-1] + base if base and topic.endswith("~") else topic


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    return found.strip() if isinstance(found, str) and len(found) <= TEMPLATE_CHARS_MAX else ""


def _steps(path: str) -> list[str | int] | None:
    """The way to a value; None: too deep."""
    found: list[str | int] = []
    for word, quoted, doubled, number in _STEPS.findall(path):
        found.append(int(number) if number else word or quoted or doubled)
    is_far = any(isinstance(one, int) and one > DEPTH_MAX for one in found)
    return None if is_far or len(found) > DEPTH_MAX else found


def _message(steps: list[str | int], value: object) -> bytes:
    """A message that has the value at the end of this way, and nothing else."""
    if not steps:
        return str(value).lower().encode() if isinstance(value, bool) else str(value).encode()
    found: Any = value
    for step in reversed(steps):
        found = [*[None] * step, found] if isinstance(step, int) else {step: found}
    return orjson.dumps(found)


def _difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """The path of the one value in which two bodies differ; empty where there is none."""
    one, other = dict(_leaves("", first)), dict(_leaves("", second))
    differing = [
        path
        for path, value in one.items()
        if path not in ("t", "seq")
        and not (path.endswith(ODD) and path.removesuffix(ODD) in one)
        and not isinstance(value, list)
        and path in other
        and other[path] != value
    ]
    return differing[0] if len(differing) == 1 else ""


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, inner in value.items():
        yield from _leaves(f"{path}.{name}" if path else str(name), inner)
