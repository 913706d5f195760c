"""The login of people in configuration files, tried at its provider by the program of the parts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from edgewake.deploy.doctor.doctor import Finding, Verdict

PROGRAM: Final = "edgewake.cloud.login.examining"
PROVIDER_S: Final = 60.0
"""Seconds for a file: five questions to the provider, each of five seconds at most."""


def examine(configs: Sequence[Path]) -> list[Finding]:
    """What is found of those that have a table [login]."""
    chosen = [path for path in configs if _has_login(path)]
    if not chosen:
        return []
    command = [sys.executable, "-m", PROGRAM, *map(str, chosen)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROVIDER_S * len(chosen), check=True
        )
        return [
            Finding(one["check"], Verdict(one["verdict"]), one["detail"])
            for one in json.loads(done.stdout)
        ]
    except subprocess.TimeoutExpired as error:
        return [Finding("login", Verdict.BAD, f"not examined within {error.timeout:.0f} s")]
    except (subprocess.CalledProcessError, ValueError) as error:
        told = getattr(error, "stderr", "") or str(error)
        return [Finding("login", Verdict.BAD, f"not examined: {told.strip()[-300:]}")]


def _has_login(path: Path) -> bool:
    """Is there a word of it? Whoever reads the file says what is wrong with it."""
    try:
        return "[login" in path.read_text("utf-8", "replace")
    except OSError:
        return False
