"""Configuration: one frozen model per process, read once from one TOML file.

Of a device it is a `ConfigTable`, elsewhere a `Config`.

An error names the file, the key, the value and what was expected, for every wrong key at once.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.expectation import VALUE_CHARS_MAX, expectation
from edgewake.protocol.plain import ConfigTable, checker
from edgewake.protocol.printable import printable

INTEGER_MAX: Final = 2**63 - 1
"""The largest integer of a configuration, which is TOML's: no disk or database takes a larger
one."""


class Config(BaseModel):
    """Base of the cloud's configurations: frozen, unknown keys are refused.

    `load` takes no "5" for 5 and no true for 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


C = TypeVar("C", bound=Config | ConfigTable)


def load(model: type[C], path: Path) -> C:
    """Read `path` as `model`; raises ConfigError."""
    return parse(model, read(path), str(path))


def read(path: Path) -> dict[str, Any]:
    """Read the values of a TOML file; raises ConfigError."""
    try:
        # Some editors begin a file by a mark of its encoding, which TOML does not know.
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8") from error
    return values_of(text, str(path))


def values_of(text: str, where: str) -> dict[str, Any]:
    """Parse TOML; raises ConfigError, whose text begins with `where`."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # of TOML, or of a number with thousands of digits
        raise ConfigError(f"{where}: not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: nested too deep") from error


def parse(model: type[C], values: Mapping[str, Any], where: str) -> C:
    """Check values; raises ConfigError, whose lines begin with `where`."""
    try:
        lines = [f"{where}: {_key(loc)}{said}" for loc, said in _impossible(values, ())]
        if lines:
            raise ConfigError("\n".join(lines))
        # As JSON, because strict validation of Python objects takes no text for a path and no list
        # for a tuple.
        return checker(model).validate_json(json.dumps(values, default=str), strict=True)
    except RecursionError as error:
        raise ConfigError(f"{where}: nested too deep") from error
    except ValidationError as error:
        lines = [f"{where}: {_sentence(model, one)}" for one in _told(error.errors())]
        raise ConfigError("\n".join(lines)) from error


def _impossible(
    value: object, loc: tuple[int | str, ...]
) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Find values that TOML allows and no key of ours means, with their places.

    They would fail where they are used, long after the file was accepted.
    """
    match value:
        case Mapping():
            for name, inner in value.items():
                yield from _impossible(inner, (*loc, name))
        case list():
            for number, inner in enumerate(value):
                yield from _impossible(inner, (*loc, number))
        case str() if "\0" in value:
            yield loc, f" = {value[:VALUE_CHARS_MAX]!r}: expected no NUL"
        case float() if not math.isfinite(value):
            yield loc, f" = {value}: expected a finite number"
        case int() if not -INTEGER_MAX <= value <= INTEGER_MAX:
            yield loc, f": expected an integer of at most {INTEGER_MAX:,}"


def _told(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Drop errors that only follow from others.

    A list is called too short where an item in it is wrong.
    """
    wrong = {one["loc"][:length] for one in errors for length in range(len(one["loc"]))}
    return [one for one in errors if not (one["type"] == "too_short" and one["loc"] in wrong)]


def _sentence(model: type, error: ErrorDetails) -> str:
    loc, kind, value = error["loc"], error["type"], error.get("input")
    key = _key(loc)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):  # of a model, of a dataclass
        return f"{key}: unknown key{_did_you_mean(model, loc)}"
    if kind == "missing":
        return f"{key}: missing"
    # A whole table would not help: the reader looks for one value.
    shown = "" if isinstance(value, dict | list) else f" = {value!r}"
    return f"{key}{shown}: {expectation(error)}".removeprefix(": ")


def _key(loc: tuple[int | str, ...]) -> str:
    """A key for people: the first of several tables `[[source]]` is source 1.

    A key may hold anything, and is shown on terminals.
    """
    words: list[str] = []
    for part in loc:
        if isinstance(part, int) and words:
            words[-1] += f" {part + 1}"
        else:
            words.append(printable(str(part)))
    return ".".join(words)


def _did_you_mean(model: type, loc: tuple[int | str, ...]) -> str:
    from difflib import get_close_matches

    known = [model]
    for part in loc[:-1]:
        inner = [
            table
            for one in known
            if part in _keys(one)
            for table in _tables_in(_keys(one)[str(part)])
        ]
        known = inner or [one for one in known if part in get_args(_keys(one).get("type"))] or known
    # A source's table says its kind, and may be of a subclass; what else is made of a table in this
    # process has no key here.
    tables = {
        table
        for one in known
        for table in (one, *(one.__subclasses__() if "type" in _keys(one) else ()))
    }
    close = get_close_matches(
        str(loc[-1]), {name for table in tables for name in _keys(table)}, n=1
    )
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known keys: {', '.join(sorted(_keys(known[0])))}" if len(tables) == 1 else ""


def _tables_in(kind: Any) -> list[type]:
    """The kinds of tables that a key may hold: itself, in a list, by name, or in a union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel | ConfigTable):
        return [kind]
    return [table for arg in get_args(kind) for table in _tables_in(arg)]


def _keys(model: type) -> Mapping[str, Any]:
    """A table's keys with their types; none for a value that is not a table."""
    if issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    if not issubclass(model, ConfigTable):
        return {}
    hints = get_type_hints(model)
    return {field.name: hints[field.name] for field in fields(model)}
