"""Asks the supervisor of `edgewake up --faults` for faults: a line each way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.config import Config
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.installation import key_of
from edgewake.protocol.ops.faults import (
    LINE_BYTES_MAX,
    FaultsView,
    Order,
    Question,
    Refused,
)

ANSWER_S: Final = 5.0
"""Seconds for an answer, which the supervisor gives immediately."""
STATUS: Final = {"no_such_target": 404, "not_running": 409, "still_on": 409}


class FaultsConfig(Config):
    """How to reach the supervisor; only `edgewake up --faults` writes this."""

    port: int = Field(ge=1, le=65_535)
    """The supervisor's port on the loopback."""
    key_file: Path
    """The key that the supervisor expects."""


class FaultControl:
    """A client of the supervisor. Raises ConfigError where the key cannot be read."""

    def __init__(self, config: FaultsConfig) -> None:
        self._port = config.port
        self._key = key_of(config.key_file)

    async def ask(self, order: Order | None = None) -> FaultsView:
        """Injects a fault, or only reads the state. Raises Problem (404, 409) and Unavailable."""
        question = Question(key=self._key, order=order)
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await self._exchange(question.model_dump_json().encode() + b"\n")
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            raise Unavailable("the supervisor of these faults does not answer") from error
        try:
            return FaultsView.model_validate_json(line)
        except ValidationError:
            pass
        try:
            refused = Refused.model_validate_json(line)
        except ValidationError as error:
            raise Unavailable("the supervisor's answer is invalid") from error
        if refused.refused not in STATUS:
            raise Unavailable(f"the supervisor refuses: {refused.detail}")
        raise Problem(STATUS[refused.refused], refused.refused, refused.detail)

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=LINE_BYTES_MAX
        )
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readuntil(b"\n")
        finally:
            writer.close()
