"""One question at a time, whose answer is given to those who came while it was asked."""

from __future__ import annotations

import asyncio

from edgewake.cloud.log.ask_kafka import SingleFlight


async def test_who_comes_once_it_is_answered_asks_again_before_the_answer_is_cleared_away() -> None:
    """He got the old answer without a turn, so who asks in a loop held up everybody."""
    asked: list[str] = []

    async def ask(key: str) -> int:
        asked.append(key)
        return len(asked)

    flight = SingleFlight(ask)
    first = flight._start("a")
    late = asyncio.create_task(flight.get("a"))  # has its turn right after the answer
    assert await late == 2
    assert await first == 1
    assert await flight.get("a") == 3, "nothing is left over"
