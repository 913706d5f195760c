"""Our classes in Java (java/edgewake): compiled at the first start, kept as a jar for later ones.

The compiler is Eclipse's. It is one jar, fetched beside Spark's connector, and needs no JDK. `make
lint` compiles the same sources with javac, where every warning is an error.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.spark.class_archive import java_of
from edgewake.protocol.errors import ConfigError, LocalError

SOURCES: Final = Path(__file__).resolve().parent / "java" / "edgewake"
PACKAGE: Final = "edgewake"
COMPILER: Final = "ecj-*.jar"
COMPILE_S_MAX: Final = 120.0
"""Seconds after which the compiler is ended. It takes two seconds of a processor."""
_QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""Options for a JVM that lives for two seconds."""
_LANGUAGE: Final = "-17"
"""The oldest Java that Spark 4 runs on. Executors of a cluster may run on an older one than the
driver."""
_HASH_CHARS: Final = 16
_ERROR_CHARS_MAX: Final = 600
"""Characters of what the compiler says: its first errors; the sources have no secrets."""


def jar_of(classes_dir: Path, jars_dir: Path) -> Path:
    """The jar of our classes in `classes_dir`, compiled first where it is not there.

    `jars_dir` holds the compiler. Raises ConfigError where it is missing, LocalError where nothing
    can be compiled or written.
    """
    compiler, java = compiler_in(jars_dir), _java()
    jar = classes_dir / f"{PACKAGE}-{_key(compiler, java)}.jar"
    if zipfile.is_zipfile(jar):  # a disk that was full, or a backup, may have left a part of it
        return jar
    try:
        classes_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes_dir, prefix=".compiled-") as folder:
            classes, new = Path(folder) / "classes", Path(folder) / "new.jar"
            _compile(java, compiler, classes)
            _pack(classes, new)
            old = [path for path in classes_dir.glob(f"{PACKAGE}-*.jar") if path != jar]
            new.replace(jar)  # another process may have made the same one meanwhile
    except OSError as error:
        raise LocalError(f"{classes_dir}: our Java classes cannot be written: {error}") from error
    for path in old:
        with suppress(FileNotFoundError):
            path.unlink()
    return jar


def compiler_in(jars_dir: Path) -> Path:
    """The jar of the compiler. Raises ConfigError where it is missing."""
    found = sorted(jars_dir.glob(COMPILER))
    if not found:
        raise ConfigError(
            f"jars_dir = {str(jars_dir)!r}: no {COMPILER} in it; `edgewake jars fetch spark` "
            "fetches this compiler with Spark's connector"
        )
    return found[-1]


def named(session: SparkSession, name: str) -> Any:
    """One of our Java classes by its name."""
    java: Any = session.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.loadClass(f"{PACKAGE}.{name}")


def new(session: SparkSession, name: str) -> Any:
    """A new object of one of our classes."""
    return named(session, name).getDeclaredConstructor(None).newInstance(None)


def spark_class_path() -> list[Path]:
    """Spark's own jars, which the sources are compiled with."""
    return sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))


def _java() -> Path:
    """The Java that Spark's start script takes, too. Raises LocalError."""
    java = java_of()
    if java is None:
        raise LocalError("no `java` on PATH, and JAVA_HOME is not set: Spark needs Java 17 to 25")
    return java


def _key(compiler: Path, java: Path) -> str:
    """Differs for other sources, another compiler, Spark or Java. Raises LocalError."""
    found = hashlib.sha256(f"{compiler.name} {pyspark.__version__}\n".encode())
    release = java.resolve().parent.parent / "release"
    try:
        for path in [*sorted(SOURCES.glob("*.java")), *([release] if release.exists() else [])]:
            found.update(f"{path.name}\n".encode() + path.read_bytes())
    except OSError as error:
        raise LocalError(f"our Java sources cannot be read: {error}") from error
    return found.hexdigest()[:_HASH_CHARS]


def _compile(java: Path, compiler: Path, classes: Path) -> None:
    """Write the classes into a new folder. Raises LocalError, OSError."""
    class_path = os.pathsep.join(map(str, spark_class_path()))
    options = (_LANGUAGE, "-nowarn", "-proc:none", "-encoding", "UTF-8")
    sources = sorted(map(str, SOURCES.glob("*.java")))
    command = [str(java), *_QUICK_START, "-jar", str(compiler), *options]
    command += ["-classpath", class_path, "-d", str(classes), *sources]
    code, output = _run(command)
    if code != 0:
        said = " ".join(output.split())[:_ERROR_CHARS_MAX]
        program = f"{java} and {compiler.name}, which ended with {code}"
        raise LocalError(f"our Java classes do not compile with {program}: {said}")


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and output. Raises LocalError where it takes too long, OSError."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMPILE_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LocalError(
            f"our Java classes were not compiled within {COMPILE_S_MAX:.0f} s"
        ) from error
    return done.returncode, done.stdout.decode(errors="replace")


def _pack(classes: Path, jar: Path) -> None:
    """Write all classes into a jar and sync it: a power cut must not leave a part of it."""
    with jar.open("wb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for path in sorted(classes.rglob("*.class")):
                archive.write(path, path.relative_to(classes))
        file.flush()
        os.fsync(file.fileno())
