"""The maps that come with Edgewake, by name. Their files lie in `presets/`."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "presets"


def names() -> list[str]:
    """Returns the names of all presets, sorted."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.toml"))


def text_of(name: str) -> str:
    """Returns the map file of a preset. Raises ValueError with the known names."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no preset is called {name!r}: {hint}there are {', '.join(names())}")
    return (FOLDER / f"{name.replace('-', '_')}.toml").read_text("utf-8")


def about(name: str) -> str:
    """Returns one line that says what a preset is for. Raises ValueError."""
    return str(tomllib.loads(text_of(name)).get("about", ""))
