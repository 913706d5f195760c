"""Many clients that poll, in one process of its own: each asks for what comes after its cursor, is
answered when there is something, and asks again at once. With the commands of
`tests.bench.sse_clients`: `python -m tests.bench.readers.poll_clients PORT PATH CLIENTS`. An answer
that found something is one read (`writes_per_s`).

PATH gets `after=` with the cursor of the answer before, as ours say it; where it begins with
`/events`, nchan's, the place is said by the headers that came with the answer before.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Final, cast

import uvloop

from tests.bench.sse_clients import Reader, run

WAIT_S: Final = 30
_CURSOR: Final = re.compile(rb"\r\nedgewake-cursor: ([^\r]+)", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_PLACE: Final = re.compile(rb"\r\n(last-modified|etag): ([^\r]+)", re.IGNORECASE)


class PollReader(Reader):
    """One connection that is kept."""

    answers_at_once = False

    def __init__(self, path: str, *, is_checked: bool) -> None:
        super().__init__(path, is_checked=is_checked)
        self._is_ours = not path.startswith("/events")
        self._buffer = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open = True
        self._transport = cast(asyncio.Transport, transport)
        self._ask(self.path + "?limit=1" if self._is_ours else self.path)

    def _ask(self, path: str, headers: str = "") -> None:
        words = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n"
        self._transport.write(words.encode())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[: end + 2])
        length = _LENGTH.search(head)
        size = int(length[1]) if length is not None else 0
        if len(self._buffer) < end + 4 + size:
            return
        assert head[9:12] in (b"200", b"304"), head
        body = bytes(self._buffer[end + 4 : end + 4 + size])
        del self._buffer[: end + 4 + size]
        if b'"sent":' in body:
            self.reads += 1
            self.take(body)
        if self._is_ours:
            cursor = _CURSOR.search(head)
            assert cursor is not None, head
            self._ask(f"{self.path}?wait={WAIT_S}&after={cursor[1].decode()}")
        else:
            place = {name.lower(): value.decode() for name, value in _PLACE.findall(head)}
            self._ask(
                self.path,
                f"If-Modified-Since: {place[b'last-modified']}\r\n"
                f"If-None-Match: {place[b'etag']}\r\n",
            )


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), PollReader))
