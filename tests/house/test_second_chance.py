"""A test that fails beside others is run once more alone, and is told of at the end."""

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
    config.pluginmanager.register(second_chance.SecondChance())
"""
FAILS_ONCE = """
import pathlib
def {name}():
    file = pathlib.Path(__file__).with_suffix(".{name}")
    is_first = not file.exists()
    file.touch()
    assert not is_first, "a hiccup"
"""
FAILS = "def {name}():\n    assert False, 'a fault'\n"
BESIDE = ("-n", "1")
ONLY_XDIST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
"""Each of a test's three processes would load schemathesis and all other plugins otherwise."""


def run(
    folder: Path, tests: str | dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    files = {"it": tests} if isinstance(tests, str) else tests
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), *options, "."]
    env = {"PYTHONPATH": str(ROOT), "PATH": "", **ONLY_XDIST}
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, check=False)


def hiccups(count: int) -> str:
    return "".join(FAILS_ONCE.format(name=f"test_services_{n}") for n in range(count))


def test_hiccups_of_a_file_are_forgiven_and_told(tmp_path: Path) -> None:
    count = FORGIVEN_MAX + 1
    done = run(tmp_path, hiccups(count), *BESIDE)
    assert done.returncode == 0, done.stdout
    assert f"{count} failed beside others and passed alone" in done.stdout
    assert "a hiccup" in done.stdout


@pytest.mark.long
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
        pytest.param(
            FAILS.format(name="test_services"), BESIDE, id="a fault", marks=pytest.mark.long
        ),
        pytest.param(hiccups(1) + FAILS.format(name="test_services"), BESIDE, id="one of two"),
        pytest.param(hiccups(1), (), id="alone"),
        pytest.param(
            {f"file_{n}": hiccups(1) for n in range(FORGIVEN_MAX + 1)}, BESIDE, id="too many"
        ),
    ],
)
def test_all_else_fails(
    tmp_path: Path, tests: str | dict[str, str], options: tuple[str, ...]
) -> None:
    done = run(tmp_path, tests, *options)
    assert done.returncode == 1, done.stdout
