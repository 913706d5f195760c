"""Finds a Java that runs Kafka and Spark. Raises LocalError.

It tries JAVA_HOME, then PATH, then Debian's package where we are root.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from edgewake.deploy.programs import apt, program_version
from edgewake.protocol.errors import LocalError

VERSION_MIN: Final = 17
"""What Kafka 4 and Spark 4 are compiled for."""
VERSION_MAX: Final = 25
"""The newest that Spark 4.2 names as supported (17, 21, 25); a newer one has taken away what
Hadoop's libraries call before."""
PACKAGES: Final = ("openjdk-21-jre-headless", "openjdk-17-jre-headless")
"""In order of preference; the first that apt knows is installed. Debian 12 has 17, Ubuntu 24.04 and
Debian 13 have 21."""


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The first `java` of VERSION_MIN to VERSION_MAX, None without one.

    Raises LocalError where there is one that tells no version, and no other: to install one in its
    place would change it under all that runs on it.
    """
    return _first_that_fits(_candidates(environ))


def ensure(environ: Mapping[str, str] = os.environ, *, may_install: bool | None = None) -> Path:
    """`find`, else install it.

    `may_install` is by default: are we root, with apt? Raises LocalError.
    """
    if java := find(environ):
        return java
    apt.install(PACKAGES, what=_WANTED, may_install=may_install)
    if java := find(environ) or _first_that_fits(_of_debian()):
        return java
    raise LocalError(f"{_WANTED} was installed but is not found; set JAVA_HOME to its folder")


def home(java: Path) -> Path:
    """The JAVA_HOME that belongs to a `java`."""
    return java.resolve().parent.parent


def version(java: Path) -> int:
    """Its feature version, e.g. 17. Raises LocalError where it tells none, with what it says."""
    answered = program_version.answer(java, "-version")
    if (found := parse_version(answered)) is None:
        raise program_version.unclear(java, "-version", answered, _WANTED)
    return found


def parse_version(text: str) -> int | None:
    """Read what `java -version` says; 1.8 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


_WANTED: Final = f"Java {VERSION_MIN} to {VERSION_MAX}"


def _first_that_fits(candidates: Iterable[Path]) -> Path | None:
    unclear: LocalError | None = None
    for java in candidates:
        try:
            if VERSION_MIN <= version(java) <= VERSION_MAX:
                return java
        except LocalError as error:
            unclear = unclear or error
    if unclear:
        raise unclear
    return None


def _of_debian() -> Iterator[Path]:
    """Where Debian's packages are, also beside a newer one that PATH finds first."""
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if (java_home := environ.get("JAVA_HOME")) and (
        java := Path(java_home) / "bin" / "java"
    ).exists():
        yield java
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
