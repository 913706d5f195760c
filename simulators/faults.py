"""Named faults, each with the proof that it fired. Imports nothing of ours; Linux (reads /proc).

A fault that was planned and did not fire makes a test worthless, so every function here either
returns a Fault or raises NotFired.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GONE_S: Final = 15.0
"""Seconds that a killed process may take to be gone: a JVM with a gigabyte to give back needs a
second."""


class NotFired(AssertionError):
    """The fault did not happen; the text says why."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that happened."""

    name: str
    target: str
    pid: int
    at_s: float
    """Monotonic seconds."""


def state(pid: int) -> str:
    """The state letter of a process as in /proc (R, S, D, T, Z …); empty if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def kill_9(target: str, pid: int, exit_code: Callable[[], int | None]) -> Fault:
    """Kill -9 a child, and prove by its exit code that it died of this.

    `exit_code` polls it: None while it lives.
    """
    return _kill(target, pid, exit_code, os.kill)


def kill_9_group(target: str, pid: int, exit_code: Callable[[], int | None]) -> Fault:
    """Kill, like `kill_9`, the leader of a process group and all of the group.

    A driver and its virtual machine are one.

    One signal to all at once: a leader that saw a member die first might end by itself.
    """
    members = group_of(pid)
    if exit_code() is None and pid not in members:
        raise NotFired(f"{target} (pid {pid}) leads no process group")
    fault = _kill(target, pid, exit_code, os.killpg)
    _wait(
        lambda: all(state(member) in {"", "Z"} for member in members),
        f"some of {target} are still there after kill -9",
    )
    return fault


def _kill(
    target: str, pid: int, exit_code: Callable[[], int | None], kill: Callable[[int, int], None]
) -> Fault:
    if exit_code() is not None:
        raise NotFired(f"{target} (pid {pid}) had ended before with {exit_code()}")
    at_s = time.monotonic()
    kill(pid, signal.SIGKILL)
    _wait(lambda: exit_code() is not None, f"{target} (pid {pid}) is still there after kill -9")
    if exit_code() != -signal.SIGKILL:
        raise NotFired(f"{target} (pid {pid}) ended with {exit_code()}, not by kill -9")
    return Fault("kill -9", target, pid, at_s)


def group_of(leader: int) -> set[int]:
    """The living processes of a process group."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.add(int(entry.name))
    return found


def pause(target: str, pid: int) -> Fault:
    """Stop a process (SIGSTOP) and prove that it stands."""
    at_s = time.monotonic()
    _signal(target, pid, signal.SIGSTOP)
    _wait(lambda: state(pid) == "T", f"{target} (pid {pid}) does not stop")
    return Fault("pause", target, pid, at_s)


def go_on(target: str, pid: int) -> Fault:
    """Let a paused process go on and prove that it does."""
    if state(pid) != "T":
        raise NotFired(f"{target} (pid {pid}) was not paused")
    at_s = time.monotonic()
    _signal(target, pid, signal.SIGCONT)
    _wait(lambda: state(pid) not in {"T", ""}, f"{target} (pid {pid}) does not go on")
    return Fault("continue", target, pid, at_s)


def _signal(target: str, pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError as error:
        raise NotFired(f"{target} (pid {pid}) is not running") from error


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + GONE_S
    while not condition():
        if time.monotonic() > deadline:
            raise NotFired(otherwise)
        time.sleep(0.01)
