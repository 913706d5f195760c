"""What is installed from a wheel, in an environment outside the checkout: every module, every
command, every part, and one reading that goes through all of them. The wheel that an sdist gives is
the same.

The environments borrow the libraries of this one, and nothing of ours: their own Edgewake comes
from the wheel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from edgewake.deploy import cli
from tests.deploy.test_up import port_base
from tests.services import PATIENCE_S, Process, wait_until

ROOT = Path(__file__).parents[2]
FOLDERS = ("cloud", "deploy", "edge", "protocol", "simulators")
STREAM, QUERY = "room_temperature", "warm_rooms"
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


@dataclass(frozen=True)
class Installed:
    """An environment with Edgewake from a wheel, and a folder to call it from."""

    folder: Path
    wheel: Path

    def program(self, name: str) -> str:
        """A program of the environment."""
        return str(self.folder / "bin" / name)

    def run(
        self, *words: str, data: Path | None = None, code: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        """Call a program from outside the checkout, and see how it ends."""
        command = [self.program(words[0]), *words[1:]]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(data),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert code in (None, done.returncode), (
            f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done


def environment(data: Path | None) -> dict[str, str]:
    """Nothing of the checkout is found by it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return kept | ({"EDGEWAKE_DATA": str(data)} if data else {})


def build(source: Path, target: str, folder: Path) -> Path:
    """What hatchling makes of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """From the wheel of this checkout."""
    wheel = build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))
    folder = tmp_path_factory.mktemp("outside") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = Path(
        sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
    )
    # Behind its own packages, and without what the lines of .pth files there would add: an editable
    # install of ours, above all.
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    uv = Path(sys.executable).with_name("uv")
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-index",
        "--python",
        folder / "bin" / "python",
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True)
    return Installed(folder, wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    """Each file of a wheel but the list of its own hashes."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")
        }


def test_an_sdist_gives_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    for name in ("sdist", "wheel", "source"):
        (tmp_path / name).mkdir()
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    ours, theirs = contents(installed.wheel), contents(build(source, "wheel", tmp_path / "wheel"))
    assert sorted(theirs) == sorted(ours)
    assert [name for name in ours if theirs[name] != ours[name]] == []


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


@pytest.mark.parametrize("name", sorted(cli.HELP))
def test_every_command_says_how_it_is_called(installed: Installed, name: str) -> None:
    assert f"Usage: edgewake {name}" in installed.run("edgewake", name, "--help").stdout


def test_the_version_is_that_of_the_wheel(installed: Installed) -> None:
    assert metadata.version("edgewake") in installed.run("edgewake", "--version").stdout


@dataclass(frozen=True)
class System:
    """All of it, started by the `edgewake up` of a wheel."""

    installed: Installed
    data: Path
    page: str

    def ask(self, *words: str, code: int | None = 0) -> str:
        """A command, and what it prints."""
        return self.installed.run("edgewake", *words, data=self.data, code=code).stdout

    def get(self, path: str) -> httpx.Response:
        """From the access server."""
        return httpx.get(f"{self.page}{path}")


@pytest.fixture(scope="module")
def system(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder, base = tmp_path_factory.mktemp("system"), port_base()
    command = [
        installed.program("edgewake"),
        "up",
        "--data",
        str(folder / "data"),
        "--port-base",
        str(base),
    ]
    with Process(command, folder / "log", env=environment(None), cwd=installed.folder) as process:
        process.wait_for("Edgewake is running.", timeout_s=2 * PATIENCE_S)
        yield System(installed, folder / "data", f"http://127.0.0.1:{base}")


@pytest.mark.services
def test_every_part_runs_from_the_wheel(system: System) -> None:
    assert {part["part"] for part in json.loads(system.ask("status", "--json",
        code=None))["parts"]} >= {
        "mosquitto", "kafka", "bridge-1", "sequencer-1", "analysis", "lake", "access-1", "push-1",
        "ops", "agent", "simulators",
    }  # fmt: skip
    code = "import os, sys; print(*(os.readlink(f'/proc/{pid}/cwd') for pid in sys.argv[1:]))"
    assert system.installed.run("python", "-P", "-c", code).returncode == 0


@pytest.mark.services
def test_the_page_its_libraries_and_the_documentation_come_out_of_the_wheel(system: System) -> None:
    for path, says in (
        ("/", "<html"),
        ("/page/app.js", "import"),
        ("/page/vendor/uplot/uPlot.iife.min.js", "uPlot"),
        ("/docs", "swagger"),
    ):
        answer = system.get(path)
        assert (answer.status_code, says in answer.text) == (200, True), path


@pytest.mark.services
def test_one_reading_goes_through_all_of_it(system: System, tmp_path: Path) -> None:
    reading = {"temperature": 31.5}
    token = system.ask("send", "room-1", STREAM, json.dumps(reading), "--ack").split()[-1]
    shown = json.loads(system.ask("tail", STREAM, "--from", "earliest", "--count", "1"))
    assert (shown["device"], shown["temperature"]) == ("room-1", 31.5)
    assert system.ask("ack", token)
    query = tmp_path / f"{QUERY}.sql"
    query.write_text(
        f"-- name: {QUERY}\nSELECT device, COUNT(*) AS times, MAX(temperature) AS warmest FROM "
        f"{STREAM} GROUP BY window(event_time, '10 seconds'), device"
    )
    system.ask("query", "add", str(query), "--wait", str(int(PATIENCE_S)))
    lease = httpx.post(f"{system.page}/v1/leases", json={})
    assert lease.status_code != 500
    system.ask("send", "room-1", STREAM, json.dumps({"temperature": 32.5}), "--ack")
    result = json.loads(system.ask("tail", QUERY, "--from", "earliest", "--count", "1"))
    assert result["device"] == "room-1"
    wait_until(
        lambda: (
            "room-1" in system.ask("sql", f"SELECT device, temperature FROM {STREAM}", code=None)
        ),
        "SQL finds it",
    )


@pytest.mark.services
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("tail vehicle", "vehicle_position"),
        ("tail host_1", "host_10s"),
        ("send car-01 vehicle", "vehicle_position"),
        ("devices show car-0", "car-01"),
        ("streams show vehicle", "vehicle_position"),
        ("query pause host_1", "host_10s"),
        ("stat", "status"),
    ],
)
def test_the_shell_completes_the_names_that_there_are(
    system: System, words: str, wanted: str
) -> None:
    told = environment(system.data) | {
        "_EDGEWAKE_COMPLETE": "bash_complete",
        "COMP_WORDS": f"edgewake {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    program = system.installed.program("edgewake")
    done = subprocess.run(
        [program],
        env=told,
        cwd=system.installed.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"plain,{wanted}" in done.stdout.split(), done.stderr


COMMANDS: Sequence[Sequence[str]] = (
    ("devices", "list"), ("streams", "list"), ("dead-letters", "list"), ("leases",), ("requests",),
    ("query", "list"), ("summary",),
    ("alert", "list"), ("board", "list"), ("set", "list"), ("publication", "list"),
    ("delivery", "list"), ("clients", "list"), ("streams", "erasures"), ("map", "presets"),
    ("logs", "-n", "1"), ("login",), ("config", "get", "room-1"), ("doctor",), ("status",),
    ("simulate", "town"),
)  # fmt: skip
"""Those that ask, each in its shortest form."""


@pytest.mark.services
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_that_asks_is_answered(system: System, words: Sequence[str]) -> None:
    done = system.installed.run("edgewake", *words, data=system.data, code=None)
    assert "Traceback" not in done.stderr
    assert "needs more libraries" not in done.stderr
    assert "is not part of this installation" not in done.stderr
    assert done.returncode in (0, 1), done.stderr
    assert urlsplit(system.page).port
