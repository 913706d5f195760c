"""Finds a Java that runs Kafka and Spark: JAVA_HOME, then PATH, then Debian's package where we are root. Raises LocalError."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from edgewake.deploy import apt
from edgewake.protocol.errors import LocalError

VERSION_MIN: Final = 17
"""What Kafka 4 and Spark 4 are compiled for."""
VERSION_MAX: Final = 25
"""The newest that Spark 4.2 names as supported (17, 21, 25); a newer one has taken away what Hadoop's libraries call before."""
PACKAGES: Final = ("openjdk-21-jre-headless", "openjdk-17-jre-headless")
"""In order of preference; the first that apt knows is installed. Debian 12 has 17, Ubuntu 24.04 and Debian 13 have 21."""
_ANSWER_S: Final = 20


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The first `java` of VERSION_MIN to VERSION_MAX, None where there is none."""
    return next((java for java in _candidates(environ) if VERSION_MIN <= (version(java) or 0) <= VERSION_MAX), None)


def ensure(environ: Mapping[str, str] = os.environ, *, may_install: bool | None = None) -> Path:
    """`find`, else install it. `may_install` is by default: are we root, with apt? Raises LocalError."""
    if java := find(environ):
        return java
    apt.install(PACKAGES, what=_WANTED, may_install=may_install)
    if java := find(environ) or next((java for java in _of_debian() if VERSION_MIN <= (version(java) or 0) <= VERSION_MAX), None):
        return java
    raise LocalError(f"{_WANTED} was installed but is not found; set JAVA_HOME to its folder")


def home(java: Path) -> Path:
    """The JAVA_HOME that belongs to a `java`."""
    return java.resolve().parent.parent


def version(java: Path) -> int | None:
    """Its feature version, e.g. 17; None where it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """Read what `java -version` says; 1.8 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


_WANTED: Final = f"Java {VERSION_MIN} to {VERSION_MAX}"


def _of_debian() -> Iterator[Path]:
    """Where Debian's packages are, also beside a newer one that PATH finds first."""
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if java_home := environ.get("JAVA_HOME"):
        yield Path(java_home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
