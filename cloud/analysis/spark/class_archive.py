"""An archive of Spark's classes that the JVM maps at its start.

Without it a start spends most of its processor time on reading and checking thousands of classes,
and so does the first batch. The first analysis in a data folder writes down which classes it loads;
some time later another JVM, of the lowest priority, makes the archive of them. Its name identifies
the Java and the jars it was made of. The JVM compares them once more, and ignores an archive that
does not fit.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark

log = logging.getLogger("edgewake.analysis")

AFTER_S: Final = 60.0
"""Seconds after Spark's start: then queries and summaries have had their first batches, so that all
of their classes are loaded."""
MAKING_S_MAX: Final = 600.0
"""After which the making of a file is given up. It takes ten seconds of a processor that nobody
else wants."""
HEAP: Final = "256m"
"""Heap of the JVM that makes the archive."""
OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable whose options Spark's start script puts on the command line before ours."""
QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Silences the JVM, which warns on standard output about an archive that does not fit."""
_RECORDS: Final = "-XX:DumpLoadedClassList="
_CHARS: Final = 16
_FILES: Final = "spark-*"
FOLDER: Final = "classes"
"""Folder in the data folder with the archive and the jar of our own classes."""


class ClassArchive:
    """The file of one data folder.

    `options`, then `begin` when the JVM with them runs, then `close`.
    """

    def __init__(self, folder: Path, key: str) -> None:
        """`key`: see key_of."""
        self._folder, self._file = folder, folder / f"spark-{key}.jsa"
        self._list = folder / f"spark-{key}.list"
        self._over = threading.Event()
        self._maker: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_made(self) -> bool:
        """Is the file there?"""
        return self._file.exists()

    def options(self) -> list[str]:
        """Options for the JVM: to use the archive, or to write down what it should hold.

        Empty where the folder cannot be written, or where whoever started us gives the JVM another
        archive.
        """
        if "-XX:SharedArchiveFile" in os.environ.get(OPTIONS, ""):
            return []
        if self.is_made:
            return [*QUIET, f'"-XX:SharedArchiveFile={self._file}"']
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in self._folder.glob(_FILES):
                old.unlink()
        except OSError:
            return []
        return [f'"{_RECORDS}{self._list}"']

    def begin(self, jvm: Sequence[str]) -> None:
        """Make the file, AFTER_S from now, where this JVM writes down what it should hold.

        `jvm`: its command line.
        """
        if f"{_RECORDS}{self._list}" in jvm:
            self._maker = threading.Thread(
                target=self._make_later, args=(list(jvm),), name="class-archive", daemon=True
            )
            self._maker.start()

    def close(self) -> None:
        """Leave; what is not finished is made after the next start."""
        self._over.set()
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._child.kill()
        if self._maker is not None:
            self._maker.join(1.0)

    def _make_later(self, jvm: Sequence[str]) -> None:
        if self._over.wait(AFTER_S):
            return
        try:
            self.make(jvm)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            log.warning(
                "Spark's classes are read from its jars at each start: %s",
                error,
                extra={"event": "classes.failed"},
            )

    def make(self, jvm: Sequence[str]) -> None:
        """Make the file now. Raises OSError, ValueError, SubprocessError."""
        new, names = self._file.with_suffix(".new"), self._list.with_suffix(".whole")
        # The JVM that writes the list goes on: its last line may be the beginning of one.
        names.write_bytes(self._list.read_bytes().rpartition(b"\n")[0] + b"\n")
        log_file = self._file.with_suffix(".log")
        if self._over.is_set():
            return
        with log_file.open("wb") as out:
            self._child = subprocess.Popen(
                [*_lowly(), *dump_command(jvm, names, new)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                code = self._child.wait(MAKING_S_MAX)
            finally:
                self._child.kill()
        if self._over.is_set():
            return
        if code != 0 or not new.exists():
            raise ValueError(f"Java ended with {code}, see {log_file}")
        new.replace(self._file)
        for used in (names, log_file):
            used.unlink()
        log.info(
            "Spark's classes are kept for the next start",
            extra={"event": "classes.kept", "mib": self._file.stat().st_size >> 20},
        )


def archive_of(data_dir: Path, jars_dir: Path) -> ClassArchive | None:
    """Return the archive for an analysis with this folder and connector; None without a Java."""
    java, spark = java_of(), Path(pyspark.__file__).parent / "jars"
    try:
        return (
            None
            if java is None
            else ClassArchive(
                data_dir / FOLDER, key_of(java, [*spark.glob("*.jar"), *jars_dir.glob("*.jar")])
            )
        )
    except OSError:
        return None


def _lowly() -> list[str]:
    nice = shutil.which("nice")
    return [] if nice is None else [nice, "-n", "19"]


def dump_command(jvm: Sequence[str], names: Path, file: Path) -> list[str]:
    """Return the command that makes `file` of the classes in `names`, for a JVM started with `jvm`.

    Raises ValueError where `jvm` is not such a command line.
    """
    program, *options = jvm
    modules = [
        option
        for option in options
        if option.startswith("--add-") or option == "-XX:+IgnoreUnrecognizedVMOptions"
    ]
    classpath = options[options.index("-cp") + 1]
    made = [
        f"-Xmx{HEAP}",
        "-Xshare:dump",
        f"-XX:SharedClassListFile={names}",
        f"-XX:SharedArchiveFile={file}",
    ]
    return [program, *modules, *made, "-cp", classpath]


def command_line(pid: int) -> list[str]:
    """Return the command line of a running process. Raises OSError."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


def key_of(java: Path, jars: Iterable[Path]) -> str:
    """A key that changes with the Java and with the jars. Raises OSError."""
    release = java.resolve().parent.parent / "release"
    of_java = release.read_bytes() if release.exists() else b""
    stats = [(jar, jar.stat()) for jar in sorted(jars)]
    lines = [f"{jar} {stat.st_size} {stat.st_mtime_ns}" for jar, stat in stats]
    return hashlib.sha256("\n".join([str(java.resolve()), *lines]).encode() + of_java).hexdigest()[
        :_CHARS
    ]


def java_of(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The Java that Spark's start script takes."""
    if home := environ.get("JAVA_HOME"):
        return Path(home) / "bin" / "java"
    found = shutil.which("java", path=environ.get("PATH", ""))
    return None if found is None else Path(found)
