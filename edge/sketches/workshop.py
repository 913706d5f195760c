"""The agent's end of the child process that makes sketches."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import orjson

from edgewake.edge.sketches.pipe import LENGTH
from edgewake.protocol.errors import LocalError
from edgewake.protocol.sketches.sketch import SketchKind

PATIENCE_S: Final = 60.0
"""For the child to take values, and to answer: it imports NumPy first, which takes a small device
seconds. Longer, and it hangs."""
ANSWER_BYTES_MAX: Final = 4 << 20
"""The most bytes of one window's answer: sixteen fields of seven kinds are far below."""
MODULE: Final = "edgewake.edge.sketches.maker"


class MakerGone(LocalError):
    """The child has ended or hangs: its sketches are made again from the log."""


class Workshop:
    """One child. Make it with `workshop`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid

    async def take(self, values: Sequence[tuple[str, str, Sequence[Any]]]) -> None:
        """Values of windows and fields. Raises MakerGone."""
        if values:
            await self._say({"values": values})

    async def over(self, window: str) -> list[tuple[str, str, int, str]]:
        """(field, kind, readings, base64) of a window's sketches. Raises MakerGone."""
        await self._say({"over": window})
        assert self._process.stdout is not None
        with _gone():
            async with asyncio.timeout(PATIENCE_S):
                (size,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
                if size > ANSWER_BYTES_MAX:
                    raise MakerGone(f"the maker of sketches answers {size} bytes")
                found: Mapping[str, Any] = orjson.loads(
                    await self._process.stdout.readexactly(size)
                )
        return [tuple(one) for one in found["sketches"]]

    async def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        text = orjson.dumps(message)
        with _gone():
            async with asyncio.timeout(PATIENCE_S):
                self._process.stdin.write(LENGTH.pack(len(text)) + text)
                await self._process.stdin.drain()


@contextlib.contextmanager
def _gone() -> Any:
    try:
        yield
    except (
        OSError,
        EOFError,
        asyncio.IncompleteReadError,
        TimeoutError,
        orjson.JSONDecodeError,
    ) as error:
        raise MakerGone(f"the maker of sketches is gone: {type(error).__name__}") from error


@contextlib.asynccontextmanager
async def workshop(kinds: Sequence[SketchKind]) -> AsyncIterator[Workshop]:
    """A child, killed at the end. Raises MakerGone where it cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, *kinds, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
    except OSError as error:
        raise MakerGone(f"the maker of sketches cannot be started: {error}") from error
    try:
        yield Workshop(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
