"""Problems of the system as a terminal tells them: with the command that shows more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

COMMANDS: Final = {
    "dead_letters": "edgewake dead-letters list --reason {name}",
    "lease": "edgewake leases",
    "loss": "edgewake streams gaps STREAM",
}
"""Kind of a problem → the command; on pages the sentence itself leads there."""


def sentence(problem: Mapping[str, Any]) -> str:
    """The API's sentence, and what to type next where a command shows more."""
    command = COMMANDS.get(str(problem["kind"]))
    if command is None:
        return str(problem["text"])
    return f"{problem['text']}: {command.format(name=problem['name'])}"
