"""A question whose asker has left is not worked for any more."""

from __future__ import annotations

import asyncio

import pytest

from edgewake.cloud.ops.routes.sql import while_wanted


async def test_a_question_ends_when_its_asker_leaves() -> None:
    has_ended = asyncio.Event()

    async def work() -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()
        return b"never"

    async def has_left() -> bool:
        return True

    assert await while_wanted(work(), has_left) == b""
    await has_ended.wait()


async def test_who_stays_gets_the_answer_or_the_error() -> None:
    async def has_left() -> bool:
        return False

    async def answer() -> bytes:
        return b"42"

    async def fault() -> bytes:
        raise ValueError("why")

    assert await while_wanted(answer(), has_left) == b"42"
    with pytest.raises(ValueError, match="why"):
        await while_wanted(fault(), has_left)
