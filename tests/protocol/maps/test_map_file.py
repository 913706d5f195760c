"""A map file that changes while it is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.map_file import MapFile


def text(stream: str) -> str:
    return f'[[map]]\ntopic = "a/{{device}}"\ndevice = "{{device}}"\nstream = "{stream}"\n'


def write(path: Path, content: str) -> None:
    """A new file under the name, as editors do it."""
    path.with_suffix(".new").write_text(content)
    path.with_suffix(".new").replace(path)


def test_a_file_that_changed_is_in_use_at_the_next_look_and_a_remark_changes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.toml"
    write(path, text("one"))
    maps = MapFile(path)
    first = maps.maps.version
    assert not maps.look()
    write(path, text("two"))
    assert maps.look()
    assert maps.maps.version != first
    write(path, text("two"))
    assert not maps.look()


def test_a_file_that_became_faulty_leaves_the_maps_that_were(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    write(path, text("one"))
    maps = MapFile(path)
    before = maps.maps
    write(path, "[[map]]\n")
    assert (maps.look(), maps.maps) == (False, before)


def test_a_text_is_read_once_and_never_looked_at_again() -> None:
    maps = MapFile(None, text=text("one"))
    assert (maps.maps.filters, maps.look()) == (("a/+",), False)


@pytest.mark.parametrize(
    "keys", [{}, {"presets": ["tasmota"], "text": text("one")}, {"path": Path("m"), "text": "x"}]
)
def test_maps_come_from_one_place(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected either a file, or presets, or a text"):
        MapFile(keys.pop("path", None), **keys)
