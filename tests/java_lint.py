"""Checks our Java sources: javac with every lint as an error, and lines of at most 100 characters.

`python -m tests.java_lint` (`make lint` runs it). Installs a JDK where there is none and we are
root with apt; elsewhere one line says what to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from edgewake.cloud.analysis.spark.java_classes import SOURCES, spark_class_path
from edgewake.deploy.programs import apt
from edgewake.protocol.errors import EdgewakeError, LocalError

PACKAGES: Final = ("openjdk-21-jdk-headless", "openjdk-17-jdk-headless")
WANTED: Final = "javac of a JDK 17 or newer"
RELEASE: Final = "17"
LINTS: Final = "-Xlint:all,-path"
"""All but one, which warns of jars that Spark's jars name and do not bring."""
LINE_CHARS_MAX: Final = 100


def compiler(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The javac of JAVA_HOME, else the one on PATH."""
    if home := environ.get("JAVA_HOME"):
        of_home = Path(home) / "bin" / "javac"
        if of_home.exists():
            return of_home
    found = shutil.which("javac", path=environ.get("PATH", ""))
    return None if found is None else Path(found)


def ensured(environ: Mapping[str, str] = os.environ, *, may_install: bool | None = None) -> Path:
    """A javac, installed where there is none. Raises LocalError."""
    found = compiler(environ)
    if found is None:
        apt.install(PACKAGES, what=WANTED, may_install=may_install)
        found = compiler(environ)
    if found is None:
        raise LocalError(f"{WANTED} was installed but is not found; set JAVA_HOME to its folder")
    return found


def faults(javac: Path, sources: Sequence[Path]) -> str:
    """What javac says of the sources, empty where it accepts them without a warning."""
    class_path = os.pathsep.join(map(str, spark_class_path()))
    with tempfile.TemporaryDirectory() as classes:
        options = ["--release", RELEASE, LINTS, "-Werror", "-proc:none", "-encoding", "UTF-8"]
        command = [
            str(javac),
            *options,
            "-classpath",
            class_path,
            "-d",
            classes,
            *map(str, sources),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()


def long_lines(sources: Iterable[Path]) -> list[str]:
    """Places of lines that are too long."""
    found = []
    for path in sources:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if len(line) > LINE_CHARS_MAX:
                found.append(
                    f"{path}:{number}: {len(line)} characters, expected at most {LINE_CHARS_MAX}"
                )
    return found


def main() -> None:
    """Check all of them."""
    sources = sorted(SOURCES.glob("*.java"))
    try:
        found = [*long_lines(sources), faults(ensured(), sources)]
    except EdgewakeError as error:
        click.echo(f"make lint: {error}", err=True)
        sys.exit(1)
    if text := "\n".join(filter(None, found)):
        click.echo(text, err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
