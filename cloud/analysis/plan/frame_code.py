"""Columns that java/edgewake/Frames.java makes, in a fifth of the time of Spark's expressions."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn

from edgewake.cloud.analysis.spark import java_classes

_CLASS: Final = "Frames"
_SUMS: Final = "struct<count: bigint, sum: double, least: double, most: double, is_full: boolean>"


def read(session: SparkSession, value: Column, kind: str, names: list[str], letters: str) -> Column:
    """Read a record's JSON (binary) as from_json does with `kind`, the schema of decode.decode.

    Null where it is unusual.

    `names`, `letters`: of the fields asked for, as Frames.read takes them.
    """
    listed = F.array(*map(F.lit, names)) if names else F.array().cast("array<string>")
    return _called(session, "read", kind, value, listed, F.lit(letters))


def sums(session: SparkSession, values: Column) -> Column:
    """Sum up a frame's field (array<double>) as struct<count, sum, least, most, is_full>.

    is_full: every place holds a number.
    """
    return _called(session, "sums", _SUMS, values)


def distinct_sketch(
    session: SparkSession, values: Column, log2_buckets: int, *, are_texts: bool
) -> Column:
    """Make a sketch (binary) of a frame's field, an array<double> or array<string>.

    It is the one that hll_sketch_agg makes of the values' xxhash64.
    """
    return _called(session, "different", "binary", values, F.lit(are_texts), F.lit(log2_buckets))


def estimate_union(session: SparkSession, one: Column, other: Column) -> Column:
    """How many different ones two such sketches know of together, bigint."""
    return _called(session, "differentIn", "bigint", one, other)


def _called(session: SparkSession, method: str, kind: str, *arguments: Column) -> Column:
    jvm: Any = session.sparkContext._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        java_classes.named(session, _CLASS),
        jvm.org.apache.spark.sql.types.DataType.fromDDL(kind),
        method,
        jvm.PythonUtils.toSeq([expressions.expression(one._jc) for one in arguments]),
        jvm.PythonUtils.toSeq([]),
        False,  # of nulls it decides itself
        True,
        True,
        jvm.scala.Option.empty(),
    )
    return ClassicColumn(expressions.column(call))
