"""Reads plain values (`edgewake.protocol.plain`) from JSON without pydantic.

A small device does so while it runs.

As strict as pydantic's strict mode, by the same declarations; `tests/protocol/test_plain_json.py`
compares the two. Understood are str, int, float, bool, None, Any, Literal of texts, StrEnum,
unions, `tuple[X, ...]`, `dict[str, X]`, other plain values, the bounds of `key`, and Length,
Matching and Check in `Annotated`.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, Union

import orjson

from edgewake.protocol.plain import Check, Length, Matching, Plain

P = TypeVar("P", bound=Plain)
Reader: TypeAlias = Callable[[Any], Any]
"""Reads a value of JSON. Raises Misshapen."""


class Misshapen(ValueError):
    """JSON, but not such a value.

    `where` names the field, e.g. `args.0`, and `expected` says what was expected there.
    """

    def __init__(self, expected: str, where: str = "") -> None:
        super().__init__(f"{where}: {expected}" if where else expected)
        self.expected = expected
        self.where = where

    def inside(self, name: object) -> Misshapen:
        """The error with its place as seen from outside of the field or item `name`."""
        return Misshapen(self.expected, f"{name}.{self.where}" if self.where else str(name))


def read(kind: type[P], text: bytes) -> P:
    """Read from JSON. Raises orjson.JSONDecodeError, Misshapen; both are ValueErrors."""
    return value_of(kind, orjson.loads(text))


def value_of(kind: type[P], values: object) -> P:
    """Read from an object as `orjson.loads` gives it.

    Fields that are not known are left out. Raises Misshapen.
    """
    of_kind: Any = kind
    found: P = _reader(of_kind)(values)
    return found


@cache
def _reader(kind: Any) -> Reader:
    """Make the reader of a kind, once. Raises TypeError for a field type that it does not know."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin is Annotated:
        return _marked(_reader(args[0]), args[1:])
    if origin is Literal and all(type(arg) is str for arg in args):
        return _one_of({arg: arg for arg in args})
    if origin in (Union, UnionType):
        return _any_of([_reader(arg) for arg in args])
    if origin is tuple and args[1:] == (...,):
        return _items(_reader(args[0]))
    if origin is dict and args[0] is str:
        return _entries(_reader(args[1]))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _one_of({one.value: one for one in kind})
    if isinstance(kind, type) and issubclass(kind, Plain):
        return _plain(kind)
    raise TypeError(f"{kind}: not understood")


def _scalar(kind: type, expected: str) -> Reader:
    def read_it(value: Any) -> Any:
        if type(value) is not kind:
            raise Misshapen(expected)
        return value

    return read_it


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        raise Misshapen("expected a number")
    return float(value)


_SCALARS: Final[Mapping[Any, Reader]] = {
    str: _scalar(str, "expected text"),
    int: _scalar(int, "expected an integer"),
    bool: _scalar(bool, "expected true or false"),
    float: _float,
    NoneType: _scalar(NoneType, "expected null"),
}


def _one_of(allowed: Mapping[str, Any]) -> Reader:
    def read_it(value: Any) -> Any:
        if type(value) is not str or value not in allowed:
            raise Misshapen(f"expected one of {', '.join(allowed)}")
        return allowed[value]

    return read_it


def _any_of(readers: list[Reader]) -> Reader:
    def read_it(value: Any) -> Any:
        first: Misshapen | None = None
        for reader in readers:
            try:
                return reader(value)
            except Misshapen as error:
                first = first or error
        assert first is not None
        raise first

    return read_it


def _items(reader: Reader) -> Reader:
    def read_it(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Misshapen("expected a list")
        return tuple(_inside(reader, number, item) for number, item in enumerate(value))

    return read_it


def _entries(reader: Reader) -> Reader:
    def read_it(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Misshapen("expected an object")
        return {name: _inside(reader, name, item) for name, item in value.items()}

    return read_it


def _inside(reader: Reader, name: object, value: Any) -> Any:
    try:
        return reader(value)
    except Misshapen as error:
        raise error.inside(name) from None


def _plain(kind: type[Plain]) -> Reader:
    types = typing.get_type_hints(kind, include_extras=True)
    own = fields(kind)  # type: ignore[arg-type]  # every subclass of Plain is a dataclass
    readers = {field.name: _bounded(_reader(types[field.name]), field.metadata) for field in own}
    required = [field.name for field in own if _is_required(field)]

    def read_it(value: Any) -> Plain:
        if not isinstance(value, Mapping):
            raise Misshapen("expected an object")
        for name in required:
            if name not in value:
                raise Misshapen("missing", name)
        try:
            return kind(
                **{
                    name: _inside(reader, name, value[name])
                    for name, reader in readers.items()
                    if name in value
                }
            )
        except Misshapen:
            raise
        except ValueError as error:  # of `__post_init__`
            raise Misshapen(str(error)) from error

    return read_it


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _marked(reader: Reader, marks: tuple[Any, ...]) -> Reader:
    for mark in marks:
        match mark:
            case Length(least, most):
                reader = _bounded(
                    reader, {"min_length": least} | ({} if most is None else {"max_length": most})
                )
            case Matching(pattern):
                reader = _bounded(reader, {"pattern": pattern})
            case Check(function):
                reader = _checked(reader, function)
            case _:
                raise TypeError(f"{mark}: not understood")
    return reader


def _checked(reader: Reader, function: Callable[[Any], Any]) -> Reader:
    def read_it(value: Any) -> Any:
        found = reader(value)
        try:
            return function(found)
        except ValueError as error:
            raise Misshapen(str(error)) from error

    return read_it


_BOUNDS: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "ge": (lambda value, bound: value >= bound, "expected at least {}"),
    "gt": (lambda value, bound: value > bound, "expected more than {}"),
    "le": (lambda value, bound: value <= bound, "expected at most {}"),
    "lt": (lambda value, bound: value < bound, "expected less than {}"),
    "min_length": (lambda value, bound: len(value) >= bound, "expected a length of at least {}"),
    "max_length": (lambda value, bound: len(value) <= bound, "expected a length of at most {}"),
    "pattern": (
        lambda value, bound: re.fullmatch(bound, value) is not None,
        "expected text that matches {}",
    ),
}
"""Bounds by pydantic's names. A pattern must match the whole text, `^…$`."""


def _bounded(reader: Reader, bounds: Mapping[str, Any]) -> Reader:
    if not bounds:
        return reader
    checks = [
        (_BOUNDS[name][0], bound, _BOUNDS[name][1].format(bound)) for name, bound in bounds.items()
    ]

    def read_it(value: Any) -> Any:
        found = reader(value)
        if found is None:
            return found
        for holds, bound, expected in checks:
            if not holds(found, bound):
                raise Misshapen(expected)
        return found

    return read_it
