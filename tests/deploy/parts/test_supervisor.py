"""The supervisor with real small child processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

from edgewake.deploy.parts import start_watch
from edgewake.deploy.parts.child import Child
from edgewake.deploy.parts.guardian import Guardian
from edgewake.deploy.parts.lifecycle import State
from edgewake.deploy.parts.part import Floor
from edgewake.deploy.parts.part_log import PartLog
from edgewake.deploy.parts.supervisor import STOP_S, restart_line
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import LocalError
from tests.deploy.children import (
    CRASHING,
    LIVELY,
    OBEDIENT,
    READY,
    STUBBORN,
    Impatient,
    part,
    supervisor,
    until,
)
from tests.services import free_ports, freeze, is_alive

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
    parts = [
        part(floor.name, NOTES_ITS_STOP, notes, floor.name, floor=floor)
        for floor in reversed(floors)
    ]
    stop = asyncio.Event()
    await supervisor(tmp_path, *parts).run(stop, when_ready=stop.set)
    assert notes.read_text().split() == [floor.name for floor in floors]


async def test_a_part_starts_only_when_those_it_needs_are_ready(tmp_path: Path) -> None:
    first = part(
        "first", f"time.sleep(0.3)\nopen(sys.argv[1], 'w').close()\n{OBEDIENT}", tmp_path / "mark"
    )
    second = part(
        "second",
        f"assert os.path.exists(sys.argv[1])\n{OBEDIENT}",
        tmp_path / "mark",
        after=("first",),
    )
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


async def test_a_start_that_is_cancelled_leaves_no_socket_and_no_pipe(tmp_path: Path) -> None:
    """At each of its steps; who stops a system while a part is being started does so."""
    one, log, guardian = part("one"), PartLog(tmp_path / "one.log"), Guardian()

    def opened() -> tuple[int, int]:
        sockets = Path("/proc/net/unix").read_text().count(f"@edgewake-{os.getpid()}-")
        return sockets, len(list(Path("/proc/self/fd").iterdir()))

    before = opened()

    def are_closed() -> bool:
        return all(now <= then for now, then in zip(opened(), before, strict=True))

    with contextlib.closing(guardian), contextlib.closing(log):
        for steps in range(100):
            starting = asyncio.create_task(Child.start(one, log, guardian, SystemClock()))
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            try:
                child = await starting
            except asyncio.CancelledError:
                await until(are_closed, "all is closed")
            else:
                await child.stop(STOP_S)
                break
    assert steps > 2, "it was never cancelled"


async def test_a_part_that_keeps_dying_is_restarted_ever_more_slowly_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    clock, stop = Impatient(), asyncio.Event()
    watched = supervisor(tmp_path, part("other"), part("crashing", CRASHING), clock=clock)
    running = asyncio.create_task(watched.run(stop))
    crashing, other = watched.keepers["crashing"], watched.keepers["other"]
    await until(
        lambda: crashing.restarts >= 9 and other.state is State.READY,
        "it was started nine times more, the other one once",
    )
    assert (watched.failed(), other.state, other.restarts) == ([], State.READY, 0)
    waits = [wait for wait in clock.waits if wait > 0.1][:9]
    assert waits[:5] == sorted(waits[:5])
    assert max(waits[:5]) <= 4
    assert all(30 <= wait <= 60 for wait in waits[5:])
    stop.set()
    await running


async def test_a_part_that_is_ready_again_after_a_long_trouble_is_kept(tmp_path: Path) -> None:
    """Its disk was full, say: what ended it ten times is gone, and nobody had to start the system
    anew.
    """
    body = f"""
        with open(sys.argv[1], "a+") as file:
            file.write("x")
            file.seek(0)
            starts = len(file.read())
        {READY}
        if 1 < starts < 11: sys.exit(1)
        if starts == 1: os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
    """
    watched, stop = (
        supervisor(tmp_path, part("victim", body, tmp_path / "starts"), clock=Impatient()),
        asyncio.Event(),
    )
    running = asyncio.create_task(watched.run(stop))
    victim = watched.keepers["victim"]
    await until(
        lambda: victim.restarts == 10 and victim.state is State.READY, "it is back after ten ends"
    )
    stop.set()
    await running


async def test_a_part_that_hangs_is_killed_and_started_again_and_one_that_lives_is_not(
    tmp_path: Path,
) -> None:
    watched = supervisor(
        tmp_path, part("victim", LIVELY, silent_s=5.0), part("other", LIVELY, silent_s=5.0)
    )
    stop = asyncio.Event()
    running = asyncio.create_task(watched.run(stop))
    victim, other = watched.keepers["victim"], watched.keepers["other"]
    await until(lambda: victim.state is other.state is State.READY, "both are ready")
    assert victim.child is not None
    stopped = victim.child.pid
    freeze(stopped)
    await until(
        lambda: victim.restarts == 1 and victim.state is State.READY, "it was started again"
    )
    assert not is_alive(stopped)
    assert re.search(r"no sign of life for \d+ s, killed", (tmp_path / "victim.log").read_text())
    assert other.restarts == 0
    stop.set()
    await running


async def test_a_part_may_ask_for_a_longer_silence(tmp_path: Path) -> None:
    body = LIVELY.replace('b"WATCHDOG=1"', 'b"WATCHDOG_USEC=7000000"')
    watched, stop = supervisor(tmp_path, part("slow", body)), asyncio.Event()
    running = asyncio.create_task(watched.run(stop))
    slow = watched.keepers["slow"]
    await until(
        lambda: slow.child is not None and slow.child.silent_s_max == 7.0, "its wish was heard"
    )
    stop.set()
    await running


async def test_a_part_without_signs_is_judged_by_the_answers_of_its_port(tmp_path: Path) -> None:
    """A listening socket takes connections while its process is stopped: only an answer proves
    life.
    """
    (port,) = free_ports(1)
    body = """
        import socket
        listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        while True:
            connection, _ = listener.accept()
            if connection.recv(4): connection.sendall(b"yes")
            connection.close()
    """
    watched = supervisor(
        tmp_path, part("server", body, port, port=port, probe=b"ping", silent_s=2.0)
    )
    stop = asyncio.Event()
    running = asyncio.create_task(watched.run(stop))
    server = watched.keepers["server"]
    await until(lambda: server.state is State.READY, "it is ready")
    assert server.child is not None
    freeze(server.child.pid)
    await until(
        lambda: server.restarts == 1 and server.state is State.READY, "it was started again"
    )
    stop.set()
    await running


async def test_a_part_that_cannot_start_stops_the_others_and_is_named(tmp_path: Path) -> None:
    broken = part("broken", """sys.stderr.write('{"text":"port = 5: too low"}'); sys.exit(2)""")
    watched = supervisor(tmp_path, part("other"), broken)
    with pytest.raises(
        LocalError,
        match=r"broken ended with exit code 2 and was never ready; its last message: port = 5: too "
        r"low; its log is .*broken\.log",
    ):
        await watched.run(asyncio.Event())
    assert watched.keepers["other"].state is State.STOPPED


async def test_a_command_that_does_not_exist_is_said(tmp_path: Path) -> None:
    missing = part("missing")
    missing = type(missing)(name="missing", command=("/no/such/program",), floor=Floor.SERVER)
    with pytest.raises(LocalError, match=r"/no/such/program cannot be started: No such file"):
        await supervisor(tmp_path, missing, clock=Impatient()).run(asyncio.Event())


async def test_a_start_that_does_nothing_is_killed(tmp_path: Path) -> None:
    with pytest.raises(
        LocalError,
        match=r"mute hung \(not ready, and nothing done for \d+ s, killed\) 5 times in a row",
    ):
        await supervisor(
            tmp_path, part("mute", "signal.pause()", stalled_s=0.5), clock=Impatient()
        ).run(asyncio.Event())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "for _ in range(40): print('a line', flush=True); time.sleep(0.1)", id="it says so"
        ),
        pytest.param(
            "end = time.process_time() + 1.5\nwhile time.process_time() < end: time.sleep(0.001); "
            "sum(range(20_000))",
            id="it works",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_a_start_that_goes_on_may_take_much_longer_than_a_hanging_one(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a second is the bound of one that does nothing; the machine may be as busy as it
    likes.
    """
    monkeypatch.setattr(start_watch, "WINDOW_S", 0.5)
    watched, stop = (
        supervisor(tmp_path, part("slow", f"{body}\n{OBEDIENT}", stalled_s=1.0)),
        asyncio.Event(),
    )
    await watched.run(stop, when_ready=stop.set)
    assert watched.keepers["slow"].restarts == 0


async def test_a_kill_from_outside_is_named_as_a_signal_and_no_earlier_line_as_its_cause(
    tmp_path: Path,
) -> None:
    (tmp_path / "victim.log").write_text('{"text":"the disk is full"}\n')
    victim_body = f"""print('{{"text":"all is well"}}', flush=True)\n{OBEDIENT}"""
    watched, stop, seen = (
        supervisor(tmp_path, part("victim", victim_body)),
        asyncio.Event(),
        list[str](),
    )
    victim = watched.keepers["victim"]
    victim.on_change = lambda keeper: (
        seen.append(restart_line(keeper)) if keeper.state is State.RESTARTING else None
    )
    running = asyncio.create_task(watched.run(stop))
    await until(lambda: victim.state is State.READY, "it is ready")
    assert victim.child is not None
    os.kill(victim.child.pid, signal.SIGKILL)
    await until(lambda: victim.restarts == 1 and victim.state is State.READY, "it is back")
    stop.set()
    await running
    assert seen == ["victim was ended by signal 9 (SIGKILL) and is started again"]


async def test_a_second_end_without_a_word_does_not_get_the_words_of_the_first(
    tmp_path: Path,
) -> None:
    body = f"""
        is_first = not os.path.exists(sys.argv[1])
        open(sys.argv[1], "w").close()
        {READY}
        if is_first: print("no room on the disk", flush=True)
        sys.exit(1)
    """
    watched, stop, seen = (
        supervisor(tmp_path, part("victim", body, tmp_path / "mark"), clock=Impatient()),
        asyncio.Event(),
        list[str](),
    )
    victim = watched.keepers["victim"]
    victim.on_change = lambda keeper: (
        seen.append(restart_line(keeper)) if keeper.state is State.RESTARTING else None
    )
    running = asyncio.create_task(watched.run(stop))
    await until(lambda: len(seen) >= 2, "it ended twice")
    stop.set()
    await running
    assert seen[0] == "victim ended with exit code 1 and is started again: no room on the disk"
    assert "disk" not in seen[1]


async def test_stopping_keeps_its_time_even_when_nobody_obeys(tmp_path: Path) -> None:
    """The 15 s that are promised are STOP_S and the way out: one bound for all, not one for each
    floor.
    """
    assert STOP_S < 15
    bound_s = 3.0
    parts = [part(floor.name, STUBBORN, floor=floor) for floor in Floor]
    watched, stop = supervisor(tmp_path, *parts, stop_s=bound_s), asyncio.Event()
    pids: list[int] = []

    def ready() -> None:
        pids.extend(keeper.child.pid for keeper in watched.keepers.values() if keeper.child)
        stop.set()

    began = time.monotonic()
    await watched.run(stop, when_ready=ready)
    assert time.monotonic() - began < bound_s * len(Floor), "the floors share the time"
    assert len(pids) == len(Floor)
    assert not any(map(is_alive, pids))


async def test_a_second_ctrl_c_kills_at_once(tmp_path: Path) -> None:
    watched, stop = (
        supervisor(tmp_path, part("stubborn", STUBBORN, stop_s=3600.0), stop_s=3600.0),
        asyncio.Event(),
    )
    running = asyncio.create_task(watched.run(stop, when_ready=stop.set))
    await stop.wait()
    watched.kill_all()
    async with asyncio.timeout(60):
        await running
