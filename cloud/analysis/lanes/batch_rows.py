"""The rows of a lane's micro-batches in Arrow.

DataFrame.toArrow gives the same, but plans a query of its own each time and asks for the schema: a
tenth of what a small batch takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.util import _load_from_socket

from edgewake.cloud.analysis.results import result_texts
from edgewake.cloud.queries.query import Registered

ROWS_MAX: Final = 10_000
"""Rows of a record batch of Arrow; Spark's default."""
_ZONE: Final = "UTC"


class BatchRows:
    """Reads the batches of a lane, which all have the same columns."""

    def __init__(self, session: SparkSession, queries: Sequence[Registered] = ()) -> None:
        """`queries`: those whose results are made of the rows; some have their texts with them."""
        self._session, self._queries = session, queries
        self._known: tuple[Any, Any, pa.Schema] | None = None

    def collected(self, batch: DataFrame) -> pa.Table:
        """Runs the batch, as foreachBatch gives it. Raises what Spark does."""
        if self._known is None:
            self._known = self._learned(batch)
        results, of_java, schema = self._known
        made = self._rows.arrow(
            batch._jdf.queryExecution().logical(), results, of_java, ROWS_MAX, _ZONE
        )
        with _load_from_socket(self._python.collectAndServe(made), NoOpSerializer()) as messages:
            batches = [
                pa.ipc.read_record_batch(pa.py_buffer(message), schema) for message in messages
            ]
        return pa.Table.from_batches(batches, schema)

    def _learned(self, batch: DataFrame) -> tuple[Any, Any, pa.Schema]:
        """How rows become texts, or nothing, and their schema in Java and in Arrow."""
        java, schema = batch._jdf.schema(), batch.schema
        plan = result_texts.plan(self._queries, schema.names) if self._queries else None
        if plan is None:
            return None, java, to_arrow_schema(schema, timezone=_ZONE)
        made = StructType(
            [StructField(name, BinaryType()) for name in (result_texts.KEY, result_texts.TEXT)]
        )
        fields = {field.name: field for field in (*schema, *made)}
        schema = StructType(
            [fields[name] for name in result_texts.columns(self._queries, schema.names)]
        )
        java = self._session._jsparkSession.parseDataType(schema.json())
        return self._java.edgewake.Results(plan), java, to_arrow_schema(schema, timezone=_ZONE)

    @cached_property
    def _rows(self) -> Any:
        return self._java.edgewake.Rows

    @cached_property
    def _python(self) -> Any:
        return self._java.PythonRDD

    @property
    def _java(self) -> Any:
        return self._session.sparkContext._jvm
