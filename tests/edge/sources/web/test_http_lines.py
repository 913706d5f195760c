"""An answer that does not end is read line by line."""

from __future__ import annotations

import asyncio
from pathlib import Path

from edgewake.edge.sources.web.http_lines import HttpLinesConfig
from tests.edge.sources.cage import caged, served


async def test_an_answer_that_does_not_end_is_read_as_it_comes_and_asked_for_again(
    tmp_path: Path,
) -> None:
    asked = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b'{"n": %d}\n{"n"' % asked, b": 10}\n"):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if asked == 1:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return
        await reader.read()

    async with served(handler) as port:
        config = HttpLinesConfig.checked(
            {"type": "http_lines", "stream": "s", "url": f"http://127.0.0.1:{port}/"}
        )
        async with caged(tmp_path, config) as one:
            await one.until(lambda: one.column("n") == [1, 10, 2, 10], "both answers")
            assert "the answer ended" in (one.supervisor.error or "")
            assert one.supervisor.failures == 1
