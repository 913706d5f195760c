"""Runs the commands that the configuration allows, without a shell, each answered once.

Their time and output are bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from edgewake.edge import program
from edgewake.edge.downlink.config import THING, CommandConfig
from edgewake.edge.program import Program
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.downlink import Answer, AnswerState, DownKind

log = logging.getLogger("edgewake.downlink")


def refusal(
    command: Command, allowed: Mapping[str, CommandConfig], *, was_begun: bool
) -> Answer | None:
    """Why a command is not run; None: it may be."""
    config = allowed.get(command.name)
    if config is None:
        known = ", ".join(sorted(allowed)) or "none"
        return _answer(
            command,
            AnswerState.REFUSED,
            f"no command {command.name!r} is allowed on this device; allowed: {known}",
        )
    if config.is_for_things != bool(command.thing):
        return _answer(
            command,
            AnswerState.REFUSED,
            f"{command.name!r} is for things behind this device: expected the name of one"
            if config.is_for_things
            else f"{command.name!r} is for this device, not for a thing behind it: expected "
            f"{THING} in its argv",
        )
    if len(command.args) > config.args_max:
        return _answer(
            command,
            AnswerState.REFUSED,
            f"{len(command.args)} arguments: expected at most {config.args_max}",
        )
    if any(arg.startswith("-") for arg in command.args):
        return _answer(
            command,
            AnswerState.REFUSED,
            "an argument begins with a hyphen: expected values, no options",
        )
    if was_begun and not config.repeatable:
        return _answer(command, AnswerState.INTERRUPTED, "the agent ended while it ran")
    return None


async def run(command: Command, config: CommandConfig) -> Answer:
    """Run an allowed command to its end, or kill it."""
    argv = [*(arg.replace(THING, command.thing) for arg in config.argv), *command.args]
    log.info(
        "command %s begins: %s",
        command.id,
        command.name,
        extra={"event": "downlink.command", "id": command.id},
    )
    try:
        ended = await program.run(
            Program(argv, config.output_bytes_max), timeout_s=config.timeout_s
        )
    except (OSError, ValueError) as error:
        return _answer(command, AnswerState.FAILED, f"{argv[0]} cannot be started: {error}")
    output = ended.output.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    if ended.code is None:
        return _answer(
            command, AnswerState.FAILED, f"killed after {config.timeout_s:g} s", output=output
        )
    state = AnswerState.DONE if ended.code == 0 else AnswerState.FAILED
    return _answer(
        command,
        state,
        "" if ended.code == 0 else f"exit code {ended.code}",
        exit_code=ended.code,
        output=output,
    )


def _answer(
    command: Command,
    state: AnswerState,
    detail: str,
    *,
    exit_code: int | None = None,
    output: str | None = None,
) -> Answer:
    return Answer(
        id=command.id,
        kind=DownKind.COMMAND,
        state=state,
        detail=detail,
        name=command.name,
        exit_code=exit_code,
        output=output,
    )
