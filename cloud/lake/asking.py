"""Asks a question in a child of its own, a few at once, each killed when its time is over.

This process needs no DuckDB.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.cloud.client_share import Bound
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.turns import Turns
from edgewake.protocol.errors import LocalError, QueryError, QueryFault, Unavailable

AT_ONCE_MAX: Final = 2
"""The most children at once; each may have a gigabyte of memory (child.MEMORY_MAX) and two
threads."""
WAITING_MAX: Final = 8
"""Questions under way or waiting; one more is answered at once that there are too many."""
HOLDER_SHARE: Final = 0.5
"""The share of WAITING_MAX that one key's holder may have under way."""
START_S: Final = 10.0
"""What a child has beside the question's time: to start and to read the present, on a busy
machine."""
_THRIFTY: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Memory that is set aside and not used would count against the child's bound: a gigabyte by
default."""
_NONE: Final[Mapping[str, int]] = {}
_NO_UNITS: Final[Mapping[str, Mapping[str, str]]] = {}
_CHILD: Final = (sys.executable, "-P", "-m", "edgewake.cloud.lake.child")


class Asking:
    """Questions to the lake. `close` is not needed: a child ends with its question."""

    def __init__(self, lake_dir: Path, kafka: KafkaConfig) -> None:
        self._lake_dir = lake_dir.absolute()
        self._kafka = kafka
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._of_holders = Turns(Bound("questions", WAITING_MAX, HOLDER_SHARE), AT_ONCE_MAX)

    async def ask(
        self,
        question: dict[str, Any],
        passed: Mapping[str, int] = _NONE,
        *,
        units: Mapping[str, Mapping[str, str]] = _NO_UNITS,
        holder: str = "",
        reader: Principal | None = None,
    ) -> bytes:
        """The answer as JSON.

        `passed`: a query's topic → event time, ms, up to which its windows are final, known before
        rows are read. `units`: of streams and queries, by column, for those of the answer.

        `holder`: of the key that asks; `reader`: to whose grants all that is seen is narrowed, None
        for nobody's. Raises QueryError where it is refused, Unavailable, and LocalError where the
        child fails.
        """
        over = await self._of_holders.take(holder)
        try:
            async with self._turns:
                return await self._in_child(question, passed, units, reader)
        finally:
            over()

    async def _in_child(
        self,
        question: dict[str, Any],
        passed: Mapping[str, int],
        units: Mapping[str, Mapping[str, str]],
        reader: Principal | None,
    ) -> bytes:
        kafka = self._kafka.model_dump(mode="json")
        job = {
            "question": question,
            "lake_dir": str(self._lake_dir),
            "kafka": kafka,
            "passed": dict(passed),
            "units": units,
            "grants": None if reader is None else _grants_of(reader),
        }
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *_CHILD, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **_THRIFTY}
        )
        try:
            async with asyncio.timeout(question["seconds"] + START_S):
                out, problem = await child.communicate(orjson.dumps(job))
        except TimeoutError:
            raise QueryError(
                f"not done within {question['seconds']:g} s: ask for less, or for more seconds"
            ) from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            raise _failed(child.returncode, problem.decode("utf-8", "replace"))
        return _told(out)


def _grants_of(reader: Principal) -> list[dict[str, list[str] | None]]:
    """What it may ask, as the child reads it."""
    return [
        {
            "streams": one.streams.texts,
            "devices": None if one.devices is None else one.devices.texts,
            "fields": None if one.fields is None else one.fields.texts,
        }
        for one in reader.grants
        if Action.ASK in one.actions
    ]


def _failed(code: int, problem: str) -> Exception:
    """The error of a child that ended without an answer: a kernel limit, or a missing library."""
    if "ModuleNotFoundError" in problem:
        return LocalError(
            "SQL needs more libraries: pip install 'edgewake[lake]' "
            f"({problem.strip().splitlines()[-1]})"
        )
    if code < 0 or "bad_alloc" in problem or "MemoryError" in problem:
        return QueryError("needs more memory than a question may have: ask for less")
    return LocalError(
        f"the question's process ended with {code}: "
        f"{problem.strip().splitlines()[-1] if problem.strip() else 'no word'}"
    )


def _told(out: bytes) -> bytes:
    if out.startswith(b'{"refused":'):
        raise QueryError(QueryFault(**orjson.loads(out)["refused"]))
    if out.startswith(b'{"unavailable":'):
        raise Unavailable(orjson.loads(out)["unavailable"])
    return out
