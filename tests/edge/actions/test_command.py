"""Programs that are run for an alert: real ones."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.actions.action import ActionFailed
from edgewake.edge.actions.command import CommandAction
from edgewake.edge.actions.config import CommandActionConfig
from tests.edge.actions.helpers import ALERT, config, until
from tests.services import is_alive, wait_until


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder that anybody may write to and come to: others may not pass pytest's own."""
    with tempfile.TemporaryDirectory(prefix="edgewake-actions-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def script(directory: Path, text: str) -> str:
    """A program that anybody may run."""
    path = directory / "program"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


async def run(*words: str, timeout_s: float = 20, user: str = "nobody") -> None:
    one = config(type="command", command=words, user=user)
    assert isinstance(one, CommandActionConfig)
    async with CommandAction(one).prepared() as act, asyncio.timeout(timeout_s):
        await act(ALERT)


def has_text(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


async def test_the_alert_is_on_standard_input_and_never_among_the_words(directory: Path) -> None:
    program = script(
        directory,
        f'cat > {directory}/in; env > {directory}/env; echo "$# $1" > {directory}/words; id > '
        f"{directory}/id",
    )
    await run(program, "$HOME; *")
    t, fields = ALERT.reading
    assert json.loads((directory / "in").read_text()) == {
        "device": "truck-12",
        "stream": "alerts",
        "t": t,
        **fields,
    }
    assert (directory / "words").read_text() == "1 $HOME; *\n", "no shell is between"
    env = dict(line.partition("=")[::2] for line in (directory / "env").read_text().splitlines())
    assert (env["EDGEWAKE_RULE"], env["EDGEWAKE_ACTIVE"], env["EDGEWAKE_ID"]) == (
        "too hot",
        "true",
        ALERT.id,
    )
    assert {name for name in env if not name.startswith("EDGEWAKE_")} <= {
        "PATH",
        "LANG",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert stat.S_IMODE((directory / "in").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_where_the_agent_is_root_the_program_is_not(directory: Path) -> None:
    await run(script(directory, f"id -u > {directory}/user; id -G > {directory}/groups"))
    nobody = pwd.getpwnam("nobody")
    assert (directory / "user").read_text() == f"{nobody.pw_uid}\n"
    assert (directory / "groups").read_text() == f"{nobody.pw_gid}\n"
    with pytest.raises(ActionFailed, match="not known on this machine"):
        await run("/bin/true", user="nobody-of-that-name")


async def test_what_fails_says_why_within_bounds(directory: Path) -> None:
    with pytest.raises(ActionFailed, match="exit code 3: no siren here"):
        await run(script(directory, "echo no siren here >&2; exit 3"))
    with pytest.raises(ActionFailed) as failed:
        await run(script(directory, "head -c 5000000 /dev/zero | tr '\\0' x; exit 1"))
    assert len(str(failed.value)) < 600
    with pytest.raises(OSError, match="not-there"):
        await run("/not-there")


async def test_a_program_need_not_read_the_alert() -> None:
    await run("/bin/true")


async def test_what_takes_too_long_is_killed_with_what_it_started(directory: Path) -> None:
    program = script(
        directory, f"sleep 600 & echo $! > {directory}/child; echo $$ > {directory}/self; wait"
    )
    waiting = asyncio.ensure_future(run(program, timeout_s=3600))
    await until(lambda: waiting.done() or has_text(directory / "self"))
    assert not waiting.done(), waiting
    pids = [int((directory / name).read_text()) for name in ("child", "self")]
    assert all(map(is_alive, pids))
    waiting.cancel()
    await asyncio.wait({waiting})
    wait_until(lambda: not any(map(is_alive, pids)), "both are gone")


async def test_what_a_program_leaves_behind_ends_with_it(directory: Path) -> None:
    """It holds the output open too: nobody waits for that."""
    await run(script(directory, f"sleep 600 & echo $! > {directory}/child"))
    pid = int((directory / "child").read_text())
    wait_until(lambda: not is_alive(pid), "it is gone")


async def test_a_program_that_left_its_session_holds_nobody_up(directory: Path) -> None:
    program = script(
        directory,
        f"setsid sh -c 'echo $$ > {directory}/child; exec sleep 600' & until [ -s "
        f"{directory}/child ]; do :; done",
    )
    await run(program)
    pid = int((directory / "child").read_text())
    assert is_alive(pid), "the fault fired"
    os.kill(pid, 9)
