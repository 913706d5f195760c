"""Maps that come with Edgewake, by name: files beside this one."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "presets"


def names() -> list[str]:
    """Every preset, sorted."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.toml"))


def text_of(name: str) -> str:
    """The map file of a preset. Raises ValueError with the names that there are."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no preset is called {name!r}: {hint}there are {', '.join(names())}")
    return (FOLDER / f"{name.replace('-', '_')}.toml").read_text("utf-8")


def about(name: str) -> str:
    """One line: what it is for. Raises ValueError."""
    return str(tomllib.loads(text_of(name)).get("about", ""))
