"""Installs Debian packages where we may; elsewhere says in one line what the user can do.

Raises LocalError.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from threading import Lock
from typing import Final

from edgewake.protocol.errors import LocalError

_APT_S: Final = 600
"""Seconds that one apt call may take."""
_ONE_AT_A_TIME: Final = Lock()
"""apt waits for dpkg's lock but not for that of its lists."""
_ENVIRONMENT: Final = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def install(packages: Sequence[str], *, what: str, may_install: bool | None = None) -> None:
    """Install the first of `packages` that apt knows; an installed one stays as it is.

    `what` names the need, e.g. "Java 17 or newer".
    """
    if may_install is None:
        may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    if not may_install:
        raise LocalError(
            f"{what} is missing; install it, on Debian or Ubuntu with: sudo apt-get install "
            f"{packages[-1]}"
        )
    with _ONE_AT_A_TIME:
        problem = _update_and_install(packages)
    if problem:
        raise LocalError(f"{what} is missing and could not be installed: {problem}")


def _update_and_install(packages: Sequence[str]) -> str:
    """Returns the problem, "" without one. Old lists may do where the update fails."""
    problem = _apt("update")
    for package in packages:
        if _knows(package):
            return _apt("install", "--yes", "--no-upgrade", "--no-install-recommends", package)
    return problem or f"apt knows no package {' or '.join(packages)}"


def _knows(package: str) -> bool:
    """Has apt a candidate? `show` also succeeds for names that are only mentioned."""
    answer = subprocess.run(
        ["apt-cache", "policy", package],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | _ENVIRONMENT,
    )
    return "Candidate:" in answer.stdout and "Candidate: (none)" not in answer.stdout


def _apt(*arguments: str) -> str:
    """Run apt-get; its last complaint, empty where all went well."""
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_APT_S,
            check=False,
            env=os.environ | _ENVIRONMENT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"apt-get {arguments[0]}: {type(error).__name__}"
    if done.returncode == 0:
        return ""
    complaints = [
        line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("E:", "Err:"))
    ]
    return complaints[-1] if complaints else f"apt-get {arguments[0]} ended with {done.returncode}"
