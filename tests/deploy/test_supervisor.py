"""The supervisor with real small child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgewake.deploy.lifecycle import State
from edgewake.deploy.part import Floor
from edgewake.deploy.supervisor import STOP_S
from edgewake.protocol.errors import LocalError
from tests.deploy.children import CRASHING, OBEDIENT, READY, STUBBORN, is_alive, part, program, supervisor, until

NOTES_ITS_STOP = f"""
def stop(*_):
    with open(sys.argv[1], "a") as file:
        file.write(sys.argv[2] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
{READY}
while True: signal.pause()
"""


async def test_parts_stop_upstream_first(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    floors = list(Floor)
    parts = [part(floor.name, NOTES_ITS_STOP, notes, floor.name, floor=floor) for floor in reversed(floors)]
    stop = asyncio.Event()
    await supervisor(tmp_path, *parts).run(stop, when_ready=stop.set)
    assert notes.read_text().split() == [floor.name for floor in floors]


async def test_a_part_starts_only_when_those_it_needs_are_ready(tmp_path: Path) -> None:
    first = part("first", f"time.sleep(0.3)\nopen(sys.argv[1], 'w').close()\n{OBEDIENT}", tmp_path / "mark")
    second = part("second", f"assert os.path.exists(sys.argv[1])\n{OBEDIENT}", tmp_path / "mark", after=("first",))
    stop = asyncio.Event()
    watched = supervisor(tmp_path, second, first)
    await watched.run(stop, when_ready=stop.set)
    assert watched.keepers["second"].restarts == 0


async def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, part("victim"), part("other"))
    stop = asyncio.Event()
    running = asyncio.create_task(watched.run(stop))
    victim, other = watched.keepers["victim"], watched.keepers["other"]
    await until(lambda: victim.state is other.state is State.READY, "both are ready")
    assert victim.child is not None
    first_pid = victim.child.pid
    os.kill(first_pid, signal.SIGKILL)
    await until(lambda: victim.restarts == 1 and victim.state is State.READY, "the victim is back")
    assert victim.child.pid != first_pid
    assert other.restarts == 0
    stop.set()
    await running


async def test_a_part_that_keeps_dying_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, part("other"), part("crashing", CRASHING))
    stop = asyncio.Event()
    running = asyncio.create_task(watched.run(stop))
    crashing, other = watched.keepers["crashing"], watched.keepers["other"]
    await until(lambda: crashing.state is State.FAILED, "it is given up")
    assert (crashing.restarts, other.state) == (4, State.READY)
    stop.set()
    await running
    assert watched.failed() == [crashing]


async def test_a_part_that_cannot_start_stops_the_others_and_is_named(tmp_path: Path) -> None:
    broken = part("broken", """sys.stderr.write('{"text":"port = 5: too low"}'); sys.exit(2)""")
    watched = supervisor(tmp_path, part("other"), broken)
    with pytest.raises(LocalError, match=r"broken ended with exit code 2, last saying: port = 5: too low; its log is .*broken\.log"):
        await watched.run(asyncio.Event())
    assert watched.keepers["other"].state is State.STOPPED


async def test_a_command_that_does_not_exist_is_said(tmp_path: Path) -> None:
    missing = part("missing")
    missing = type(missing)(name="missing", command=("/no/such/program",), floor=Floor.SERVER)
    with pytest.raises(LocalError, match=r"/no/such/program cannot be started: No such file"):
        await supervisor(tmp_path, missing).run(asyncio.Event())


async def test_a_part_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"mute was ended by signal 9 .* not ready within 0 s"):
        await supervisor(tmp_path, part("mute", "signal.pause()", ready_s=0.2)).run(asyncio.Event())


async def test_stopping_takes_less_than_15_s_even_when_nobody_obeys(tmp_path: Path) -> None:
    parts = [part(floor.name, STUBBORN, floor=floor) for floor in Floor]
    watched, stop = supervisor(tmp_path, *parts), asyncio.Event()
    pids: list[int] = []

    def ready() -> None:
        pids.extend(keeper.child.pid for keeper in watched.keepers.values() if keeper.child)
        stop.set()

    began = time.monotonic()
    await watched.run(stop, when_ready=ready)
    assert time.monotonic() - began < STOP_S + 2
    assert len(pids) == len(Floor)
    assert not any(map(is_alive, pids))


async def test_a_second_ctrl_c_kills_at_once(tmp_path: Path) -> None:
    watched, stop = supervisor(tmp_path, part("stubborn", STUBBORN)), asyncio.Event()
    running = asyncio.create_task(watched.run(stop, when_ready=stop.set))
    await stop.wait()
    began = time.monotonic()
    watched.hurry()
    await running
    assert time.monotonic() - began < 4


async def test_a_grandchild_does_not_outlive_its_part(tmp_path: Path) -> None:
    body = f"child = subprocess.Popen(['sleep', '1000'])\nopen(sys.argv[1], 'w').write(str(child.pid))\n{READY}\nsignal.pause()"
    stop = asyncio.Event()
    await supervisor(tmp_path, part("parent", body, tmp_path / "pid")).run(stop, when_ready=stop.set)
    grandchild = int((tmp_path / "pid").read_text())
    await until(lambda: not is_alive(grandchild), "the grandchild is gone")


def test_kill_9_of_the_supervisor_leaves_no_child_and_no_grandchild(tmp_path: Path) -> None:
    """The part and what it started itself die with a supervisor that had no chance to stop them."""
    child_body = "child = subprocess.Popen(['sleep', '1000'])\nprint(os.getpid(), child.pid, flush=True)\nsignal.pause()"
    body = f"""
        import asyncio
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tests.deploy.children import part, supervisor
        asyncio.run(supervisor(Path({str(tmp_path)!r}), part("parent", {child_body!r})).run(asyncio.Event()))
    """
    command = [sys.executable, *program(body)[2:]]
    with subprocess.Popen(command) as parent:
        log = tmp_path / "parent.log"
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_text().endswith("\n")):
            assert time.monotonic() < deadline, "the part started"
            time.sleep(0.02)
        pids = [int(word) for word in log.read_text().split()]
        assert all(map(is_alive, pids))
        parent.kill()
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "all are gone"
        time.sleep(0.02)
