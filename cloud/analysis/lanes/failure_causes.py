"""Finds the root cause of an error of Spark or Kafka, and which side is at fault."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql.streaming.query import StreamingQuery

from edgewake.cloud.analysis.lanes.failures import Failure, Fault, classify
from edgewake.cloud.kafka import clients
from edgewake.protocol.errors import EdgewakeError

CAUSE_CHARS_MAX: Final = 2000
CAUSES_MAX: Final = 10
"""Depth to which the causes of an error are followed."""


def cause_of(error: BaseException) -> str:
    """The root cause of an error: Spark wraps it in others, each with a trace."""
    causes = _causes(error)
    return (
        "; because of ".join(reversed(causes))[:CAUSE_CHARS_MAX]
        if causes
        else f"{type(error).__name__}: {str(error).strip()}"[:CAUSE_CHARS_MAX]
    )


def fault_of(error: BaseException) -> Fault:
    """The side at fault for an error that ended a batch or a start."""
    if isinstance(error, KafkaException):
        return Fault.FENCED if clients.is_fenced(error.args[0]) else Fault.SURROUNDINGS
    if isinstance(error, OSError | EdgewakeError | MemoryError):
        return Fault.SURROUNDINGS
    causes = _causes(error)
    if isinstance(error, Py4JError) and not causes:  # the JVM is gone, or its gateway
        return Fault.SURROUNDINGS
    return classify(causes)


def _causes(error: BaseException) -> list[str]:
    java = (
        error.java_exception
        if isinstance(error, Py4JJavaError)
        else getattr(error, "_origin", None)
    )
    return _chain(java)


def _chain(java: Any) -> list[str]:
    """Java's causes of an exception, outermost first, each as `class: message`."""
    causes: list[str] = []
    while java is not None and len(causes) < CAUSES_MAX:
        causes.append(str(java.toString()).splitlines()[0][:300])
        java = java.getCause()
    return causes


def ended(query: StreamingQuery) -> Failure:
    """The reason for the end of a Spark query outside our part of a batch."""
    java: Any = query._jsq.exception()
    causes = _chain(java.get()) if java.isDefined() else []
    cause = " ".join("; because of ".join(reversed(causes)).split())[:CAUSE_CHARS_MAX]
    return Failure(classify(causes), cause or "the Spark query ended")
