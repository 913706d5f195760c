"""A fault that is reported has happened."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from edgewake.simulators import faults


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads its own group and has a child of its own."""
    code = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print('up', flush=True); "
        "p.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        members = faults.group_of(process.pid)
        yield process
        process.kill()
        for member in faults.group_of(process.pid) & members:
            faults._signal("child", member, signal.SIGKILL)


def test_kill_9_proves_that_the_process_died_of_it(child: subprocess.Popen[bytes]):
    fault = faults.kill_9("child", child.pid, child.poll)
    assert (fault.name, fault.target, fault.pid) == ("kill -9", "child", child.pid)
    assert child.returncode == -signal.SIGKILL


def test_a_group_dies_with_its_leader(child: subprocess.Popen[bytes]):
    assert len(faults.group_of(child.pid)) == 2
    faults.kill_9_group("child", child.pid, child.poll)
    assert faults.group_of(child.pid) == set()


def test_who_had_ended_before_was_not_killed(child: subprocess.Popen[bytes]):
    child.terminate()
    child.wait()
    with pytest.raises(faults.NotFired, match="had ended before"):
        faults.kill_9("child", child.pid, child.poll)


def test_a_paused_process_stands_until_it_goes_on(child: subprocess.Popen[bytes]):
    faults.pause("child", child.pid)
    assert faults.state(child.pid) == "T"
    faults.go_on("child", child.pid)
    assert faults.state(child.pid) != "T"


def test_who_was_not_paused_cannot_go_on(child: subprocess.Popen[bytes]):
    with pytest.raises(faults.NotFired, match="was not paused"):
        faults.go_on("child", child.pid)
    with pytest.raises(faults.NotFired, match="not running"):
        faults.pause("nobody", 2**22 - 1)
