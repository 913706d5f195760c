"""Commands: allow-list, bounds, and no shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgewake.edge.downlink import commands
from edgewake.edge.downlink.config import CommandConfig
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.downlink import AnswerState
from tests.services import is_alive, wait_until

PYTHON = (sys.executable, "-c")
ALLOWED = {
    "plain": CommandConfig(argv=("/bin/true",)),
    "two": CommandConfig(argv=("/bin/echo",), args_max=2),
    "again": CommandConfig(argv=("/bin/true",), repeatable=True),
}


def command(name: str, *args: str) -> Command:
    return Command(id="a", name=name, args=args)


@pytest.mark.parametrize(
    ("asked", "was_begun", "state", "says"),
    [
        (command("other"), False, AnswerState.REFUSED, "allowed: again, plain, two"),
        (command("plain", "x"), False, AnswerState.REFUSED, "at most 0"),
        (command("two", "1", "2", "3"), False, AnswerState.REFUSED, "at most 2"),
        (command("two", "1", "--help"), False, AnswerState.REFUSED, "hyphen"),
        (command("plain"), True, AnswerState.INTERRUPTED, "the agent ended"),
        (command("other"), True, AnswerState.REFUSED, "allowed"),
    ],
)
def test_what_is_not_run_is_answered_with_its_reason(
    asked: Command, was_begun: bool, state: AnswerState, says: str
) -> None:
    answer = commands.refusal(asked, ALLOWED, was_begun=was_begun)
    assert answer is not None
    assert (answer.id, answer.state, says in answer.detail) == ("a", state, True), answer


def test_what_is_allowed_is_run_and_what_is_repeatable_also_again() -> None:
    assert commands.refusal(command("two", "1", "2"), ALLOWED, was_begun=False) is None
    assert commands.refusal(command("again"), ALLOWED, was_begun=True) is None


async def test_arguments_come_as_they_are_and_no_shell_reads_them() -> None:
    answer = await commands.run(command("two", "$(id)", "; ls"), ALLOWED["two"])
    assert (answer.state, answer.exit_code, answer.output) == (AnswerState.DONE, 0, "$(id) ; ls\n")


async def test_an_exit_code_a_signal_and_a_missing_program_are_failures_that_say_so() -> None:
    failing = CommandConfig(
        argv=(*PYTHON, "import sys; print('why', file=sys.stderr); sys.exit(3)")
    )
    answer = await commands.run(command("x"), failing)
    assert (answer.state, answer.exit_code, answer.output, answer.detail) == (
        AnswerState.FAILED,
        3,
        "why\n",
        "exit code 3",
    )
    killed = await commands.run(
        command("x"), CommandConfig(argv=(*PYTHON, "import os; os.kill(os.getpid(), 9)"))
    )
    assert (killed.state, killed.exit_code) == (AnswerState.FAILED, -9)
    missing = await commands.run(command("x"), CommandConfig(argv=("/no/such",)))
    assert missing.state is AnswerState.FAILED
    assert "/no/such cannot be started" in missing.detail


async def test_output_is_bounded_and_read_to_its_end() -> None:
    endless = CommandConfig(
        argv=(*PYTHON, "import sys; sys.stdout.write('\\0a' * 500_000)"), output_bytes_max=10
    )
    answer = await commands.run(command("x"), endless)
    assert (answer.state, answer.output) == (AnswerState.DONE, "\N{REPLACEMENT CHARACTER}a" * 5)


async def test_one_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"/bin/sleep 1000 & echo $! > {tmp_path}/pid; wait"
    slow = CommandConfig(argv=("/bin/sh", "-c", script), timeout_s=2)
    answer = await commands.run(command("x"), slow)
    assert (answer.state, answer.detail, answer.exit_code) == (
        AnswerState.FAILED,
        "killed after 2 s",
        None,
    )
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(pid), "the child's child is gone")


async def test_who_holds_the_output_open_delays_nothing_and_ends_with_the_command() -> None:
    leaves = "import subprocess; print(subprocess.Popen(['/bin/sleep', '1000']).pid, flush=True)"
    answer = await commands.run(command("x"), CommandConfig(argv=(*PYTHON, leaves), timeout_s=100))
    assert answer.state is AnswerState.DONE
    wait_until(lambda: not is_alive(int(answer.output or 0)), "the child's child is gone")


def test_a_program_needs_its_whole_path() -> None:
    with pytest.raises(ValueError, match="whole path"):
        CommandConfig.checked({"argv": ["reboot"]})
