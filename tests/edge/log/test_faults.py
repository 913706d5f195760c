"""The log under kill -9 at its system calls, on a disk that fails, under power loss and out of
memory: 0 lost, 0 twice, 0 unsaid.

`make test` takes a sample; `make test-faults` every call of the writing path, power losses on two
file systems, and more of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.edge.log.test_event_log import NOTHING

ALL = os.environ.get("EDGEWAKE_FAULTS") == "all"
LONG_S = 1_800
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


def report_of(program: str, *options: object) -> dict[str, dict[str, int]]:
    """What a program of this folder finds."""
    command = [sys.executable, "-m", f"tests.edge.log.{program}", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S if ALL else 120)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    print(found)
    return found


def violations(report: dict[str, dict[str, int]]) -> dict[str, int]:
    """Without what was received and not yet accepted: `hml` promises nothing of that."""
    return {name: count for name, count in report["violations"].items() if name != "received_lost"}


@pytest.mark.services
def test_kill_9_at_system_calls_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = report_of(
        "syscall_kills", tmp_path, *(("--points", 3_000) if ALL else ("--points", 12, "--sample"))
    )
    assert report["killed"] >= (500 if ALL else 12), "too few faults fired"
    assert {"pwrite64", "fdatasync", "write", "openat", "unlink", "rename"} <= report[
        "by_call"
    ].keys()
    assert violations(report) == NOTHING


@pytest.mark.long
@pytest.mark.services
def test_control_killed_at_system_calls_a_log_that_accepts_before_its_commit_loses(
    tmp_path: Path,
) -> None:
    report = report_of(
        "syscall_kills", tmp_path, "--points", 12, "--sample", "--accept-before-commit"
    )
    assert report["violations"]["lost"] > 0


@pytest.mark.services
def test_a_disk_that_answers_with_errors_loses_and_doubles_nothing(tmp_path: Path) -> None:
    times = 30 if ALL else 1
    report = report_of("io_errors", tmp_path, "--times", times)
    each = ("fdatasync once", "fdatasync lasting", "pwrite64 once", "pwrite64 lasting")
    assert report["injected"] == dict.fromkeys(each, times), "a fault did not fire"
    assert violations(report) == NOTHING


@pytest.mark.long
@pytest.mark.services
def test_control_on_a_disk_that_answers_with_errors_a_log_that_accepts_before_its_commit_loses(
    tmp_path: Path,
) -> None:
    assert (
        report_of("io_errors", tmp_path, "--call", "pwrite64", "--accept-before-commit")[
            "violations"
        ]["lost"]
        > 0
    )


@pytest.mark.services
@as_root
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"] if ALL else ["ext4"])
def test_power_loss_takes_nothing_that_was_accepted(tmp_path: Path, filesystem: str) -> None:
    losses = 50 if ALL else 4
    report = report_of("power_loss", tmp_path, filesystem, "--losses", losses)
    assert report["power_losses"] == losses, "the fault did not fire"
    assert report["accepted"] > 0  # type: ignore[operator]
    assert violations(report) == NOTHING


@pytest.mark.long
@pytest.mark.services
@as_root
def test_control_power_loss_breaks_a_log_that_does_not_sync(tmp_path: Path) -> None:
    assert (
        violations(report_of("power_loss", tmp_path, "ext4", "--losses", 4, "--unsynced"))
        != NOTHING
    )


@pytest.mark.services
def test_out_of_memory_loses_and_doubles_nothing(tmp_path: Path) -> None:
    kills = 100 if ALL else 5
    report = report_of("out_of_memory", tmp_path, "--kills", kills)
    assert report["killed"] == kills, "the fault did not fire"
    assert report["oom_kills"] in (kills, None), "it was not the kernel that killed"
    assert violations(report) == NOTHING


@pytest.mark.long
@pytest.mark.services
def test_control_out_of_memory_a_log_that_accepts_before_its_commit_loses(tmp_path: Path) -> None:
    assert (
        report_of("out_of_memory", tmp_path, "--kills", 5, "--accept-before-commit")["violations"][
            "lost"
        ]
        > 0
    )
