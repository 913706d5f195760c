"""What a name of Spark's functions is in the JVM is asked once, and not whenever it is used.

PySpark has `functions.col` looked up by py4j each time that a column is named: what is `functions`, and is its `col` a method, a class or a
field? That were two questions of five while a lane's plan is made, and a new query waits for its plan.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

NAMES: Final = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")
"""As PySpark calls the classes whose static methods make its columns."""


class _Remembered:
    """A class of the JVM, with those of its static methods that were used."""

    def __init__(self, java_class: Any) -> None:
        self._class = java_class

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._class, name)
        setattr(self, name, found)
        return found


def remember(session: SparkSession) -> None:
    """From now on, in this process. A static method has no state, so several threads may share it."""
    jvm: Any = session.sparkContext._jvm
    for name in NAMES:
        setattr(jvm, name, _Remembered(getattr(jvm, name)))
