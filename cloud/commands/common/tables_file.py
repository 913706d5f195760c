"""Files of `apply`: a table for each thing, in TOML or JSON."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from edgewake.cloud.commands.common.api_client import fail


def tables_of(file: Path, thing: str, contents: str) -> dict[str, dict[str, Any]]:
    """Read a file as name → table; end the command where it is not such a file.

    `thing` and `contents` describe in the error what was expected.
    """
    try:
        text = file.read_text("utf-8")
        found = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (ValueError, OSError) as error:  # TOML's and JSON's faults, and no text
        fail(f"{file}: {error}")
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        fail(f"{file}: expected a table [NAME] for each {thing}, {contents}")
    if not found:
        fail(f"{file}: no {thing} in it; expected a table [NAME] for each")
    return found
