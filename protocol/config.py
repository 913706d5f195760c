"""Configuration: one frozen model per process, read once from one TOML file.

An error names the file, the key, the value and what was expected, for every wrong key at once.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.expectation import expectation


class Config(BaseModel):
    """Base of every configuration: frozen, unknown keys refused; `load` takes no "5" for 5 and no true for 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")


C = TypeVar("C", bound=Config)


def load(model: type[C], path: Path) -> C:
    """Read `path` as `model`; raises ConfigError."""
    return parse(model, read(path), str(path))


def read(path: Path) -> dict[str, Any]:
    """The values in a TOML file; raises ConfigError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def parse(model: type[C], values: Mapping[str, Any], where: str) -> C:
    """Check values; raises ConfigError, whose lines begin with `where`."""
    try:
        # As JSON, because strict validation of Python objects takes no text for a path and no list for a tuple.
        return model.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        lines = [f"{where}: {_sentence(model, one)}" for one in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def _sentence(model: type[Config], error: ErrorDetails) -> str:
    loc, kind, value = error["loc"], error["type"], error.get("input")
    key = _key(loc)
    if kind == "extra_forbidden":
        return f"{key}: unknown key{_did_you_mean(model, loc)}"
    if kind == "missing":
        return f"{key}: missing"
    # A whole table is no value that anybody would look for.
    shown = "" if isinstance(value, dict | list) else f" = {value!r}"
    return f"{key}{shown}: {expectation(error)}".removeprefix(": ")


def _key(loc: tuple[int | str, ...]) -> str:
    """As people count: the first of several tables `[[source]]` is source 1."""
    words: list[str] = []
    for part in loc:
        if isinstance(part, int) and words:
            words[-1] += f" {part + 1}"
        else:
            words.append(str(part))
    return ".".join(words)


def _did_you_mean(model: type[Config], loc: tuple[int | str, ...]) -> str:
    from difflib import get_close_matches

    known: type[BaseModel] | None = model
    for part in loc[:-1]:
        field = known.model_fields.get(str(part)) if known else None
        annotation = field.annotation if field else None
        known = (
            annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else known if isinstance(part, int) else None
        )
    if known is None:
        return ""
    close = get_close_matches(str(loc[-1]), known.model_fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys: {', '.join(sorted(known.model_fields))}"
