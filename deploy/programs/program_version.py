"""Asks a program on this machine for its version."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import LocalError

ANSWER_S: Final = 60
"""Seconds until a program that gives no answer counts as one that does not run. Java takes a
fraction of a second, on a machine that is busy with twenty other things some ten."""


def answer(program: Path, option: str) -> str:
    """The text that a program prints when called with an option.

    Raises LocalError where it does not run or says nothing in time: it is there, so it must not
    count as missing.
    """
    try:
        done = subprocess.run(
            [program, option],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except OSError as error:
        raise LocalError(f"{program} is there but does not run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise LocalError(
            f"{program} {option} gave no answer within {ANSWER_S} s; is the machine that busy?"
        ) from error
    return done.stderr + done.stdout


def unclear(program: Path, option: str, answered: str, expected: str) -> LocalError:
    """For an answer that names no version."""
    return LocalError(
        f"{program} {option} names no version, expected {expected}; it says: "
        f"{' '.join(answered.split())[:300] or 'nothing'}"
    )
