"""Programs that are run for an alert: real ones."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import stat
from pathlib import Path

import pytest

from edgewake.edge.actions.action import ActionFailed
from edgewake.edge.actions.command import CommandAction
from edgewake.edge.actions.config import CommandActionConfig
from tests.edge.actions.helpers import ALERT, config
from tests.services import wait_until


def script(directory: Path, text: str) -> str:
    """A program that anybody may run, in a folder that anybody may write to."""
    for folder in (directory, *directory.parents[:2]):
        folder.chmod(0o777)
    path = directory / "program"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


async def run(*words: str, timeout_s: float = 20, user: str = "nobody") -> None:
    one = config(type="command", command=words, user=user)
    assert isinstance(one, CommandActionConfig)
    async with CommandAction(one).prepared() as act, asyncio.timeout(timeout_s):
        await act(ALERT)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_the_alert_is_on_standard_input_and_never_among_the_words(tmp_path: Path) -> None:
    program = script(tmp_path, f'cat > {tmp_path}/in; env > {tmp_path}/env; echo "$# $1" > {tmp_path}/words; id > {tmp_path}/id')
    await run(program, "$HOME; *")
    t, fields = ALERT.reading
    assert json.loads((tmp_path / "in").read_text()) == {"device": "truck-12", "stream": "alerts", "t": t, **fields}
    assert (tmp_path / "words").read_text() == "1 $HOME; *\n", "no shell is between"
    env = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert (env["EDGEWAKE_RULE"], env["EDGEWAKE_ACTIVE"], env["EDGEWAKE_ID"]) == ("too hot", "True", ALERT.id)
    assert {name for name in env if not name.startswith("EDGEWAKE_")} <= {"PATH", "LANG", "PWD", "SHLVL", "_", "OLDPWD"}
    assert stat.S_IMODE((tmp_path / "in").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_where_the_agent_is_root_the_program_is_not(tmp_path: Path) -> None:
    await run(script(tmp_path, f"id -u > {tmp_path}/user; id -G > {tmp_path}/groups"))
    nobody = pwd.getpwnam("nobody")
    assert (tmp_path / "user").read_text() == f"{nobody.pw_uid}\n"
    assert (tmp_path / "groups").read_text() == f"{nobody.pw_gid}\n"
    with pytest.raises(ActionFailed, match="not known on this machine"):
        await run("/bin/true", user="nobody-of-that-name")


async def test_what_fails_says_why_within_bounds(tmp_path: Path) -> None:
    with pytest.raises(ActionFailed, match="exit code 3: no siren here"):
        await run(script(tmp_path, "echo no siren here >&2; exit 3"))
    with pytest.raises(ActionFailed) as failed:
        await run(script(tmp_path, "head -c 5000000 /dev/zero | tr '\\0' x; exit 1"))
    assert len(str(failed.value)) < 600
    with pytest.raises(OSError, match="not-there"):
        await run("/not-there")


async def test_a_program_need_not_read_the_alert() -> None:
    await run("/bin/true")


async def test_what_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    program = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/self; wait")
    waiting = asyncio.ensure_future(run(program, timeout_s=3600))
    while not ((tmp_path / "self").exists() and (tmp_path / "self").read_text().strip()):
        await asyncio.sleep(0.01)
    pids = [int((tmp_path / name).read_text()) for name in ("child", "self")]
    assert all(map(is_alive, pids))
    waiting.cancel()
    await asyncio.wait({waiting})
    wait_until(lambda: not any(map(is_alive, pids)), "both are gone")


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """It holds the output open too: nobody waits for that."""
    await run(script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child"))
    pid = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(pid), "it is gone")


async def test_a_program_that_left_its_session_holds_nobody_up(tmp_path: Path) -> None:
    program = script(tmp_path, f"setsid sh -c 'echo $$ > {tmp_path}/child; exec sleep 600' & until [ -s {tmp_path}/child ]; do :; done")
    await run(program)
    pid = int((tmp_path / "child").read_text())
    assert is_alive(pid), "the fault fired"
    os.kill(pid, 9)
