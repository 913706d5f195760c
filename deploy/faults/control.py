"""Where the operations API asks for faults: a line in, a line out, on a port of the loopback."""

from __future__ import annotations

import asyncio
import hmac
from typing import Final

from pydantic import BaseModel, ValidationError

from edgewake.deploy.faults.desk import Desk
from edgewake.protocol.ops.faults import LINE_BYTES_MAX, Question, Refused

ASK_S: Final = 5.0
"""Seconds in which a line must have come; it is sent at once."""


async def serve(desk: Desk, port: int, key: str) -> None:
    """Answer until cancelled."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                line = await reader.readuntil(b"\n")
                found = await _answer(desk, line, key)
                writer.write(found.model_dump_json().encode() + b"\n")
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, or does not know the way
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, limit=LINE_BYTES_MAX)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
        await desk.close()


async def _answer(desk: Desk, line: bytes, key: str) -> BaseModel:
    try:
        question = Question.model_validate_json(line)
    except ValidationError:
        return Refused(
            refused="unreadable", detail="expected a line as protocol/ops/faults.py says"
        )
    if not hmac.compare_digest(question.key.encode(), key.encode()):
        return Refused(refused="unknown_key", detail="expected the key of this installation")
    if question.order is None:
        return desk.look()
    done = await desk.do(question.order)
    return done if isinstance(done, Refused) else desk.look()
