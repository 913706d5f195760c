"""What is installed from a wheel or an sdist runs: every part, every command that asks, and one
reading that goes through all of them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.deploy.installs import Installed, environment, from_sdist, from_wheel
from tests.deploy.test_up import descendants, port_base
from tests.services import PATIENCE_S, Process, wait_until, words_of

ROOT = Path(__file__).parents[2]
STREAM, QUERY = "room_temperature", "warm_rooms"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(from_wheel, id="wheel"),
        pytest.param(from_sdist, id="sdist", marks=pytest.mark.long),
    ],
)
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """From the wheel of this checkout, or from its sdist."""
    make: Callable[[Path, Path], Installed] = request.param
    return make(tmp_path_factory.mktemp("outside") / "venv", tmp_path_factory.mktemp("made"))


@dataclass(frozen=True)
class System:
    """All of it, started by the `edgewake up` of what is installed."""

    installed: Installed
    data: Path
    page: str
    pid: int
    """Of the `edgewake up`."""

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
        yield System(installed, folder / "data", f"http://127.0.0.1:{base}", process.pid)


@pytest.mark.services
def test_every_part_runs_from_what_is_installed(system: System) -> None:
    def shown() -> set[str]:
        """Which parts the system tells of; it says before that it runs."""
        status = json.loads(system.ask("status", "--json", code=None))
        return {one["part"] for one in status["parts"]}

    wait_until(
        lambda: shown() >= {
            "mosquitto", "kafka", "bridge-1", "sequencer-1", "analysis", "lake", "access-1",
            "push-1", "ops", "agent", "simulators",
        },
        "all parts are shown",
    )  # fmt: skip
    running = [words_of(one) for one in descendants(system.pid)]
    ours = [words for words in running if any(word.startswith("edgewake.") for word in words)]
    assert len(ours) >= 9
    assert {words[0] for words in ours} == {system.installed.program("python")}


@pytest.mark.services
def test_the_page_its_libraries_and_the_documentation_come_out_of_it(system: System) -> None:
    for path, says in (
        ("/", "<html"),
        ("/page/app.js", "import"),
        ("/page/vendor/uplot/uPlot.iife.min.js", "uPlot"),
        ("/docs", "swagger"),
    ):
        answer = system.get(path)
        assert (answer.status_code, says in answer.text) == (200, True), path


@pytest.mark.long
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
        pytest.param("tail vehicle", "vehicle_position", marks=pytest.mark.long),
        ("tail host_1", "host_10s"),
        pytest.param("send car-01 vehicle", "vehicle_position", marks=pytest.mark.long),
        ("devices show car-0", "car-01"),
        pytest.param("streams show vehicle", "vehicle_position", marks=pytest.mark.long),
        pytest.param("query pause host_1", "host_10s", marks=pytest.mark.long),
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

    def completed() -> list[str]:
        """The words that the shell is given."""
        done = subprocess.run(
            [program],
            env=told,
            cwd=system.installed.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    wait_until(
        lambda: f"plain,{wanted}" in completed(), "it is completed once the system has the name"
    )


COMMANDS: Sequence[Sequence[str]] = (
    ("devices", "list"), ("streams", "list"), ("dead-letters", "list"), ("leases",), ("requests",),
    ("query", "list"), ("summary",),
    ("alert", "list"), ("board", "list"), ("set", "list"), ("publication", "list"),
    ("delivery", "list"), ("clients", "list"), ("streams", "erasures"), ("map", "presets"),
    ("map", "show"), ("logs", "-n", "1"), ("login",), ("config", "get", "room-1"), ("doctor",),
    ("status",), ("simulate", "town"),
)  # fmt: skip
"""Those that ask, each in its shortest form."""


@pytest.mark.services
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(one, id=" ".join(one), marks=[pytest.mark.long] if number % 6 else [])
        for number, one in enumerate(COMMANDS)
    ],
)
def test_every_command_that_asks_is_answered(system: System, words: Sequence[str]) -> None:
    done = system.installed.run("edgewake", *words, data=system.data, code=None)
    assert "Traceback" not in done.stderr
    assert "needs more libraries" not in done.stderr
    assert "is not part of this installation" not in done.stderr
    assert done.returncode in (0, 1), done.stderr
    assert urlsplit(system.page).port
