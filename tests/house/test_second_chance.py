"""A test of services that fails beside others is run once more alone, and is told of at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_chance import FORGIVEN_MAX

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests import second_chance
def pytest_configure(config):
    config.addinivalue_line("markers", "services: starts some")
    config.pluginmanager.register(second_chance.SecondChance())
def pytest_collection_modifyitems(items):
    for item in items:
        if "services" in item.name:
            item.add_marker("services")
"""
FAILS_ONCE = """
import pathlib
def {name}():
    file = pathlib.Path(__file__).with_name("{name}.ran")
    is_first = not file.exists()
    file.touch()
    assert not is_first, "a hiccup"
"""
FAILS = "def {name}():\n    assert False, 'a fault'\n"
BESIDE = ("-n", "1")


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), *options, "."]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


def hiccups(count: int) -> str:
    return "".join(FAILS_ONCE.format(name=f"test_services_{n}") for n in range(count))


def test_a_hiccup_is_forgiven_and_told(tmp_path: Path) -> None:
    done = run(tmp_path, hiccups(1), *BESIDE)
    assert done.returncode == 0, done.stdout
    assert "1 failed beside others and passed alone" in done.stdout
    assert "a hiccup" in done.stdout


def test_a_fixture_that_fails_is_a_hiccup_too(tmp_path: Path) -> None:
    tests = "import pytest\n@pytest.fixture\n" + FAILS_ONCE.format(name="world").strip().replace(
        "import pathlib\n", ""
    )
    tests = "import pathlib\n" + tests + "\ndef test_services(world):\n    pass\n"
    done = run(tmp_path, tests, *BESIDE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("tests", "options"),
    [
        (FAILS.format(name="test_services"), BESIDE),
        (FAILS_ONCE.format(name="test_without_any"), BESIDE),
        (hiccups(1) + FAILS_ONCE.format(name="test_without_any"), BESIDE),
        (hiccups(1), ()),
        (hiccups(FORGIVEN_MAX + 1), BESIDE),
    ],
    ids=["a fault", "no service", "one without", "alone", "too many"],
)
def test_all_else_fails(tmp_path: Path, tests: str, options: tuple[str, ...]) -> None:
    done = run(tmp_path, tests, *options)
    assert done.returncode == 1, done.stdout
