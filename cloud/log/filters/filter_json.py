"""Paths into fields that hold objects or lists, or their JSON as text, for `json_value`. Pure.

A path is RFC 9535's, as far as it names one value: `$.battery.cells[0].volt`, `$['a b'].x`, `[-1]`
for the last of a list. A missing value is NULL, and so is text that is not JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

PATH_DEPTH_MAX: Final = 10
"""Steps of a path. Over it: refused."""
PATH_CHARS_MAX: Final = 256
"""Characters of a path. Over it: refused."""
PATHS_KEPT: Final = 1024
"""Paths that were read and are kept for who uses them again."""
_STEP: Final = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*)|\[(?P<index>-?(?:0|[1-9][0-9]{0,5}))\]"""
    r"""|\['(?P<single>[^'\\]*)'\]|\["(?P<double>[^"\\]*)"\]"""
)

Step: TypeAlias = str | int
"""A member's name, or a place in a list."""


@lru_cache(PATHS_KEPT)
def parse_path(text: str) -> tuple[Step, ...]:
    """The steps of a path; raises ValueError, which says where it is wrong."""
    if len(text) > PATH_CHARS_MAX:
        raise ValueError(f"a path of {len(text)} characters, expected at most {PATH_CHARS_MAX}")
    if not text.startswith("$"):
        raise ValueError("at character 1 of the path: expected $, as in '$.battery.volt'")
    steps: list[Step] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(
                f"at character {at + 1} of the path, {text[at : at + 20]!r}: expected .name, "
                "['name'] or [number]"
            )
        index = found["index"]
        name = next((found[key] for key in ("name", "single", "double") if found[key]), "")
        steps.append(name if index is None else int(index))
        at = found.end()
    if not 0 < len(steps) <= PATH_DEPTH_MAX:
        raise ValueError(f"a path of {len(steps)} steps, expected 1 to {PATH_DEPTH_MAX}")
    return tuple(steps)


def value_at(found: Any, steps: Sequence[Step]) -> Any:
    """The value that a path leads to; None where it leads nowhere."""
    if isinstance(found, str):
        try:
            found = orjson.loads(found)
        except orjson.JSONDecodeError:
            return None
    for step in steps:
        if isinstance(step, str):
            found = found.get(step) if isinstance(found, dict) else None
        elif isinstance(found, list) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return None
    return found
