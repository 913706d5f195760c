"""Filter functions that take literals: how each is written, checked, priced and evaluated. Pure.

    distance_m(lat, lon, 52.52, 13.405) < 500          metres to a place
    in_box(lat, lon, 52.3, 13.0, 52.7, 13.8)           south, west, north, east
    in_polygon(lat, lon, 'POLYGON((13.3 52.4, …))')    WKT, the longitude first
    has_words(note, 'brake fluid')                     all of these words
    has_any_word(note, 'brak* tyre')                   one of them
    json_value(payload, '$.battery.cells[0]')          a value in an object, or in JSON text
    in_sample(device, 0.1)                             a share of all things, as `sample`

The literals are checked when a filter is read, so no event can meet a bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from edgewake.cloud.log.filters import filter_geo as geo
from edgewake.cloud.log.filters.filter_json import parse_path, value_at
from edgewake.cloud.log.filters.filter_sample import is_in_share
from edgewake.cloud.log.filters.filter_words import searcher
from edgewake.protocol.frames.frame import STRING_CHARS_MAX, Scalar

Literals: TypeAlias = Sequence[Scalar]
Calculate: TypeAlias = Callable[..., Any]

PARTS_MAX: Final = 8
"""Parts of a function that takes any number: the fields that tell together what a thing is."""

_STEPS_OF_A_DISTANCE: Final = 15
_STEPS_OF_A_BOX: Final = 6
_STEPS_OF_A_POINT: Final = 2
_STEPS_OF_WORDS: Final = 4500
"""The steps of folding and splitting a text of the greatest length."""
_STEPS_OF_A_SHARE: Final = 20
_STEPS_OF_JSON: Final = 1200
"""The steps of reading a JSON text of the greatest length."""


@dataclass(frozen=True, slots=True)
class Function:
    """A filter function. `parts` are evaluated for each event, `literals` follow them."""

    usage: str
    parts: int | None
    """None: any number, 1 to PARTS_MAX."""
    literals: tuple[type, ...]
    """`float` or `str` for each."""
    calculate: Callable[[Literals], Calculate]
    """What is called with the parts' values; raises ValueError for literals that are wrong."""
    cost: Callable[[Literals], int]

    def parts_of(self, args: int) -> int:
        """The number of parts among this number of arguments."""
        return self.parts if self.parts is not None else args - len(self.literals)

    def takes(self, args: int) -> bool:
        """May it have this number of arguments?"""
        parts = args - len(self.literals)
        return 0 < parts <= PARTS_MAX if self.parts is None else parts == self.parts


def _distance(literals: Literals) -> Calculate:
    to_lat, to_lon = _numbers(literals)
    geo.check_place(to_lat, to_lon)

    def run(lat: Any, lon: Any) -> float | None:
        return geo.distance_m(lat, lon, to_lat, to_lon) if geo.is_place(lat, lon) else None

    return run


def _box(literals: Literals) -> Calculate:
    south, west, north, east = _numbers(literals)
    geo.boxes_of(south, west, north, east)

    def run(lat: Any, lon: Any) -> bool | None:
        if not geo.is_place(lat, lon):
            return None
        is_within = west <= lon <= east if west <= east else lon >= west or lon <= east
        return is_within and bool(south <= lat <= north)

    return run


def _polygon(literals: Literals) -> Calculate:
    found = geo.polygon(str(literals[0]))

    def run(lat: Any, lon: Any) -> bool | None:
        return found.holds(lat, lon) if geo.is_place(lat, lon) else None

    return run


def _words(literals: Literals, *, every: bool) -> Calculate:
    has = searcher(str(literals[0]), every=every)

    def run(text: Any) -> bool | None:
        return has(text) if type(text) is str and len(text) <= STRING_CHARS_MAX else None

    return run


def _json(literals: Literals) -> Calculate:
    steps = parse_path(str(literals[0]))

    def run(found: Any) -> Any:
        if type(found) is str and len(found) > STRING_CHARS_MAX:
            return None
        return value_at(found, steps)

    return run


def _sample(literals: Literals) -> Calculate:
    (share,) = _numbers(literals)
    if not 0 < share <= 1:
        raise ValueError(f"share {share:g}: expected above 0 to 1")
    return lambda *values: is_in_share(values, share)


FUNCTIONS: Final[Mapping[str, Function]] = {
    "distance_m": Function(
        "distance_m(lat, lon, 52.52, 13.405)",
        2,
        (float, float),
        _distance,
        lambda _: _STEPS_OF_A_DISTANCE,
    ),
    "in_box": Function(
        "in_box(lat, lon, SOUTH, WEST, NORTH, EAST)",
        2,
        (float, float, float, float),
        _box,
        lambda _: _STEPS_OF_A_BOX,
    ),
    "in_polygon": Function(
        "in_polygon(lat, lon, 'POLYGON((13.3 52.4, 13.5 52.4, 13.4 52.6))')",
        2,
        (str,),
        _polygon,
        lambda literals: _STEPS_OF_A_BOX + _STEPS_OF_A_POINT * geo.polygon(str(literals[0])).points,
    ),
    "has_words": Function(
        "has_words(note, 'brake fluid')",
        1,
        (str,),
        lambda literals: _words(literals, every=True),
        lambda _: _STEPS_OF_WORDS,
    ),
    "has_any_word": Function(
        "has_any_word(note, 'brak* tyre')",
        1,
        (str,),
        lambda literals: _words(literals, every=False),
        lambda _: _STEPS_OF_WORDS,
    ),
    "json_value": Function(
        "json_value(payload, '$.battery.volt')",
        1,
        (str,),
        _json,
        lambda _: _STEPS_OF_JSON,
    ),
    "in_sample": Function(
        "in_sample(device, 0.1)",
        None,
        (float,),
        _sample,
        lambda _: _STEPS_OF_A_SHARE,
    ),
}


def places_within(name: str, literals: Literals) -> tuple[geo.Box, ...] | None:
    """Boxes outside of which a function of places is never TRUE; None of another function."""
    match name:
        case "in_box":
            return geo.boxes_of(*_numbers(literals))
        case "in_polygon":
            return (geo.polygon(str(literals[0])).box,)
    return None


def _numbers(literals: Literals) -> list[float]:
    return [float(one) for one in literals if one is not None]
