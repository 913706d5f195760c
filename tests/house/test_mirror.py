"""Tests mirror the sources: whoever asks where the tests of a module are finds a file of its name,
or a line in tests/where.toml.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from tests.house.source import FLOORS, ROOT, files, modules

WHERE = Path("tests/where.toml")


@cache
def where() -> dict[str, str]:
    """Module → the test file that runs it, as tests/where.toml says."""
    return tomllib.loads((ROOT / WHERE).read_text("utf-8"))


def home(module: Path) -> Path:
    """Where the tests of a module lie: as the module does in its floor, and without `cloud/` where
    a folder of the cloud has a name of its own.
    """
    folders = module.parent.parts
    if folders[0] == "cloud" and len(folders) > 1:
        folders = folders[1:]
    return Path("tests", *folders, f"test_{module.stem}.py")


def housed() -> list[Path]:
    return [path for path in modules(*FLOORS) if path.name != "__init__.py"]


def test_a_module_s_tests_lie_where_the_module_does() -> None:
    assert home(Path("edge/log/event_log.py")) == Path("tests/edge/log/test_event_log.py")
    assert home(Path("cloud/log/following/fan_out.py")) == Path(
        "tests/log/following/test_fan_out.py"
    )
    assert home(Path("cloud/turns.py")) == Path("tests/cloud/test_turns.py")


def test_every_module_has_a_test_file_of_its_name_or_a_line_in_the_table() -> None:
    there = set(files())
    missing = [
        f"{path}: write {home(path)}, or name in {WHERE} the test file that runs it"
        for path in housed()
        if home(path) not in there and path.as_posix() not in where()
    ]
    assert missing == []


def test_the_table_names_no_module_that_is_gone_or_has_a_test_file_of_its_own() -> None:
    there = set(files())
    expected = {path.as_posix() for path in housed() if home(path) not in there}
    assert [f"{module}: delete its line" for module in where() if module not in expected] == []


def test_the_table_names_test_files_that_are_there() -> None:
    there = {str(path) for path in modules("tests") if path.name.startswith("test_")}
    assert [f"{module}: {file}" for module, file in where().items() if file not in there] == []


def test_the_table_is_sorted() -> None:
    """So that two who delete lines of it rarely meet."""
    assert list(where()) == sorted(where())
