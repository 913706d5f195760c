"""Our few classes in Java (java/), compiled when the session starts, by the compiler that Spark brings along.

Code that Spark generates calls them by name: they are put where the driver finds its own classes, and sent to the executors of a cluster.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from edgewake.cloud.analysis.spark.settings import is_local

SOURCES: Final = Path(__file__).parent / "java" / "edgewake"
PACKAGE: Final = "edgewake"


def load(session: SparkSession, jar: Path) -> None:
    """Compile all; `jar` is written."""
    java: Any = session.sparkContext._jvm
    loader = known = _loader(session)
    with zipfile.ZipFile(jar, "w") as archive:
        for source in sorted(SOURCES.glob("*.java")):
            compiler = java.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(known)
            compiler.cook(source.read_text())
            known = compiler.getClassLoader()  # a class may use those before it in the alphabet
            for name, code in compiler.getBytecodes().items():
                archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    loader.addURL(java.java.io.File(str(jar)).toURI().toURL())
    if not is_local(session.sparkContext.master):
        session.sparkContext._jsc.addJar(str(jar))


def named(session: SparkSession, name: str) -> Any:
    """One of them."""
    return _loader(session).loadClass(f"{PACKAGE}.{name}")


def new(session: SparkSession, name: str) -> Any:
    """An object of one of them."""
    return named(session, name).getDeclaredConstructor(None).newInstance(None)


def _loader(session: SparkSession) -> Any:
    java: Any = session.sparkContext._jvm
    return java.java.lang.Thread.currentThread().getContextClassLoader()
