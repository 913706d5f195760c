"""Does one thing take as long as another? Else the time tells what the words do not."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

Ask = Callable[[], Awaitable[object]]

PAIRS: Final = 20
"""Between two looks at the medians; both are asked in turns, so that what else a machine does is
the same for both."""
ROUNDS_MAX: Final = 8
SHARE_MAX: Final = 0.15
ABOVE_S: Final = 0.001


async def takes_as_long(one: Ask, other: Ask, *, pairs: int = PAIRS) -> None:
    """Raises AssertionError where the medians differ by more than a share, however many are taken.

    On a busy machine few tell nothing: it goes on until they agree. A difference that is there
    stays. `pairs`: fewer for what takes long itself.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for done in count(1):
        for n in range(pairs):
            order = (0, 1) if n % 2 else (1, 0)
            for which in order:
                began = time.perf_counter()
                await (one, other)[which]()
                times[which].append(time.perf_counter() - began)
        fast, slow = sorted(map(statistics.median, times))
        if slow - fast <= SHARE_MAX * fast + ABOVE_S:
            return
        assert done < ROUNDS_MAX, f"one takes longer: {fast * 1000:.2f} and {slow * 1000:.2f} ms"
