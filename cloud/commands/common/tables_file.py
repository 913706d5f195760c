"""Files of `apply`: a table for each thing, in TOML or JSON, checked before anything is asked."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from edgewake.cloud.commands.common.api_client import fail
from edgewake.protocol.names import STREAM_PATTERN

_AS_NAME: Final = "expected 1-64 of a-z 0-9 _, a letter first"


def tables_of(
    file: Path,
    thing: str,
    contents: str,
    pattern: re.Pattern[str] = STREAM_PATTERN,
    as_name: str = _AS_NAME,
) -> dict[str, dict[str, Any]]:
    """Read a file as name → table; end the command where it is not such a file.

    `thing` and `contents` describe in the error what was expected, `as_name` names of `pattern`.
    """
    found = content_of(file, is_json=file.suffix == ".json")
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        fail(f"{file}: expected a table [NAME] for each {thing}, {contents}")
    if not found:
        fail(f"{file}: no {thing} in it; expected a table [NAME] for each")
    for name in found:
        check_name(file, thing, name, pattern, as_name)
    return found


def content_of(file: Path, *, is_json: bool) -> Any:
    """What is in a file of JSON or TOML; end the command where JSON cannot say it."""
    try:
        text = file.read_text("utf-8")
        found = json.loads(text) if is_json else tomllib.loads(text)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (OSError, RecursionError, TypeError, ValueError) as error:
        # TOML's and JSON's faults, no text; dates of TOML, numbers without end, halves of letters.
        fail(f"{file}: {error}")
    return found


def check_name(
    file: Path,
    thing: str,
    name: str,
    pattern: re.Pattern[str] = STREAM_PATTERN,
    as_name: str = _AS_NAME,
) -> None:
    """End the command where a thing cannot have this name: in an address it might be another's."""
    if pattern.fullmatch(name) is None:
        fail(f"{file}: {name[:80]!r} is not the name of a {thing}: {as_name}")
