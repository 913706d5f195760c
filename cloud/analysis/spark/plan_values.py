"""Numbers in a running plan that the driver changes between two batches.

Spark neither plans again for such a change nor compiles code again.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn


class PlanValues:
    """`size` whole numbers, 0 at first; a task reads them as they were when its batch began."""

    def __init__(self, session: SparkSession, size: int = 1) -> None:
        gateway: Any = session.sparkContext._gateway
        jvm: Any = gateway.jvm
        # Spark has no public value that a plan reads again in each batch. A literal array is handed
        # to the tasks as the object that it is, and generated code does not contain its values, so
        # changing them neither plans nor compiles anything.
        self._values = (
            jvm.org.apache.spark.sql.catalyst.expressions.UnsafeArrayData.fromPrimitiveArray(
                gateway.new_array(jvm.long, size)
            )
        )
        kind = jvm.org.apache.spark.sql.types.DataTypes.createArrayType(
            jvm.org.apache.spark.sql.types.DataType.fromDDL("bigint"), False
        )
        literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal(self._values, kind)
        self._array = ClassicColumn(
            jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal)
        )

    def set(self, i: int, value: int) -> None:
        """Set a number from the next batch on."""
        self._values.setLong(i, value)

    def at(self, place: Column) -> Column:
        """Return the number at an index (int), null beyond the last one."""
        return F.get(self._array, place)

    def first(self, beside: Column) -> Column:
        """The first number.

        `beside`: any whole number of the row. With a fixed index Spark would make the number a
        constant, and compile again for each value.
        """
        return self.at(F.pmod(beside, F.lit(1)).cast("int"))
