"""What an install is by itself: wheel, sdist and editable, with every module and every command.

`make test-pythons` runs it with each Python that Edgewake is for.
"""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from edgewake.deploy import cli
from tests.deploy.installs import ROOT, Installed, build, from_sdist, from_wheel, install

FOLDERS = ("cloud", "deploy", "edge", "protocol", "simulators")
EVERYTHING = """
import importlib, pkgutil, sys
import edgewake
failed = []
for found in pkgutil.walk_packages(edgewake.__path__, "edgewake.", onerror=failed.append):
    try:
        module = importlib.import_module(found.name)
        assert module.__file__.startswith(sys.prefix), module.__file__
        print(found.name)
    except Exception as error:
        failed.append(f"{found.name}: {error!r}")
FOLDERS = ("cloud", "deploy", "edge", "protocol", "simulators")
strangers = [name for name in sys.modules if name.partition(".")[0] in FOLDERS]
sys.exit("\\n".join(map(str, [*failed, *strangers])) or 0)
"""
"""Imports all that is installed of ours, and prints the names."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """From the wheel of this checkout."""
    return from_wheel(tmp_path_factory.mktemp("outside") / "venv", tmp_path_factory.mktemp("wheel"))


def contents(wheel: Path) -> dict[str, bytes]:
    """Each file of a wheel but the list of its own hashes."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")
        }


@pytest.mark.long
def test_an_sdist_gives_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    for name in ("sdist", "wheel", "source"):
        (tmp_path / name).mkdir()
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    ours, theirs = contents(installed.wheel), contents(build(source, "wheel", tmp_path / "wheel"))
    assert sorted(theirs) == sorted(ours)
    assert [name for name in ours if theirs[name] != ours[name]] == []


WHERE = """
import importlib, sys
from importlib import metadata
names = ("edge.agent", "cloud.access.app", "cloud.analysis.run", "deploy.up", "simulators.ledger")
for name in names:
    print(importlib.import_module(f"edgewake.{name}").__file__)
print(metadata.version("edgewake"))
"""
"""Prints where some modules of each folder lie, and the version."""


def test_an_sdist_installs(tmp_path: Path) -> None:
    made = from_sdist(tmp_path / "venv", folder_in(tmp_path, "sdist"))
    *files, version = made.run("python", "-P", "-c", WHERE).stdout.split()
    assert [file for file in files if not file.startswith(f"{made.folder}/")] == []
    assert version == metadata.version("edgewake")
    assert "Usage: edgewake" in made.run("edgewake", "--help").stdout


def test_an_editable_install_reads_the_checkout(tmp_path: Path) -> None:
    made = Installed(tmp_path / "venv", ROOT)
    install(made.folder, "--editable", str(ROOT))
    *files, version = made.run("python", "-P", "-c", WHERE).stdout.split()
    assert {Path(file).resolve().relative_to(ROOT).parts[0] for file in files} == {
        "edge", "cloud", "deploy", "simulators",
    }  # fmt: skip
    assert version == metadata.version("edgewake")
    assert "Usage: edgewake-agent" in made.run("edgewake-agent", "--help").stdout


def folder_in(folder: Path, name: str) -> Path:
    """A new folder in another."""
    (folder / name).mkdir()
    return folder / name


def test_every_file_of_the_five_folders_is_in_the_wheel(installed: Installed) -> None:
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", *FOLDERS], capture_output=True, check=True
    ).stdout.decode()
    files = {name for name in listed.split("\0") if (ROOT / name).is_file()}
    assert len(files) > 300
    assert {f"edgewake/{name}" for name in files} - set(contents(installed.wheel)) == set()


def test_every_module_can_be_imported_and_none_asks_for_our_folders_by_their_bare_names(
    installed: Installed,
) -> None:
    names = installed.run("python", "-P", "-c", EVERYTHING).stdout.split()
    in_the_wheel = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in contents(installed.wheel)
        if name.endswith(".py") and name != "edgewake/__init__.py"
    }
    assert set(names) == in_the_wheel


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if number % 8 else [])
        for number, name in enumerate(sorted(cli.HELP))
    ],
)
def test_every_command_says_how_it_is_called(installed: Installed, name: str) -> None:
    assert f"Usage: edgewake {name}" in installed.run("edgewake", name, "--help").stdout


def test_the_version_is_that_of_the_wheel(installed: Installed) -> None:
    assert metadata.version("edgewake") in installed.run("edgewake", "--version").stdout
