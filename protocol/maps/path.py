"""Paths into a message: `a.b`, `a[0]`, `a.*`, `"a.b".c`. Pure.

A path begins at the reading's own object: the whole message, or one item of it where the map has
`each`. One that begins with `$` begins at the whole message always.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

STEPS_MAX: Final = 16
"""The most steps of a path: no device is known whose readings are nested deeper."""
PATH_CHARS_MAX: Final = 512
"""The most characters of a path."""
Step: TypeAlias = str | int | None
"""A name, an index into a list, or None for a star."""
_STEP: Final = re.compile(
    r"""\.?(?:(?P<star>\*)|"(?P<quoted>[^"]+)"|\[(?P<number>-?[0-9]{1,4})\]|\[(?P<all>\*)\]"""
    r"""|(?P<name>[^.\[\]"*{}]+))"""
)
MISSING: Final = object()
"""Stands for a path that leads nowhere."""


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path."""

    text: str
    steps: tuple[Step, ...]
    is_whole: bool = False
    """Whether it begins at the whole message."""
    key: str | None = None
    """The name of a path with one step in the reading's own object, which needs no walk."""

    @property
    def has_star(self) -> bool:
        """Returns whether it may lead to several values."""
        return None in self.steps

    @classmethod
    def parse(cls, text: str) -> Path:
        """Parses a path. Raises ValueError with what was expected."""
        if not 0 < len(text) <= PATH_CHARS_MAX:
            raise ValueError(f"a path of {len(text)} characters: expected 1 to {PATH_CHARS_MAX}")
        is_whole = text == "$" or text.startswith(("$.", "$["))
        rest = text[1:].removeprefix(".") if is_whole else text
        steps: list[Step] = []
        at = 0
        while at < len(rest):
            found = _STEP.match(rest, at)
            if found is None or (at == 0 and rest.startswith(".")):
                raise ValueError(
                    f'path {text!r}: expected names joined by dots, [number] and *, such as a."b.c"'
                    f"[0].*; cannot read {rest[at : at + 20]!r}"
                )
            steps.append(_step(found))
            at = found.end()
        if not steps and not is_whole:
            raise ValueError(f"path {text!r}: expected a name")
        if len(steps) > STEPS_MAX:
            raise ValueError(f"path {text!r}: {len(steps)} steps: expected at most {STEPS_MAX}")
        only = steps[0] if len(steps) == 1 and not is_whole else None
        return cls(text, tuple(steps), is_whole, only if isinstance(only, str) else None)

    def get(self, value: Any) -> Any:
        """Returns the value at a path without a star; MISSING where there is none."""
        for step in self.steps:
            if type(value) is dict:
                value = value.get(step, MISSING)
            elif type(value) is list and type(step) is int and -len(value) <= step < len(value):
                value = value[step]
            else:
                return MISSING
        return value

    def walk(self, value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yields every value at the path with the names that its stars matched."""
        return _walk(value, self.steps, 0, ())

    def all(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Returns every value at the path with the last name that a star matched."""
        return ((_last(keys), found) for keys, found in self.walk(value))

    def take(self, value: Any) -> list[tuple[str, Any]]:
        """Removes the values at the path and returns them as `all` does."""
        if self.key is not None and type(value) is dict:
            return [("", value.pop(self.key))] if self.key in value else []
        *way, last = self.steps
        found: list[tuple[str, Any]] = []
        for keys, holder in list(_walk(value, tuple(way), 0, ())):
            if type(holder) is dict and last is None:
                found += holder.items()
                holder.clear()
            elif type(holder) is dict and last in holder:
                found.append((_last(keys), holder.pop(last)))
            elif type(holder) is list:
                found += ((_last(inner), one) for inner, one in _walk(holder, (last,), 0, keys))
        return found


def _last(keys: tuple[str, ...]) -> str:
    return keys[-1] if keys else ""


def _step(found: re.Match[str]) -> Step:
    if found["star"] or found["all"]:
        return None
    if found["number"]:
        return int(found["number"])
    return found["quoted"] or found["name"]


def _walk(
    value: Any, steps: tuple[Step, ...], at: int, keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Descends step by step; a path has at most STEPS_MAX, which bounds the recursion."""
    if at == len(steps):
        yield keys, value
        return
    step = steps[at]
    if step is None:
        pairs: Any = ()
        if type(value) is dict:
            pairs = value.items()
        elif type(value) is list:
            pairs = enumerate(value)
        for name, inner in list(pairs):
            yield from _walk(inner, steps, at + 1, (*keys, str(name)))
    elif _has(value, step):
        yield from _walk(value[step], steps, at + 1, keys)


def _has(value: Any, step: Step) -> bool:
    if type(value) is dict:
        return step in value
    return type(value) is list and type(step) is int and -len(value) <= step < len(value)
