"""The child that answers one question and ends: told on standard input, answers on standard output.

A process of its own, because no engine keeps every bound it was given: a text of a gigabyte is made
outside DuckDB's memory limit. The kernel holds this one to MEMORY_MAX, and who started it kills it
when its time is over.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from confluent_kafka import KafkaException

from edgewake.cloud.lake.answer import MEMORY, Job, answer
from edgewake.protocol.errors import QueryError, Unavailable

MEMORY_MAX: Final = MEMORY + (768 << 20)
"""Bytes of data of the process, those of DuckDB and of the present included."""


def main() -> None:
    """Answer; the exit code is 0 also where the question is refused."""
    job = Job.model_validate_json(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
    with suppress(OSError):  # where memory ends before that, this process goes, and no part
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        found = answer(job)
    except QueryError as error:
        fault = error.faults[0]
        found = {"refused": {"detail": fault.detail, "line": fault.line, "column": fault.column}}
    except MemoryError:
        found = {
            "refused": {
                "detail": "needs more memory than a question may have: ask for less",
                "line": None,
                "column": None,
            }
        }
    except (Unavailable, KafkaException) as error:
        found = {"unavailable": str(error)}
    sys.stdout.buffer.write(orjson.dumps(found))


if __name__ == "__main__":
    main()
