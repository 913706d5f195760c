"""`pytest -n`: what happens in the processes that run tests is told by the first one, and when it ends, all end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.children import is_alive
from tests.house.source import ROOT
from tests.services import PATIENCE_S, wait_until

NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}


def _pytest(folder: Path, *options: str, **files: str) -> subprocess.Popen[str]:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p tests.processes -p no:cacheprovider\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-n", "2", *options]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **NO_PLUGINS}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _outcomes(folder: Path, *options: str, **files: str) -> tuple[int, list[str]]:
    """The exit code, and the lines of the summary."""
    with _pytest(folder, *options, **files) as process:
        printed, _ = process.communicate(timeout=PATIENCE_S)
    lines = [line for line in printed.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR", "INTERNALERROR> AssertionError"))]
    return process.returncode, sorted(line.replace("gw1", "gw0") for line in lines)


WAIT = """
import os, pathlib, signal, time
def meet(mine, other):
    pathlib.Path(mine).touch()
    until = time.monotonic() + 60
    while not pathlib.Path(other).exists():
        assert time.monotonic() < until
        time.sleep(0.01)
"""


def test_tests_run_side_by_side_and_each_outcome_is_told_also_of_a_process_that_dies(tmp_path: Path) -> None:
    first = (
        "def test_meets(): meet('a', 'b')\n"
        "def test_fails(): assert 1 == 2\n"
        "def test_dies(): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "def test_goes_on(): pass\n"
    )
    second = (
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def service():\n"
        "    yield\n"
        "    raise OSError('it does not stop')\n"
        "def test_meets(service): meet('b', 'a')\n"
    )
    assert _outcomes(tmp_path, test_a=WAIT + first, test_b=WAIT + second) == (
        1,
        [
            "ERROR test_b.py::test_meets - OSError: it does not stop",
            "FAILED test_a.py::test_dies - gw0 ended by SIGSEGV at this test",
            "FAILED test_a.py::test_fails - assert 1 == 2",
            "PASSED test_a.py::test_goes_on",
            "PASSED test_a.py::test_meets",
            "PASSED test_b.py::test_meets",
        ],
    )


def test_at_the_first_failure_all_end_where_that_is_wanted(tmp_path: Path) -> None:
    assert _outcomes(tmp_path, "-x", test_a="def test_fails(): assert 1 == 2\ndef test_next(): pass\n") == (
        1,
        ["FAILED test_a.py::test_fails - assert 1 == 2"],
    )


def test_a_thread_before_the_first_test_is_refused(tmp_path: Path) -> None:
    """A forked process would have what it holds, and not the thread."""
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\ndef test_one(): pass\n"
    code, lines = _outcomes(tmp_path, test_a=thread)
    assert code == 3
    assert "threads run before the first test" in "".join(lines)


@pytest.mark.parametrize(("number", "torn_down"), [(signal.SIGINT, True), (signal.SIGKILL, False)], ids=["ctrl-c", "kill -9"])
def test_with_the_first_process_all_end(number: signal.Signals, torn_down: bool, tmp_path: Path) -> None:
    waiting = (
        "import os, pathlib, pytest, time\n"
        "@pytest.fixture(scope='session')\n"
        "def service():\n"
        "    yield\n"
        "    pathlib.Path('torn down').touch()\n"
        "def test_waits(service):\n"
        "    pathlib.Path('new').write_text(str(os.getpid()))\n"
        "    os.rename('new', 'pid')\n"
        "    time.sleep(600)\n"
    )
    with _pytest(tmp_path, test_a=waiting) as process:
        wait_until((tmp_path / "pid").exists, "the test runs")
        pid = int((tmp_path / "pid").read_text())
        assert is_alive(pid)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not is_alive(pid), "its process is gone")
    assert (tmp_path / "torn down").exists() == torn_down
